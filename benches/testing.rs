//! How long a test suite waits: for a server of its own, and for going back.
//!
//! ```text
//! cargo bench --bench testing
//! DATABASE_URL=postgres://… cargo bench --bench testing    # PostgreSQL too
//! ```
//!
//! The database that `DATABASE_URL` names is written to, under an account of its
//! own, which is emptied at the end.

use std::time::{Duration, Instant};

use rowhouse::testing::Server;
use rowhouse_protocol::codec::validated::ValidatedProperties;
use rowhouse_protocol::model::{EdmValue, Key, TableName, Ticks};
use rowhouse_protocol::plan::{Write, WriteKind};
use rowhouse_store::Reset;
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::sqlite::{Location, SqliteOptions, SqliteStore};
use rowhouse_store::{Entities, Tables, Upkeep};

const ACCOUNT: &str = "rowhousebench";
const TABLES: usize = 20;
/// In each of them.
const ENTITIES: usize = 50;
const ROUNDS: usize = 50;

fn main() {
    println!("{ROUNDS} times each; milliseconds: median, 95 %, most");
    server();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let memory = SqliteStore::open(&SqliteOptions::new(Location::Memory)).expect("a database");
        store("SQLite in memory", &memory).await;
        let folder = tempfile::tempdir().expect("a folder");
        let location = Location::File(folder.path().join("bench.db"));
        let file = SqliteStore::open(&SqliteOptions::new(location)).expect("a database");
        store("SQLite in a file", &file).await;
        if let Ok(url) = std::env::var("DATABASE_URL") {
            let postgres = PgStore::connect(PgOptions::new(url)).await.expect("a database");
            store("PostgreSQL", &postgres).await;
        }
    });
}

fn server() {
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let server = timed(&mut starts, || Server::start().expect("a server"));
        timed(&mut stops, || server.stop());
    }
    print("a server", "start", starts);
    print("a server", "stop", stops);
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    times.push(begun.elapsed());
    done
}

async fn store<B: Entities + Tables + Reset + Upkeep>(name: &str, store: &B) {
    store.reset(Some(ACCOUNT), now()).await.expect("a reset");
    fill(store).await;
    let [mut takes, mut restores, mut drops, mut resets] = [const { Vec::new() }; 4];
    for round in 0..ROUNDS {
        let snapshot = format!("bench{round}");
        let begun = Instant::now();
        assert!(store.take_snapshot(&snapshot, Some(ACCOUNT), now()).await.expect("a snapshot"));
        takes.push(begun.elapsed());
        let begun = Instant::now();
        store.reset(Some(ACCOUNT), now()).await.expect("a reset");
        resets.push(begun.elapsed());
        let begun = Instant::now();
        assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot"));
        restores.push(begun.elapsed());
        let begun = Instant::now();
        assert!(store.drop_snapshot(&snapshot).await.expect("a snapshot"));
        drops.push(begun.elapsed());
        // What the server does in the background.
        while store.purge(now()).await.expect("a purge") {}
    }
    for (what, times) in [("snapshot", takes), ("reset", resets), ("restore", restores), ("delete", drops)] {
        print(name, what, times);
    }
    store.reset(Some(ACCOUNT), now()).await.expect("a reset");
}

async fn fill<B: Entities + Tables>(store: &B) {
    for table in 0..TABLES {
        let table = TableName::parse(&format!("Table{table}")).expect("a name");
        store.create_table(table.in_account(ACCOUNT), now()).await.expect("a table");
        let text = vec![("Text", EdmValue::String("x".repeat(200)))];
        let properties = ValidatedProperties::new(0, &text, None).expect("properties");
        let write = |row: usize| Write {
            kind: WriteKind::Insert,
            key: Key::new("p", format!("{row:04}")),
            properties: properties.clone(),
        };
        let writes: Vec<Write> = (0..ENTITIES).map(write).collect();
        store.transact(table.in_account(ACCOUNT), &writes.into(), now()).await.expect("entities");
    }
}

fn now() -> Ticks {
    Ticks::from_utc(std::time::SystemTime::now().into())
}

fn print(name: &str, what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!("{name:<20} {what:<10} {:8.2} {:8.2} {:8.2}", at(0.5), at(0.95), at(1.0));
}
