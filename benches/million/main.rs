//! Loads a table by transactions, walks it by continuation, and compares what
//! point reads and pages cost with what they cost on a small table.
//!
//! ```text
//! cargo bench --bench million                       # SQLite, a million entities
//! DATABASE_URL=postgres://… cargo bench --bench million -- 200000
//! ```

mod client;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::Client;

const ENTITIES_PER_PARTITION: usize = 1000;
const LOADERS: usize = 8;
const SMALL: usize = 1000;
/// Measurements of each kind; small and large table take turns.
const ROUNDS: usize = 200;

fn main() {
    let entities = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("rowhouse-million-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (mut server, address) = start_server(&folder);
    let tables = [("small", SMALL), ("large", entities)];
    for (name, count) in tables {
        let table = format!("{name}{}", std::process::id());
        Client::connect(&address).create_table(&table);
        let started = Instant::now();
        load(&address, &table, count);
        let seconds = started.elapsed().as_secs_f64();
        println!("loaded {count} entities of about 1 KiB in {seconds:.1} s, {:.0}/s", count as f64 / seconds);
        walk(&address, &table, count);
    }
    compare(&address, &server, entities);
    stop(&mut server);
    let _ = std::fs::remove_dir_all(folder);
}

fn start_server(folder: &std::path::Path) -> (Child, String) {
    use std::io::BufRead as _;
    let url = std::env::var("DATABASE_URL")
        .unwrap_or_else(|_| format!("sqlite://{}", folder.join("million.db").display()));
    let mut server = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
        .args(["serve", "--listen", "127.0.0.1:0", "--database-url", &url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let out = server.stdout.take().expect("a pipe");
    std::io::BufReader::new(out).read_line(&mut line).expect("a line from the server");
    let (_, rest) = line.split_once("http://").expect("the ready line");
    let address = rest.split([',', '/', ' ']).next().expect("an address").to_owned();
    (server, address)
}

fn stop(server: &mut Child) {
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
}

fn keys(at: usize) -> (String, String) {
    let (partition, row) = (at / ENTITIES_PER_PARTITION, at % ENTITIES_PER_PARTITION);
    (format!("p{partition:06}"), format!("r{row:06}"))
}

/// Ten properties, about 1 KiB of JSON.
fn entity(at: usize) -> String {
    let (partition, row) = keys(at);
    let text = |n: usize| format!("{:0>120}", at * 7 + n);
    format!(
        "{{\"PartitionKey\":\"{partition}\",\"RowKey\":\"{row}\",\"Age\":{},\"Active\":{},\"Score\":{}.5,\
         \"Total@odata.type\":\"Edm.Int64\",\"Total\":\"{at}\",\
         \"Seen@odata.type\":\"Edm.DateTime\",\"Seen\":\"2026-01-01T00:00:00Z\",\
         \"T1\":\"{}\",\"T2\":\"{}\",\"T3\":\"{}\",\"T4\":\"{}\",\"T5\":\"{}\"}}",
        at % 100,
        at.is_multiple_of(2),
        at % 1000,
        text(1),
        text(2),
        text(3),
        text(4),
        text(5),
    )
}

fn load(address: &str, table: &str, count: usize) {
    let next = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..LOADERS {
            let next = Arc::clone(&next);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                loop {
                    let from = next.fetch_add(100, Ordering::Relaxed);
                    if from >= count {
                        return;
                    }
                    let to = (from + 100).min(count);
                    client.insert_transaction(table, (from..to).map(entity));
                }
            });
        }
    });
}

/// Follows the continuation to the end: every entity once, in order.
fn walk(address: &str, table: &str, count: usize) {
    let mut client = Client::connect(address);
    let (mut seen, mut pages, mut token) = (0, 0, None);
    let started = Instant::now();
    loop {
        let page = client.page(table, token.as_deref());
        for pair in page.keys {
            assert_eq!(pair, keys(seen), "the walk repeated, skipped or reordered an entity");
            seen += 1;
        }
        pages += 1;
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, count, "the walk lost entities");
    let seconds = started.elapsed().as_secs_f64();
    println!("walked {seen} entities once, in order, in {pages} pages and {seconds:.1} s");
}

/// Medians of time and of server CPU, the two tables taking turns.
fn compare(address: &str, server: &Child, entities: usize) {
    let mut client = Client::connect(address);
    let mut times = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    let mut cpu = [[Duration::ZERO; 2]; 2];
    for round in 0..ROUNDS {
        for (which, (name, count)) in [("small", SMALL), ("large", entities)].into_iter().enumerate() {
            let table = format!("{name}{}", std::process::id());
            let at = (round * 7919 * 131) % count;
            let before = cpu_of(server);
            for offset in 0..20 {
                let (partition, row) = keys((at + offset * 37) % count);
                let started = Instant::now();
                client.get(&table, &partition, &row);
                times[which][0].push(started.elapsed());
            }
            let between = cpu_of(server);
            let (partition, _) = keys(at);
            let started = Instant::now();
            client.first_page(&table, &partition);
            times[which][1].push(started.elapsed());
            cpu[which][0] += between - before;
            cpu[which][1] += cpu_of(server) - between;
        }
    }
    println!("| operation | table | median | server CPU each |\n|---|---|---|---|");
    for (kind, label, each) in [(0, "point read", 20 * ROUNDS), (1, "page of 1000", ROUNDS)] {
        for (which, table) in ["1,000".to_owned(), entities.to_string()].into_iter().enumerate() {
            let all = &mut times[which][kind];
            all.sort();
            let cpu = cpu[which][kind].as_micros() as f64 / each as f64;
            println!("| {label} | {table} | {:?} | {cpu:.0} µs |", all[all.len() / 2]);
        }
    }
}

/// User and system time of the server process so far, in 10 ms steps.
fn cpu_of(server: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    let ticks = fields.get(10..12).map_or(0, |times| times.iter().sum());
    Duration::from_millis(ticks * 10)
}
