//! Who may import whom inside a crate, and how long a file may be. Cargo checks what crates may import.

mod circles;
mod links;
mod names;
mod public;
mod references;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use circles::{Module, module, named};

/// Folders of modules, and the modules inside, from the leaves up: each may import what stands before it. Cargo
/// checks the order of the crates.
const ORDERS: [(&str, &[&str]); 6] = [
    ("src", &["service", "server", "testing", "cli"]),
    ("observe", &["metrics", "trace"]),
    ("protocol", &["error", "model", "odata", "codec", "request", "auth", "plan"]),
    (
        "operator",
        &["durations", "cluster", "indexes", "accounts", "deleted", "expiry", "totals", "views", "upkeep"],
    ),
    ("src/server", &["file", "http", "admin", "config", "start"]),
    (
        "transfer",
        &[
            "error",
            "client",
            "rows",
            "contract",
            "rejects",
            "work",
            "locations",
            "formats",
            "opener",
            "copy",
            "verify",
            "follow",
            "survey",
        ],
    ),
];

/// Crates that only some modules may name. Those of the databases are dependencies of their users alone.
const RESERVED: [(&str, &[&str]); 4] = [
    ("actix_http", &["src/server/http", "src/server/start"]),
    ("actix_server", &["src/server/http", "src/server/start"]),
    ("actix_service", &["src/server/http", "src/server/start"]),
    ("actix_web", &["src/server/http", "src/server/admin", "src/server/start", "src/cli/azurite"]),
];

/// Lines of a file without its inline tests.
const MAX_LINES: usize = 450;
/// How inline tests begin.
const INLINE_TESTS: &str = "#[cfg(test)]\nmod tests {";

struct Source {
    /// Below the root of the repository.
    path: PathBuf,
    module: Module,
    text: String,
    /// The text without comments and inline tests.
    code: String,
}

impl Source {
    /// Whether it is this module, or inside it.
    fn is_in(&self, module: &str) -> bool {
        let own = self.module.join("/");
        own == module || own.starts_with(&format!("{module}/"))
    }
}

/// Paths below the root of the repository and texts of the files in one of its folders that end so.
fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the folder can be listed").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy();
            if path.is_dir() {
                let is_built = matches!(name.as_ref(), "target" | "node_modules") || name.starts_with('.');
                folders.extend((!is_built).then(|| path.clone()));
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = std::fs::read_to_string(&path).expect("files are readable");
                let inner = path.strip_prefix(root).expect("it was found below the root").to_path_buf();
                found.push((inner, text));
            }
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let source =
        |(path, text): (PathBuf, String)| Source { module: module(&path), code: code(&text), path, text };
    files("src", "rs").into_iter().chain(files("crates", "rs")).map(source).collect()
}

/// The modules inside a folder that has an order.
fn order_in(folder: &[String]) -> Option<&'static [&'static str]> {
    let folder = folder.join("/");
    ORDERS.iter().find(|(known, _)| *known == folder).map(|(_, order)| *order)
}

/// Whether an import runs back: from a module to one that stands behind it.
fn runs_back(own: &[String], import: &[String]) -> bool {
    let shared = own.iter().zip(import).take_while(|(a, b)| a == b).count();
    let Some(order) = order_in(&own[..shared]) else { return false };
    let place = |module: &[String]| {
        order.iter().position(|known| Some(*known) == module.get(shared).map(String::as_str))
    };
    place(own).zip(place(import)).is_some_and(|(own, import)| import > own)
}

/// The source without comments and inline tests.
fn code(text: &str) -> String {
    let kept = text.split(INLINE_TESTS).next().unwrap_or(text);
    kept.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_import_runs_back_between_names_and_inside_one() {
    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    for (own, import, is_back) in [
        ("src::server", "src::service", false),
        ("src::service", "src::server::config", true),
        ("protocol::model", "protocol::plan", true),
        ("protocol::plan::span", "protocol::model", false),
        ("protocol::plan", "protocol::plan", false),
        ("protocol::model", "transfer::copy", false),
    ] {
        assert_eq!(runs_back(&path(own), &path(import)), is_back, "{own} {import}");
    }
}

#[test]
fn no_import_runs_back() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (import, _) in named(&source.module, &source.code) {
            if runs_back(&source.module, &import) {
                wrong.push(format!("{} must not import {}", source.path.display(), import.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_module_has_a_place() {
    let has_place = |source: &Source| {
        let places = (1..source.module.len()).filter_map(|at| Some((order_in(&source.module[..at])?, at)));
        places.into_iter().all(|(order, at)| order.contains(&source.module[at].as_str()))
    };
    let unknown: Vec<_> = sources().into_iter().filter(|s| !has_place(s)).map(|s| s.path).collect();
    assert!(unknown.is_empty(), "give these a place in ORDERS: {unknown:?}");
}

#[test]
fn actix_is_named_in_the_shell_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, allowed) in RESERVED {
            let forms = [format!("{name}::"), format!("use {name}")];
            let named = forms.iter().any(|form| source.code.contains(form));
            if named && !allowed.iter().any(|module| source.is_in(module)) {
                wrong.push(format!("{}: {name} belongs to {allowed:?}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Modules of `store/postgres` and `store/sqlite` that the other has no use for.
const LONE_MODULES: [&str; 9] = [
    "postgres/batches",
    "postgres/cluster",
    "postgres/migrations",
    "postgres/retry",
    "postgres/rows",
    "postgres/state",
    "postgres/statements",
    "sqlite/checkpoint",
    "sqlite/writer",
];

#[test]
fn both_stores_have_the_same_modules() {
    let modules: BTreeSet<(String, String)> = sources()
        .iter()
        .filter(|source| source.is_in("store/postgres") || source.is_in("store/sqlite"))
        .filter_map(|source| {
            let mut parts =
                source.path.strip_prefix("crates/store/src").ok()?.iter().map(|part| part.to_string_lossy());
            Some((parts.next()?.into_owned(), parts.next()?.trim_end_matches(".rs").to_owned()))
        })
        .collect();
    let other = |store: &str| if store == "postgres" { "sqlite" } else { "postgres" };
    let lone: Vec<String> = modules
        .iter()
        .filter(|(store, module)| !modules.contains(&(other(store).to_owned(), module.clone())))
        .map(|(store, module)| format!("{store}/{module}"))
        .collect();
    assert_eq!(lone, LONE_MODULES);
}

#[test]
fn files_stay_short() {
    let lines = |text: &str| text.split(INLINE_TESTS).next().map_or(0, |kept| kept.lines().count());
    let sizes = sources().into_iter().map(|source| (lines(&source.text), source.path));
    let long: Vec<_> = sizes.filter(|(lines, _)| *lines > MAX_LINES).collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines: {long:?}");
}

#[test]
fn tests_wait_for_events() {
    let sleep = ["::", "sleep"].concat();
    let sleeps =
        |(path, text): &(PathBuf, String)| !path.ends_with("support/wait.rs") && text.contains(&sleep);
    let wrong: Vec<_> = files("tests/suite", "rs").into_iter().filter(sleeps).map(|(path, _)| path).collect();
    assert!(wrong.is_empty(), "wait for an event, as support/wait.rs does, in {wrong:?}");
}
