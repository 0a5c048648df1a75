//! Starts and stops a real Rowhouse server, and connects to it.

use azure_core::{RetryOptions, error::Error};
use azure_data_tables::clients::TableServiceClientBuilder;
use azure_data_tables::prelude::*;
use azure_storage::{CloudLocation, StorageCredentials};
use serde_json::Value;
use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(40);
const TEST: Duration = Duration::from_secs(60);

/// One server process on a free port, with an account that nobody used before.
pub struct Server {
    pub account: String,
    pub key: String,
    endpoint: String,
    folder: PathBuf,
    process: Child,
}

impl Server {
    fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("rowhouse-rust-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let account: String = random(8).iter().map(|byte| format!("{byte:02x}")).collect();
        let account = format!("rust{account}");
        let key = azure_core::base64::encode(random(64));
        let database = std::env::var("DATABASE_URL").unwrap_or_default();
        let own = format!("sqlite://{}", folder.join("rowhouse.db").display());
        let mut command = Command::new(binary());
        // The settings of whoever runs the tests must not leak in.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ROWHOUSE_")) {
            command.env_remove(name);
        }
        let mut process = command
            .current_dir(&folder)
            .env("DATABASE_URL", if database.is_empty() { own } else { database })
            .env("ROWHOUSE_LISTEN", "127.0.0.1:0")
            .env("ROWHOUSE_ACCOUNTS", format!("{account}:{key}"))
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("server.log")).unwrap())
            .spawn()
            .unwrap();
        let (first, line) = mpsc::channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(first.send(line)))
        });
        let line = line.recv_timeout(START).unwrap_or_default();
        let origin =
            line.strip_prefix("Rowhouse is ready at ").and_then(|rest| rest.split([' ', ',']).next());
        let endpoint = format!("{}/{account}", origin.unwrap_or("nowhere"));
        let server = Self { account, key, endpoint, folder, process };
        assert!(origin.is_some(), "the server did not become ready: {line}\n{}", server.log());
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap()
    }

    /// A client that never tries again, so that no failure is hidden.
    pub fn service(&self, credentials: StorageCredentials) -> TableServiceClient {
        let location = CloudLocation::Custom { account: self.account.clone(), uri: self.endpoint.clone() };
        TableServiceClientBuilder::with_location(location, credentials).retry(RetryOptions::none()).build()
    }

    pub fn with_key(&self) -> TableServiceClient {
        self.service(StorageCredentials::access_key(self.account.clone(), self.key.clone()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        let since = Instant::now();
        let mut status = None;
        while status.is_none() && since.elapsed() < STOP {
            std::thread::sleep(Duration::from_millis(10));
            status = self.process.try_wait().unwrap();
        }
        let _ = self.process.kill();
        let log = self.log();
        let _ = std::fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert!(asked.is_ok_and(|asked| asked.success()), "the server died:\n{log}");
            assert!(
                status.is_some_and(|status| status.success()),
                "the server ended with {status:?}:\n{log}"
            );
            assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
        }
    }
}

fn binary() -> PathBuf {
    let chosen = std::env::var("ROWHOUSE_BIN").unwrap_or_default();
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/debug/rowhouse");
    std::path::absolute(if chosen.is_empty() { own } else { &chosen }).unwrap()
}

pub fn random(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

/// Runs a test on a server of its own, for a minute at most.
pub async fn on_server<F: Future<Output = ()>>(test: impl FnOnce(Arc<Server>) -> F) {
    let server = Arc::new(Server::start());
    let outcome = tokio::time::timeout(TEST, test(server.clone())).await;
    assert!(outcome.is_ok(), "the test took too long");
}

/// Sees that a result is a refusal with this status and code.
pub fn refused<T>(result: Result<T, Error>, status: u16, code: &str) {
    let error = result.err().expect("nothing was refused");
    let answer = error.as_http_error().expect("no answer");
    assert_eq!(u16::from(answer.status()), status, "{error}");
    assert!(format!("{error:?}").contains(code), "{error:?}");
}

/// What of an entity its writer wrote, without the keys.
pub fn written(mut entity: Value) -> Value {
    if let Some(values) = entity.as_object_mut() {
        values.retain(|name, _| !name.starts_with("odata."));
        for name in ["PartitionKey", "RowKey", "Timestamp", "Timestamp@odata.type"] {
            values.remove(name);
        }
    }
    entity
}
