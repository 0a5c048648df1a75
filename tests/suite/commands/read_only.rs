//! Commands that only read leave a database as it is, whatever it is.

use super::*;
use crate::support::postgres::{as_ordinary_user, execute, list, migrate};

/// The tables of a database, and the version of a file's schema.
fn state(site: &Site) -> Vec<String> {
    let Some(file) = site.url.strip_prefix("sqlite://") else {
        return list(
            &site.url,
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1",
        );
    };
    let db = rusqlite::Connection::open(file).expect("the file");
    let mut names = db.prepare("SELECT name FROM sqlite_schema ORDER BY name").expect("the schema");
    let names = names.query_map([], |row| row.get(0)).expect("names");
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a version");
    names.map(|name| name.expect("a name")).chain([version.to_string()]).collect()
}

/// Runs commands that read, with the accounts and places that they need.
fn reads(site: &Site) -> Vec<(Output, String)> {
    let url = site.url.as_str();
    let commands: [&[&str]; 9] = [
        &["count", url],
        &["copy", url, "dump:copied"],
        &["verify", url, "dump:copied"],
        &["index", "list"],
        &["view", "sql", "People"],
        &["expire", "list"],
        &["account", "list"],
        &["explain", "People", "Age eq 5", "--account", "devstoreaccount1"],
        &["copy", url, "sqlite://other.db", "--dry-run"],
    ];
    let of = |words: &[&str]| site.run(&[words, &["--json"]].concat());
    commands.into_iter().map(|words| (of(words), words[0].to_owned())).collect()
}

#[test]
fn the_database_of_another_program_stays_as_it_is() {
    for site in Site::both() {
        let theirs = "CREATE TABLE theirs (a int); CREATE TABLE tables (b int)";
        site.execute(theirs);
        let before = state(&site);
        for (output, command) in reads(&site) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && output.stdout.is_empty(), "{command}: {output:?}");
            assert!(said.contains("no tables of Rowhouse"), "{command}: {said}");
        }
        assert_eq!(state(&site), before);
    }
}

/// A file as version 3 of the schema has it, with one entity.
fn old_file(site: &Site) {
    let file = site.url.trim_start_matches("sqlite://");
    let db = rusqlite::Connection::open(file).expect("a file");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/store/migrations/sqlite");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the migrations").flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in &files[..3] {
        db.execute_batch(&std::fs::read_to_string(file).expect("a migration")).expect("a schema");
    }
    db.execute_batch(
        "PRAGMA user_version = 3; INSERT INTO tables VALUES (7, 'devstoreaccount1', 'people', 'People', 1, NULL, 638000000000000000); \
         INSERT INTO entities VALUES (7 << 16, 'p', 'r', 638000000000000000, '{\"Age\":5}')",
    )
    .expect("an entity");
}

#[test]
fn a_file_of_an_old_version_is_read_without_being_migrated() {
    let site = Site::sqlite();
    old_file(&site);
    let before = state(&site);
    for (output, command) in reads(&site) {
        assert!(output.status.success(), "{command}: {output:?}");
    }
    assert_eq!(site.json(&["count", &site.url])["entities"], 1);
    assert_eq!(site.json(&["count", "dump:copied"])["entities"], 1);
    assert_eq!(state(&site), before);
    site.json(&["migrate"]);
    assert_ne!(state(&site), before);
}

#[test]
fn an_old_version_of_postgresql_is_refused_and_not_migrated() {
    let site = Site::postgres();
    migrate(&site.url);
    execute(
        &site.url,
        "DROP TABLE respreads; DROP TABLE respread_changes; DROP TABLE account_queries; DROP TABLE deleted_tables; \
         DELETE FROM _sqlx_migrations WHERE version > 9",
    );
    let before = state(&site);
    for (output, command) in reads(&site) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("run `rowhouse migrate` first"),
            "{command}: {output:?}"
        );
    }
    assert_eq!(state(&site), before);
    site.json(&["migrate"]);
    assert_eq!(site.json(&["count", &site.url])["entities"], 0);
}

/// What a command says in a folder that its user cannot write to.
fn read_only(folder: &Path, program: &Path, words: &[&str]) -> Output {
    let mut command = as_ordinary_user();
    command.arg(program).args(words).arg("--json").current_dir(folder).env_remove("DATABASE_URL");
    command.output().expect("it runs")
}

#[test]
fn a_file_that_nothing_can_be_written_beside_is_read_whole_or_not_at_all() {
    use std::os::unix::fs::PermissionsExt as _;
    let allow = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    };
    let (site, programs) = (Site::sqlite(), fresh_folder());
    // Where any user may start it.
    let program = programs.join("rowhouse");
    std::fs::copy(env!("CARGO_BIN_EXE_rowhouse"), &program).expect("a copy");
    allow(&programs, 0o755);
    old_file(&site);
    site.json(&["migrate"]);
    let db = rusqlite::Connection::open(site.url.trim_start_matches("sqlite://")).expect("the file");
    // A second entity is in the log alone, as in a snapshot of the volume of a running server.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; INSERT INTO entities VALUES (7 << 16, 'p', 's', 638000000000000001, '{}')",
    )
    .expect("an entity");
    let count = |files: &[&str], words: &[&str]| {
        let mount = fresh_folder();
        for file in files {
            std::fs::copy(site.folder.join(file), mount.join(file)).expect("a copy");
            allow(&mount.join(file), 0o444);
        }
        allow(&mount, 0o555);
        let output = read_only(&mount, &program, words);
        assert_eq!(std::fs::read_dir(&mount).expect("the folder").count(), files.len(), "nothing is added");
        allow(&mount, 0o755);
        std::fs::remove_dir_all(mount).expect("it can go");
        output
    };
    let words = ["count", "sqlite://tables.db"];
    let whole = count(&["tables.db", "tables.db-wal", "tables.db-shm"], &words);
    assert_eq!(printed(&whole)["entities"], 2);
    // SQLite cannot read the log without its index: that is no smaller count.
    failed(&count(&["tables.db", "tables.db-wal"], &words), &["tables.db-wal", "has changes"]);
    // A backup has no log.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
    assert_eq!(printed(&count(&["tables.db"], &words))["entities"], 2);
    let target = format!("dump:{}", programs.join("copied").display());
    allow(&programs, 0o777);
    let copied = printed(&count(&["tables.db"], &["copy", "sqlite://tables.db", &target]));
    assert_eq!(copied["copied"], 2, "{copied}");
    std::fs::remove_dir_all(programs).expect("it can go");
}
