//! The command line of Azurite as the tools use it that start its image: each
//! case is the line that one of them passes, and the test of readiness that it
//! makes. Ports are free ones; the hosts of containers are ours.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use serde_json::json;
use tokio::net::TcpSocket;

use crate::support::client::Account;
use crate::support::http::Wire;
use crate::support::ports::free_port;
use crate::support::server::{account, fresh_folder};
use crate::support::*;
use crate::tls::{fixture, trusting};

/// The binary under a name of Azurite's, started.
struct Emulator {
    child: Child,
    name: String,
    /// What was printed up to the line that says that tables are served.
    lines: Vec<String>,
}

impl Emulator {
    fn start(name: &str, folder: &Path, arguments: &[&str], accounts: Option<&str>) -> Self {
        let mut started = Self::spawn(name, folder, arguments, accounts);
        started.wait();
        started
    }

    fn spawn(name: &str, folder: &Path, arguments: &[&str], accounts: Option<&str>) -> Self {
        let program = folder.join(name);
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rowhouse"), &program).expect("a link can be made");
        }
        let child = Command::new("timeout")
            .args(["--foreground", "300"])
            .arg(&program)
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(accounts.map(|accounts| ("AZURITE_ACCOUNTS", accounts)))
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("log")).expect("the folder is writable"))
            .spawn()
            .expect("the binary starts");
        Self { child, name: name.to_owned(), lines: Vec::new() }
    }

    /// Reads up to the line that says that tables are served.
    fn wait(&mut self) {
        let mut output = BufReader::new(self.child.stdout.take().expect("the output is piped"));
        let ready = ready(&self.name, "Table");
        while !self.lines.iter().any(|line| line.starts_with(&ready)) {
            let mut line = String::new();
            let length = output.read_line(&mut line).expect("the output is text");
            assert!(length > 0, "{} ended after {:?}", self.name, self.lines);
            self.lines.push(line.trim_end().to_owned());
        }
    }

    /// The port at the end of the line that says that a service listens.
    fn port(&self, service: &str) -> u16 {
        let ready = ready(&self.name, service);
        let line = self.lines.iter().find(|line| line.starts_with(&ready)).expect("the service is ready");
        line.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port ends the line")
    }

    fn client(&self, account: Account) -> Client {
        Client::path_style(&format!("127.0.0.1:{}", self.port("Table")), account)
    }

    fn stop(mut self) {
        let told = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(told.success());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The leash passes the signal on; a kill would leave the server behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// Gets a path and returns status and body.
fn get(port: u16, path: &str) -> (u16, String) {
    let raw = crate::operators::get(&Wire::new(format!("127.0.0.1:{port}")), path);
    (raw.status, String::from_utf8_lossy(&raw.body).into_owned())
}

const PORTS: [&str; 6] = ["--blobPort", "0", "--queuePort", "0", "--tablePort", "0"];

fn works(emulator: &Emulator, account: Account) {
    let client = emulator.client(account);
    let t = client.table();
    t.insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);
    assert_eq!(t.count(), 1);
}

/// The beginning of the line that says that a service listens, under each name.
fn ready(name: &str, service: &str) -> String {
    match name {
        "azurite" => format!("Azurite {service} service is successfully listening at http"),
        _ => format!("Azurite {service} service successfully started on "),
    }
}

fn starts_as(arguments: &[&str]) -> (PathBuf, Emulator) {
    let folder = fresh_folder();
    let accounts = account(1).setting();
    let emulator = Emulator::start("azurite", &folder, &[arguments, &PORTS].concat(), Some(&accounts));
    (folder, emulator)
}

