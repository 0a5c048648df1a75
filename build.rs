//! Builds the program again when a file of the console is added, changed or removed: its files are
//! in the program.

fn main() {
    println!("cargo:rerun-if-changed=console");
}
