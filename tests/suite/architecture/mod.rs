//! Who may import whom, and how long a file may be.

mod circles;
mod links;
mod names;
mod operations;
mod references;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Names in `src`, and the modules inside some of them, from the leaves up: each may import what
/// stands before it.
const ORDERS: [(&str, &[&str]); 6] = [
    (
        "",
        &[
            "error", "observe", "protocol", "store", "operator", "service", "server", "transfer", "testing",
            "cli",
        ],
    ),
    ("observe", &["metrics", "trace"]),
    ("protocol", &["model", "odata", "codec", "request", "auth", "plan"]),
    (
        "operator",
        &[
            "error",
            "indexes",
            "accounts",
            "durations",
            "deleted",
            "expiry",
            "totals",
            "views",
            "to_json",
            "upkeep",
        ],
    ),
    ("server", &["file", "http", "admin", "config", "database", "start"]),
    (
        "transfer",
        &[
            "error",
            "client",
            "rows",
            "contract",
            "work",
            "locations",
            "formats",
            "opener",
            "copy",
            "verify",
            "survey",
        ],
    ),
];

/// Crates that only some modules may name.
const RESERVED: [(&str, &[&str]); 7] = [
    ("sqlx", &["store"]),
    ("rusqlite", &["store", "transfer"]),
    ("rusqlite_migration", &["store"]),
    ("actix_http", &["server/http", "server/start"]),
    ("actix_server", &["server/http", "server/start"]),
    ("actix_service", &["server/http", "server/start"]),
    ("actix_web", &["server/http", "server/admin", "server/start", "cli/azurite"]),
];

/// Lines of a file without its inline tests.
const MAX_LINES: usize = 450;

struct Source {
    path: PathBuf,
    /// The names of its folders and its own, without `mod`.
    module: Vec<String>,
    text: String,
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
    let source = |(path, text): (PathBuf, String)| {
        let path = path.strip_prefix("src").expect("it was found below src").to_path_buf();
        let parts = path.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
        let module = parts.filter(|part| part != "mod").collect();
        Source { path, module, text }
    };
    files("src", "rs").into_iter().map(source).collect()
}

/// The modules inside a name that have an order.
fn order_in(name: &str) -> Option<&'static [&'static str]> {
    ORDERS.iter().find(|(known, _)| *known == name).map(|(_, order)| *order)
}

/// Whether an import runs back: from a module to one that stands behind it.
fn runs_back(own: &[String], import: &[String]) -> bool {
    let place = |name: &str, module: Option<&String>| {
        let module = module?;
        order_in(name)?.iter().position(|known| known == module)
    };
    let is_behind = |name: &str, at: usize| {
        let (own, other) = (place(name, own.get(at)), place(name, import.get(at)));
        own.zip(other).is_some_and(|(own, other)| other > own)
    };
    match (own.first(), import.first()) {
        (Some(name), Some(other)) if name == other => is_behind(name, 1),
        _ => is_behind("", 0),
    }
}

/// The source without comments and inline tests.
fn code(text: &str) -> String {
    let kept = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    kept.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Modules of the crate that a source names, with the module inside: `crate::x::y` and the members
/// of `crate::{x, y::z}`.
fn imports(code: &str) -> Vec<Vec<String>> {
    let name = |text: &str| -> Vec<String> {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let path: String = text.chars().take_while(is_part).collect();
        path.split("::").filter(|part| !part.is_empty()).take(2).map(str::to_owned).collect()
    };
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_members(group).into_iter().map(|m| name(m.trim_start()))),
            None => found.push(name(rest)),
        }
    }
    found
}

/// Members of a brace group whose opening brace is already gone.
fn group_members(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut members) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(&text[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    members
}

#[test]
fn imports_are_read_from_paths_and_groups() {
    let code =
        "use crate::model::Key;\nuse crate::{error, plan::{span, scan},\n store};\nlet x = crate::auth::y;";
    let found: Vec<String> = imports(code).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["model::Key", "error", "plan", "store", "auth::y"]);
}

#[test]
fn an_import_runs_back_between_names_and_inside_one() {
    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    for (own, import, is_back) in [
        ("store", "protocol::plan", false),
        ("store", "service", true),
        ("protocol::model", "protocol::plan", true),
        ("protocol::plan::span", "protocol::model", false),
        ("protocol::plan", "protocol::plan", false),
    ] {
        assert_eq!(runs_back(&path(own), &path(import)), is_back, "{own} {import}");
    }
}

#[test]
fn no_import_runs_back() {
    let mut wrong = Vec::new();
    for source in sources() {
        for import in imports(&code(&source.text)) {
            if runs_back(&source.module, &import) {
                wrong.push(format!("{} must not import {}", source.path.display(), import.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_module_has_a_place() {
    let has_place = |source: &Source| match source.module.as_slice() {
        [root] if matches!(root.as_str(), "main" | "lib") => true,
        [name, inside, ..] if order_in(name).is_some() => {
            order_in(name).is_some_and(|order| order.contains(&inside.as_str()))
        }
        [name, ..] => order_in("").is_some_and(|order| order.contains(&name.as_str())),
        [] => false,
    };
    let unknown: Vec<_> = sources().into_iter().filter(|s| !has_place(s)).map(|s| s.path).collect();
    assert!(unknown.is_empty(), "give these a place in ORDERS: {unknown:?}");
}

#[test]
fn databases_are_named_in_the_store_only_and_actix_in_the_shell_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        let code = code(&source.text);
        for (name, allowed) in RESERVED {
            let named = code.contains(&format!("{name}::")) || code.contains(&format!("use {name}"));
            if named && !allowed.iter().any(|module| source.is_in(module)) {
                wrong.push(format!("{}: {name} belongs to {allowed:?}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Modules of `store/postgres` and `store/sqlite` that the other has no use for.
const LONE_MODULES: [&str; 8] = [
    "postgres/batches",
    "postgres/cluster",
    "postgres/migrations",
    "postgres/retry",
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
            let mut parts = source.path.strip_prefix("store").ok()?.iter().map(|part| part.to_string_lossy());
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
    let lines = |s: &Source| {
        let kept = s.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&s.text);
        kept.lines().count()
    };
    let long: Vec<_> = sources()
        .iter()
        .filter(|s| lines(s) > MAX_LINES)
        .map(|s| format!("{}: {} lines", s.path.display(), lines(s)))
        .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn tests_wait_for_events() {
    let sleep = ["::", "sleep"].concat();
    let sleeps =
        |(path, text): &(PathBuf, String)| !path.ends_with("support/wait.rs") && text.contains(&sleep);
    let wrong: Vec<_> = files("tests/suite", "rs").into_iter().filter(sleeps).map(|(path, _)| path).collect();
    assert!(wrong.is_empty(), "wait for an event, as support/wait.rs does, in {wrong:?}");
}