fn end(folder: PathBuf, emulator: Emulator) {
    emulator.stop();
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn flags_win_over_variables_that_say_the_same() {
    let folder = fresh_folder();
    let lines = "DATABASE_URL_FILE=none\nROWHOUSE_ACCOUNTS_FILE=none\n";
    std::fs::write(folder.join(".env"), lines).expect("the folder is writable");
    let arguments = ["--inMemoryPersistence", "--tablePort", "0"];
    let setting = account(1).setting();
    let emulator = Emulator::start("azurite-table", &folder, &arguments, Some(&setting));
    works(&emulator, account(1));
    end(folder, emulator);
}

/// .NET and Node wait for three texts in the log, Rust for an exact line with the host as given, Go, Java and
/// Python for open ports.
#[test]
fn the_tools_find_what_they_wait_for() {
    let hosts = ["--blobHost", "0.0.0.0", "--queueHost", "0.0.0.0", "--tableHost", "0.0.0.0"];
    let memory = ["--inMemoryPersistence", "--extentMemoryLimit", "64", "--skipApiVersionCheck"];
    for arguments in
        [[&hosts[..], &memory].concat(), [&hosts[..], &["--loose", "--disableTelemetry"]].concat()]
    {
        let (folder, emulator) = starts_as(&arguments);
        for service in ["Blob", "Queue", "Table"] {
            let port = emulator.port(service);
            let line =
                format!("Azurite {service} service is successfully listening at http://0.0.0.0:{port}");
            assert!(emulator.lines.contains(&line), "{line}: {:?}", emulator.lines);
            TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        }
        works(&emulator, account(1));
        end(folder, emulator);
    }
}

#[test]
fn aspire_lists_containers_and_asks_tables_for_nothing() {
    let (folder, emulator) = starts_as(&["-l", "data", "--disableProductStyleUrl", "--skipApiVersionCheck"]);
    let (status, body) = get(emulator.port("Blob"), "/devstoreaccount1/?comp=list&maxresults=1");
    assert_eq!(status, 200);
    assert!(body.contains("<Containers />") && body.contains("<NextMarker />"), "{body}");
    let (status, body) = get(emulator.port("Queue"), "/devstoreaccount1?comp=list");
    assert!(status == 200 && body.contains("<Queues />"), "{status} {body}");
    let client = emulator.client(account(1));
    let t = client.table();
    t.insert(&with_keys("p", "r", json!({}))).expect(201);
    assert_eq!(t.query("?$filter=false").expect(200).json()["value"], json!([]));
    assert!(folder.join("data/rowhouse.db").exists(), "the data is where -l says");
    end(folder, emulator);
}

#[test]
fn what_is_no_table_is_not_implemented_rather_than_pretended() {
    let (folder, emulator) = starts_as(&["--inMemoryPersistence"]);
    for (service, path) in [
        ("Blob", "/devstoreaccount1/container?restype=container"),
        ("Blob", "/devstoreaccount1/container?comp=list"),
        ("Blob", "/devstoreaccount1?restype=service&comp=properties"),
        ("Queue", "/devstoreaccount1/queue/messages"),
    ] {
        let (status, body) = get(emulator.port(service), path);
        assert!(status == 501 && body.contains("<Code>NotImplemented</Code>"), "{path}: {status} {body}");
    }
    end(folder, emulator);
}

#[test]
fn data_stays_in_its_folder_and_what_is_in_memory_goes() {
    let folder = fresh_folder();
    let accounts = account(1).setting();
    let name = fresh_name();
    for (flag, found_again) in [("--loose", true), ("--inMemoryPersistence", false)] {
        let start = || {
            let arguments = [&["-l", "kept", flag], &PORTS[..]].concat();
            Emulator::start("azurite", &folder, &arguments, Some(&accounts))
        };
        let first = start();
        first.client(account(1)).create_table(&name).expect(201);
        first.stop();
        let second = start();
        let again = second.client(account(1)).create_table(&name);
        again.expect(if found_again { 409 } else { 201 });
        second.stop();
    }
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn the_table_service_alone_has_a_name_and_the_account_that_everybody_knows() {
    let folder = fresh_folder();
    let table_only = Emulator::start("azurite-table", &folder, &["--tablePort", "0", "-s"], None);
    let address = format!("127.0.0.1:{}", table_only.port("Table"));
    assert_eq!(
        table_only.lines,
        [
            format!("Azurite Table service is starting on {address}"),
            format!("Azurite Table service successfully started on {address}"),
        ]
    );
    let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    works(&table_only, Account { name: "devstoreaccount1".into(), keys: [key.into(), key.into()] });
    end(folder, table_only);
}

#[test]
fn tables_are_encrypted_by_pem_files() {
    let (certificate, key) = (fixture("first.pem"), fixture("first.key.pem"));
    serves_over_tls(certificate.to_str().expect("text"), key.to_str().expect("text"));
}

fn serves_over_tls(certificate: &str, key: &str) {
    let (folder, emulator) = starts_as(&["--oauth", "basic", "--cert", certificate, "--key", key]);
    let address = format!("127.0.0.1:{}", emulator.port("Table"));
    let line = format!("Azurite Table service is successfully listening at https://{address}");
    assert!(emulator.lines.contains(&line), "{:?}", emulator.lines);
    let client = Client::over_tls(&address, account(1), trusting(&[b"http/1.1"]));
    let t = client.table();
    t.insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);
    assert_eq!(t.count(), 1);
    end(folder, emulator);
}

#[test]
fn a_pfx_file_is_refused_with_the_command_that_converts_it() {
    let folder = fresh_folder();
    let program = folder.join("azurite-table");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rowhouse"), &program).expect("a link can be made");
    let pfx = folder.join("own file.pfx");
    std::fs::copy(fixture("modern.pfx"), &pfx).expect("the folder is writable");
    let output = Command::new("timeout")
        .arg("60")
        .arg(&program)
        .args(["--tablePort", "0", "--inMemoryPersistence", "--pwd", "secret", "--cert"])
        .arg(&pfx)
        .current_dir(&folder)
        .env_clear()
        .output()
        .expect("the binary runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(!message.contains("secret"), "{message}");
    let command = message.split('`').nth(1).expect("a command");
    let convert = format!("{command} -passin pass:secret");
    assert!(Command::new("sh").args(["-c", &convert]).status().expect("sh runs").success(), "{convert}");
    let pem = folder.join("own file.pem");
    let pem = pem.to_str().expect("text");
    serves_over_tls(pem, pem);
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

/// An emulator that has taken its ports and waits for its certificate, which is a pipe.
struct Starting {
    folder: PathBuf,
    blob: u16,
    queue: u16,
    // Before the emulator, which does not end as long as it reads.
    pipe: File,
    emulator: Emulator,
}

impl Starting {
    fn new() -> Self {
        let folder = fresh_folder();
        let path = folder.join("c.pem");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        let (blob, queue) = (free_port(), free_port());
        let (b, q) = (blob.to_string(), queue.to_string());
        let ports = ["--blobPort", b.as_str(), "--queuePort", q.as_str(), "--tablePort", "0"];
        let key = fixture("first.key.pem");
        let key = key.to_str().expect("text");
        let arguments = [&["--inMemoryPersistence", "--cert", "c.pem", "--key", key][..], &ports].concat();
        let mut emulator = Emulator::spawn("azurite", &folder, &arguments, Some(&account(1).setting()));
        // That can be opened once there is a reader.
        let mut writing = OpenOptions::new();
        writing.write(true).custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag"));
        let pipe = until_some("a reader of the certificate", || {
            assert!(emulator.child.try_wait().expect("a child").is_none(), "it ended");
            writing.open(&path).ok()
        });
        Self { folder, emulator, blob, queue, pipe }
    }

    /// Gives it its certificate, which it also finds when it looks again.
    fn go_on(mut self) -> (PathBuf, Emulator) {
        let certificate = fixture("first.pem");
        let copy = self.folder.join("copy.pem");
        std::fs::copy(&certificate, &copy).expect("the folder is writable");
        std::fs::rename(copy, self.folder.join("c.pem")).expect("the folder is writable");
        self.pipe.write_all(&std::fs::read(certificate).expect("a file")).expect("there is a reader");
        (self.folder, self.emulator)
    }
}

fn connect(port: u16) -> Result<TcpStream, ErrorKind> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.kind())
}

#[test]
fn stand_ins_refuse_connections_until_tables_are_served() {
    let starting = Starting::new();
    let ports = [starting.blob, starting.queue];
    for port in ports {
        let other = TcpSocket::new_v4().expect("a socket");
        let taken = other.bind((Ipv4Addr::LOCALHOST, port).into()).map_err(|error| error.kind());
        assert_eq!(taken, Err(ErrorKind::AddrInUse), "the port is taken");
        assert_eq!(connect(port).err(), Some(ErrorKind::ConnectionRefused));
    }
    let (folder, mut emulator) = starting.go_on();
    emulator.wait();
    for port in ports {
        connect(port).expect("the port is open");
    }
    end(folder, emulator);
}

#[test]
fn a_port_of_a_stand_in_that_is_taken_ends_the_start() {
    let starting = Starting::new();
    let port = starting.queue;
    // Sockets that may reuse an address may share it until one of them listens.
    let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("nobody listens");
    let (folder, mut emulator) = starting.go_on();
    let status = emulator.child.wait().expect("it ends");
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    let message = format!("cannot listen on 127.0.0.1:{port}: another program uses this address");
    assert!(status.code() == Some(1) && log.contains(&message), "{status} {log}");
    std::fs::remove_dir_all(folder).expect("the folder can go");
}
