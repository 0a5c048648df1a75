//! The commands of the pages on servers in docs/how-to, run as they are written.

use std::path::Path;
use std::process::Command;

use super::bash;
use crate::support::postgres::fresh_database;

/// In the order in which their commands make sense.
const DOCUMENT: &str = concat!(
    include_str!("../../../docs/how-to/configure.md"),
    include_str!("../../../docs/how-to/run.md"),
    include_str!("../../../docs/how-to/observe.md"),
    include_str!("../../../docs/how-to/recover.md"),
);

/// Ends at the first command that fails. The server runs beside the commands, as
/// in another terminal, and ends in good order.
const BEGIN: &str = r#"
set -e
rowhouse() {
    [ "$1" = serve ] || { command rowhouse "$@"; return; }
    : >log # is read below, maybe before the shell of the server has made it
    command rowhouse serve >ready 2>log &
    server=$!
    for _ in $(seq 300); do
        admin=$(sed -n 's|.*operators are answered at http://||p' log)
        [ -s ready ] && [ -n "$admin" ] && return || sleep 0.1
    done
    cat log
    return 1
}
# The page has the usual port, where something else may be.
curl() { command curl -fsS "${@//127.0.0.1:10003/$admin}"; }
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null' EXIT
set -v
"#;
const END: &str = r#"
kill -TERM "$server"
wait "$server"
server=
echo all was run
"#;

/// The lines of the document's blocks for a shell. What removes comes last, since
/// the page is no one session.
fn commands() -> String {
    let blocks = DOCUMENT.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let lines: Vec<&str> = blocks.flat_map(|(block, _)| block.lines()).collect();
    assert!(lines.len() > 10, "{lines:?}");
    let (last, first): (Vec<&str>, Vec<&str>) =
        lines.into_iter().partition(|line| line.contains("account remove"));
    [first, last].concat().join("\n")
}

fn run(url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = bash(folder.path(), &[BEGIN, &commands(), END].concat())
        .env("DATABASE_URL", url)
        .env("ROWHOUSE_LISTEN", "127.0.0.1:0")
        .env("ROWHOUSE_ADMIN_LISTEN", "127.0.0.1:0")
        .env("ROWHOUSE_ADMIN_TOKEN", "for-this-test-alone")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("all was run\n"), "{said}\n{wrong}");
}

#[test]
fn the_commands_of_the_document_work() {
    run("sqlite://rowhouse.db");
    run(&fresh_database());
}

/// The commands that the unit of the document runs after a dump.
fn retention(folder: &Path) -> Vec<String> {
    let after = |line: &'static str| line.strip_prefix("ExecStartPost=/bin/sh -c '")?.strip_suffix('\'');
    let commands = DOCUMENT.lines().filter_map(after);
    commands.map(|command| command.replace("/backups", &folder.display().to_string())).collect()
}

#[test]
fn the_newest_complete_dumps_are_kept_however_old_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let dump = |name: &str, is_complete: bool| {
        std::fs::create_dir_all(folder.path().join(name).join("People")).expect("a folder");
        if is_complete {
            std::fs::write(folder.path().join(name).join("manifest.json"), "{}").expect("a file");
        }
    };
    let left = || {
        let entries = std::fs::read_dir(folder.path()).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    };
    let run = || {
        let commands = retention(folder.path());
        assert_eq!(commands.len(), 2);
        for command in commands {
            let output = Command::new("sh").args(["-c", &command]).output().expect("a shell");
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
    };
    dump("other", false);
    dump("2001-01-01", true);
    run();
    assert_eq!(left(), ["2001-01-01", "other"], "one old dump is better than none");
    dump("2026-01-15", false);
    (1..=30).filter(|day| *day != 15).for_each(|day| dump(&format!("2026-01-{day:02}"), true));
    run();
    let mut kept: Vec<String> =
        (1..=30).filter(|day| ![1, 15].contains(day)).map(|day| format!("2026-01-{day:02}")).collect();
    kept.push("other".into());
    assert_eq!(left(), kept);
}
