//! What may prove a row: cases of this suite, recordings that it replays, and
//! tests of the SDKs. A proof is `module`, `module.case`, `replay.test`,
//! `client:file` or `client:file.test`.

use std::path::{Path, PathBuf};

/// Programs that drive SDKs: their name in proofs, on the page, and the files of
/// their tests, with `*` for the name.
const CLIENTS: [(&str, &str, &str); 9] = [
    ("python", "Python", "tests/clients/python/tests/test_*.py"),
    ("javascript", "JavaScript", "tests/clients/javascript/tests/*.test.js"),
    ("go", "Go", "tests/clients/go/*_test.go"),
    ("java", "Java", "tests/clients/java/src/test/java/rowhouse/*Test.java"),
    ("legacy-java", "older Java", "tests/clients/java/src/test/java/rowhouse/Legacy*Test.java"),
    ("legacy", "older Python", "tests/clients/legacy/tests/test_*.py"),
    ("legacy-javascript", "older JavaScript", "tests/clients/legacy-javascript/tests/*.test.js"),
    ("legacy-go", "older Go", "tests/clients/legacy-go/*_test.go"),
    ("rust", "Rust", "tests/clients/rust/tests/sdk/*.rs"),
];

/// A file that proves something, and which test of it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What the page calls it.
    pub label: String,
    /// Below the root of the repository.
    pub file: String,
    pub test: Option<String>,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

impl Proof {
    /// Finds what a row names.
    ///
    /// # Errors
    /// What there is not.
    pub fn find(named: &str) -> Result<Self, String> {
        let (place, test) = named.split_once('.').map_or((named, None), |(place, test)| (place, Some(test)));
        let (label, file) = match place.split_once(':') {
            Some((client, file)) => client_file(client, file),
            None => suite_file(place),
        }
        .ok_or_else(|| format!("{named}: there is no such file of tests"))?;
        let text = read(&file).ok_or_else(|| format!("{named}: there is no {file}"))?;
        let proof = Self { label, file, test: test.map(str::to_owned) };
        match &proof.test {
            Some(test) if !tests(&proof.file, &text).iter().any(|known| known == test) => {
                Err(format!("{named}: {} has no such test", proof.file))
            }
            None if tests(&proof.file, &text).is_empty() => {
                Err(format!("{named}: {} has no test", proof.file))
            }
            _ => Ok(proof),
        }
    }
}

fn client_file(client: &str, file: &str) -> Option<(String, String)> {
    let (_, label, files) = CLIENTS.iter().find(|(name, ..)| *name == client)?;
    Some((format!("{label} {}", file.to_lowercase()), files.replace('*', file)))
}

/// Where the tests of a module may stand.
pub(super) fn module_files(module: &str) -> Vec<String> {
    let paths = ["conformance/", ""].map(|folder| format!("tests/suite/{folder}{module}"));
    paths.map(|path| [format!("{path}.rs"), format!("{path}/mod.rs")]).concat()
}

fn suite_file(module: &str) -> Option<(String, String)> {
    let file = module_files(module).into_iter().find(|file| root().join(file).is_file())?;
    let label = if module.starts_with("replay") { "recorded" } else { module };
    Some((label.to_owned(), file))
}

/// The tests of a file, as far as they have names that are no sentences: those
/// of JavaScript count as one.
fn tests(file: &str, text: &str) -> Vec<String> {
    if file.ends_with(".rs") {
        let recorded = if file.ends_with("replay/mod.rs") { crate::replay::names() } else { Vec::new() };
        return [listed(text), stamped(text), marked(text), recorded].concat();
    }
    if file.ends_with(".js") {
        let any = text.contains("test(") || text.contains("\nonTable(");
        return if any { vec![String::new()] } else { Vec::new() };
    }
    let mut found = Vec::new();
    let mut annotated = false;
    for line in text.lines().map(str::trim_start) {
        let begins = match file.rsplit('.').next() {
            Some("py") => line.starts_with("def test_") || line.starts_with("async def test_"),
            Some("go") => line.starts_with("func Test") && !line.starts_with("func TestMain"),
            _ => line.starts_with("void ") && std::mem::take(&mut annotated),
        };
        let name = line.split('(').next().and_then(|text| text.rsplit(' ').next());
        found.extend(name.filter(|_| begins).map(str::to_owned));
        annotated |= line.starts_with("@Test") || line.starts_with("@ParameterizedTest");
    }
    found
}

/// Names in the list of cases.
fn listed(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("\ncases! {") else { return Vec::new() };
    let names = rest.split('}').next().unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The replay of a file.
fn stamped(text: &str) -> Vec<String> {
    let name = text.split_once("\nreplays!(").and_then(|(_, rest)| rest.split(')').next());
    name.map(str::to_owned).into_iter().collect()
}

/// Functions below `#[test]` or `#[tokio::test]`.
fn marked(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim_start);
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
            continue;
        }
        let named = lines.next().and_then(|line| line.split_once("fn "));
        found.extend(named.and_then(|(_, rest)| rest.split('(').next()).map(str::to_owned));
    }
    found
}

/// Modules of which each proves something that clients can tell, and so
/// something that the page says.
pub fn modules() -> Vec<String> {
    let listed = std::fs::read_dir(root().join("tests/suite/conformance")).expect("the folder can be listed");
    let files = listed.map(|entry| entry.expect("the folder can be listed").path());
    let name = |path: PathBuf| path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
    let more = ["azurite", "forwarded", "replay", "secondary", "tls", "tokens"].map(str::to_owned);
    let found = files.filter_map(name).filter(|name| name != "mod").chain(more);
    let mut found: Vec<String> = found.collect();
    found.sort();
    found
}

#[test]
fn what_is_not_there_proves_nothing() {
    for good in [
        "addressing",
        "addressing.a_path_is_decoded_once",
        "replay.entity_query_entities",
        "tls.http_1_is_agreed_on_whatever_else_a_client_offers",
        "promises/crash.acknowledged_writes_survive_kills_on_sqlite",
        "python:tables.test_bad_names_are_refused",
        "python:aio.test_tables",
        "javascript:tables",
        "go:tables.TestBadNamesAreRefused",
        "java:Tables.connectionStrings",
        "java:Access.rangesOfKeys",
        "legacy-java:Batches.merges",
    ] {
        assert!(Proof::find(good).is_ok(), "{:?}", Proof::find(good));
    }
    for bad in [
        "adressing",
        "addressing.a_path_is_decoded",
        "addressing.sample",
        "replay.left_out",
        "tls.fixture",
        "support/client",
        "python:table",
        "python:tables.test_nothing",
        "java:Server",
        "java:Access.keys",
        "go:server",
        "ruby:tables",
        "",
    ] {
        assert!(Proof::find(bad).is_err(), "{bad}");
    }
}
