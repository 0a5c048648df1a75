//! Builds the program again when a file of the console is added, changed or removed: its files are
//! in the program. Warns if SQLite is compiled without our flags, which only the environment can give.

const SQLITE_FLAGS: &str = "LIBSQLITE3_FLAGS";

fn main() {
    println!("cargo:rerun-if-changed=console");
    println!("cargo:rerun-if-env-changed={SQLITE_FLAGS}");
    if std::env::var_os(SQLITE_FLAGS).is_none() {
        println!(
            "cargo:warning={SQLITE_FLAGS} of .cargo/config.toml is not set: SQLite works without it, but slower. \
             Cargo reads that file from the current folder, so build in the checkout."
        );
    }
}
