//! Databases that a store refuses to use, and connection poolers before one.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rowhouse_protocol::model::IfMatch;
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::postgres::{PgOptions, PgStore, StartError};

use super::contract::{insert, number, table, write};
use crate::support::postgres::{
    as_ordinary_user, execute, fresh_database, has_table, server_url, with_database,
};
use crate::support::server::fresh_folder;
use crate::support::wait::until;

async fn refusal(url: &str) -> StartError {
    PgStore::connect(PgOptions::new(url)).await.err().expect("the database is refused")
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    for (script, name) in [
        ("CREATE TABLE tables (id int)", "tables"),
        ("CREATE TABLE entities (id int)", "entities"),
        (
            "CREATE TABLE _sqlx_migrations AS SELECT 20240101000000 AS version, true AS success",
            "_sqlx_migrations",
        ),
    ] {
        let url = fresh_database();
        execute(&url, script);
        let refused = refusal(&url).await;
        assert!(matches!(&refused, StartError::Foreign { table, .. } if *table == name), "{refused}");
        assert!(refused.to_string().contains("CREATE SCHEMA rowhouse"), "{refused}");
        assert_eq!(has_table(&url, "_sqlx_migrations"), name == "_sqlx_migrations");
        execute(&url, "CREATE SCHEMA rowhouse");
        let own =
            format!("{url}{}options=-c%20search_path%3Drowhouse", if url.contains('?') { '&' } else { '?' });
        PgStore::connect(PgOptions::new(&own)).await.expect("a schema of its own");
    }
}

#[tokio::test]
async fn a_database_that_cannot_store_every_text_is_refused() {
    let name = format!("rowhouse_test_latin_{}", std::process::id());
    execute(
        server_url(),
        &format!("CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"),
    );
    let refused = refusal(&with_database(server_url(), &name)).await;
    assert!(matches!(&refused, StartError::Encoding(encoding) if encoding == "LATIN1"), "{refused}");
    execute(server_url(), &format!("DROP DATABASE {name} WITH (FORCE)"));
}

#[tokio::test]
async fn a_statement_timeout_of_the_database_does_not_apply_to_migrations() {
    let url = fresh_database();
    execute(
        &url,
        "CREATE FUNCTION refuse_a_timeout() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('statement_timeout') <> '0' THEN \
         RAISE 'the statement has a timeout of %', current_setting('statement_timeout'); END IF; END $$; \
         CREATE EVENT TRIGGER refuse_a_timeout ON ddl_command_start EXECUTE FUNCTION refuse_a_timeout(); \
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 600000', current_database()); END $$",
    );
    let migrated = PgStore::connect(PgOptions::new(&url)).await;
    assert!(migrated.is_ok(), "{:?}", migrated.err());
}

/// A PgBouncer before the test server, whose socket is in a folder of its own.
struct Pooler {
    process: Child,
    folder: PathBuf,
}

impl Pooler {
    /// `None` if it is not installed.
    fn start(mode: &str, sessions: u32) -> Option<Self> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists());
        let Some(program) = program else {
            eprintln!("PgBouncer is not installed: poolers are not tested");
            return None;
        };
        let folder = fresh_folder();
        open_to_all(&folder);
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = {}\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = {sessions}\nignore_startup_parameters = options\n",
            target(),
            folder = folder.display()
        );
        std::fs::write(&settings, text).expect("a file");
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let mut command = as_ordinary_user();
        command.arg(program).arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("it is there");
        let pooler = Self { process, folder };
        until("PgBouncer listens", || pooler.folder.join(".s.PGSQL.6432").exists());
        Some(pooler)
    }

    fn url(&self, database: &str) -> String {
        let name = database.rsplit('/').find(|part| part.starts_with("rowhouse_test")).expect("a database");
        let name = name.split('?').next().unwrap_or(name);
        format!("postgres://rowhouse@/{name}?host={}&port=6432&sslmode=disable", self.folder.display())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// PgBouncer runs as another user where the tests run as root.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).expect("a folder");
}

/// The test server as PgBouncer names it.
fn target() -> String {
    let rest = server_url().split_once("://").expect("a URL").1;
    let (user, place) = rest.split_once('@').expect("a user");
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let authority = place.split('/').next().expect("an authority");
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "5432"));
    let socket = place.split_once("host=").map(|(_, folder)| folder.split('&').next().unwrap_or(folder));
    let password = if password.is_empty() { String::new() } else { format!("password={password}") };
    format!("host={} port={port} user={user} {password}", socket.unwrap_or(host))
}

#[tokio::test]
async fn a_pooler_that_shares_sessions_is_refused() {
    let Some(pooler) = Pooler::start("transaction", 20) else { return };
    let refused = refusal(&pooler.url(&fresh_database())).await;
    assert!(matches!(refused, StartError::SharedSessions), "{refused}");
    assert!(refused.to_string().contains("pool_mode = session"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_clients_than_a_pooler_has_sessions_are_all_answered() {
    let Some(pooler) = Pooler::start("session", 4) else { return };
    let mut options = PgOptions::new(pooler.url(&fresh_database()));
    options.acquire_timeout = Duration::from_secs(20);
    let store = PgStore::connect(options).await.expect("sessions of its own");
    let table = table(Arc::new(store)).await;
    table.fill((0..16).map(|client| insert("p", &client.to_string()))).await;
    let clients = (0..16).map(|client| {
        let table = table.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let row = client.to_string();
                let change = write(WriteKind::Merge(IfMatch::Any), "p", &row, number("N", round));
                table.transact(std::slice::from_ref(&change)).await.expect("a write");
                assert!(table.get(&change.key).await.expect("a read").is_some());
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("every request is answered");
    }
}
