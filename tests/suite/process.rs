//! What an operator sees: starting, stopping, crashing, settings.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::support::client::Account;
use crate::support::http::read_answer;
use crate::support::ports::free_port;
use crate::support::postgres::fresh_database;
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

/// The account that everybody knows.
pub fn development() -> Account {
    let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    Account { name: "devstoreaccount1".into(), keys: [key.into(), key.into()] }
}

/// A server on a free port with account 1 and a SQLite file in its folder.
fn server(folder: &Path) -> Process {
    Process::serve_in(folder.to_path_buf(), "sqlite://data.db", &[])
}

/// Runs the binary to its end, which must come soon.
pub fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("180").arg(env!("CARGO_BIN_EXE_rowhouse")).args(arguments).current_dir(folder);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(variables.iter().copied()).output().expect("the binary runs")
}

/// Demands that the binary refuses to start, saying why in one line that holds
/// all the given words.
#[track_caller]
fn refuses_to_start(arguments: &[&str], variables: &[(&str, &str)], words: &[&str]) {
    let folder = fresh_folder();
    let output = run(&folder, arguments, variables);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(said.lines().count(), 1, "one line is enough: {said}");
    for word in words {
        assert!(last.contains(word), "{word:?} in {last:?}");
    }
    assert!(!last.contains("panicked"), "{last}");
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_ends_when_it_is_told() {
    let folder = fresh_folder();
    let log = folder.join("log");
    assert!(Command::new("mkfifo").arg(&log).status().expect("mkfifo runs").success());
    // Opening it waits for the server to do so, too.
    let reader = std::thread::spawn(move || std::fs::File::open(log).expect("the log opens"));
    let server = server(&folder);
    drop(reader.join().expect("a reader"));
    server.signal("TERM");
    server.ends_well();
}

#[test]
fn a_mistake_that_nobody_can_read_has_its_status() {
    let nowhere = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    let status = command.args(["serve", "--frob"]).stderr(nowhere).status().expect("the binary runs");
    assert_eq!(status.code(), Some(1));
    for arguments in [&["--help"][..], &["--version"], &["completions", "bash"]] {
        let nowhere = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        let output = command.args(arguments).stdout(nowhere).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{output:?}");
    }
}

#[test]
fn a_mistake_is_refused_in_one_line() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("it listens").to_string();
    for (arguments, words) in [
        (&["frob"][..], &["frob"][..]),
        (&["serve", "--frob"], &["--frob"]),
        (&["serve", "--listen", "nowhere"], &["--listen", "nowhere"]),
        (&["serve", "--database-url", "mysql://x"], &["--database-url"]),
        (&["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite:///nonexistent/folder/x.db"], &[]),
        (&["serve", "--listen", &taken, "--database-url", "sqlite::memory:"], &[&taken]),
    ] {
        refuses_to_start(arguments, &[], words);
    }
    for accounts in ["x", "ab:AAAA", "UPPER:AAAA", "name:*", "name:"] {
        refuses_to_start(&["serve", "--listen", "127.0.0.1:0", "--accounts", accounts], &[], &["--accounts"]);
    }
}

#[test]
fn a_database_that_cannot_be_reached_is_refused_in_one_line() {
    let url = "postgres://someone:secret@127.0.0.1:1/none";
    refuses_to_start(&["serve", "--listen", "127.0.0.1:0", "--database-url", url], &[], &[]);
    let folder = fresh_folder();
    let output = run(&folder, &["serve", "--listen", "127.0.0.1:0", "--database-url", url], &[]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "passwords are not shown");
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn a_misspelt_parameter_of_a_database_url_is_refused_without_its_value() {
    let folder = fresh_folder();
    let url = "postgres://someone@127.0.0.1:1/none";
    let misspelt = format!("{url}?pasword=open-sesame");
    for variable in ["DATABASE_URL", "ROWHOUSE_MIGRATE_URL", "ROWHOUSE_SECONDARY_DATABASE_URL"] {
        let output = run(&folder, &["serve"], &[("DATABASE_URL", url), (variable, &misspelt)]);
        let told = format!("{output:?}");
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("the parameter pasword"), "{told}");
        assert!(!told.contains("open-sesame"), "{told}");
    }
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn help_and_version_are_answered() {
    let folder = fresh_folder();
    for option in ["--help", "--version"] {
        let output = run(&folder, &[option], &[]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).to_lowercase().contains("rowhouse"), "{output:?}");
    }
    let help = run(&folder, &["serve", "--help"], &[]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in
        ["--listen", "--database-url", "--accounts", "ROWHOUSE_LISTEN", "ROWHOUSE_ACCOUNTS", "DATABASE_URL"]
    {
        assert!(text.contains(option), "{option} in {text}");
    }
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn a_server_that_waits_for_its_database_ends_when_it_is_told() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("postgres://someone@{}/none", silent.local_addr().expect("it listens"));
    for name in ["TERM", "INT"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
            .args(["serve", "--listen", "127.0.0.1:0", "--database-url", &url, "--drain-seconds", "3600"])
            .env_clear()
            .spawn()
            .expect("the binary runs");
        let asked = silent.accept().expect("the server asks its database");
        let kill = Command::new("kill").args(["-s", name, &server.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()));
        // If it had waited on, it would have failed.
        assert_eq!(server.wait().expect("it ends").code(), Some(0), "{name}");
        drop(asked);
    }
}

#[test]
fn a_server_ends_with_its_standard_input_if_it_shall() {
    let folder = fresh_folder();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    // Whose standard input is empty.
    let output = run(&folder, &[&arguments[..], &["--until-stdin-closes"]].concat(), &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::fs::remove_dir_all(folder).expect("the folder can go");
    let server = Process::spawn(fresh_folder(), &arguments, &[]);
    Client::path_style(server.address(), development()).table();
}

/// A shell that alone holds the other end of a server's standard input.
const PARENT: &str = r#"
mkfifo in
"$0" serve --listen 127.0.0.1:0 --database-url sqlite::memory: --until-stdin-closes <in &
exec 3>in
echo ignored >&3
wait
"#;

#[test]
fn a_server_ends_with_its_parent_even_if_that_is_killed() {
    let folder = fresh_folder();
    let mut parent = Command::new("sh")
        .args(["-c", PARENT, env!("CARGO_BIN_EXE_rowhouse")])
        .current_dir(&folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell starts");
    let mut output = BufReader::new(parent.stdout.take().expect("it is piped"));
    let mut ready = String::new();
    output.read_line(&mut ready).expect("a line");
    let address = ready.split(['/', ',']).nth(2).expect("an address").to_owned();
    Client::path_style(&address, development()).table();
    parent.kill().expect("it runs");
    parent.wait().expect("it has ended");
    // Both ends of its output are the server's, so that this is the end of the server.
    let mut log = String::new();
    parent.stderr.take().expect("it is piped").read_to_string(&mut log).expect("a log");
    assert!(log.contains("shutting down"), "{log}");
    assert!(std::net::TcpStream::connect(&address).is_err());
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn after_its_end_the_file_holds_everything_by_itself() {
    let folder = fresh_folder();
    let server = server(&folder);
    let client = server.client();
    let t = client.table();
    t.insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);
    server.signal("TERM");
    server.ends_well();
    let log = std::fs::metadata(folder.join("data.db-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0, "the log is empty");
    let copy = fresh_folder();
    std::fs::copy(folder.join("data.db"), copy.join("data.db")).expect("a copy");
    let other = self::server(&copy);
    assert_eq!(Table::new(&other.client(), t.name.clone()).count(), 1);
}

#[test]
fn a_request_in_flight_is_finished_before_the_end() {
    for signal in ["TERM", "INT"] {
        let server = server(&fresh_folder());
        let client = server.client();
        let t = client.table();
        let (mut stream, tail) = t.half_inserted(&with_keys("p", "r", json!({ "A": 1 })));
        server.signal(signal);
        until("the stop begins", || server.log().contains("shutting down"));
        stream.write_all(&tail).expect("the server still listens to this request");
        let (answer, _) = read_answer(&mut stream, "POST").expect("an answer");
        assert_eq!(answer.status, 201, "SIG{signal}");
        drop(stream);
        server.ends_well();
    }
}

/// `serve` is what is meant without a command.
#[test]
fn the_development_account_serves_when_there_is_no_other_and_is_announced() {
    let folder = fresh_folder();
    let arguments = ["--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let server = Process::spawn(folder, &arguments, &[]);
    let said = server.announced.join("\n");
    assert!(said.starts_with("Rowhouse is ready at http://127.0.0.1:"), "{said}");
    for word in ["devstoreaccount1", "development account"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    Client::path_style(server.address(), development()).table();
}

#[test]
fn only_a_terminal_is_shown_the_token_of_the_console() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let mut server = Process::spawn(fresh_folder(), &arguments, &[("ROWHOUSE_ADMIN_LISTEN", "127.0.0.1:0")]);
    let console = server.next_line();
    assert!(console.starts_with("Console: http://127.0.0.1:"), "{console}");
    assert!(console.contains("ROWHOUSE_ADMIN_TOKEN") && !console.contains('#'), "{console}");
    let log = server.log();
    assert!(!log.contains("token"), "{log}");
}

#[test]
fn the_development_account_is_gone_when_there_is_another() {
    let server = server(&fresh_folder());
    let said = server.announced.join("\n");
    assert!(!said.contains("devstoreaccount1"), "{said}");
    for key in account(1).keys {
        assert!(!said.contains(&key), "keys are not shown: {said}");
    }
    let stranger = Client::path_style(server.address(), development());
    assert_eq!(stranger.get("/Tables").status, 404);
}

#[test]
fn flag_variable_and_dotenv_line_are_equivalent() {
    let accounts = account(7).setting();
    for way in ["flag", "variable", "dotenv"] {
        let folder = fresh_folder();
        let listen = format!("127.0.0.1:{}", free_port());
        let mut arguments = vec!["serve", "--database-url", "sqlite::memory:"];
        let mut variables = Vec::new();
        match way {
            "flag" => arguments.extend(["--listen", listen.as_str(), "--accounts", accounts.as_str()]),
            "variable" => {
                variables
                    .extend([("ROWHOUSE_LISTEN", listen.as_str()), ("ROWHOUSE_ACCOUNTS", accounts.as_str())]);
            }
            _ => {
                let lines = format!("ROWHOUSE_LISTEN={listen}\nROWHOUSE_ACCOUNTS='{accounts}'\n");
                std::fs::write(folder.join(".env"), lines).expect("the folder is writable");
            }
        }
        let server = Process::spawn(folder, &arguments, &variables);
        assert_eq!(server.address(), listen, "{way}");
        Client::path_style(server.address(), account(7)).table();
        let stranger = Client::path_style(server.address(), development());
        assert_eq!(stranger.get("/Tables").status, 404, "{way}");
    }
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_dotenv() {
    let settings = [account(1), account(2), account(3)].map(|a| a.setting());
    for (with_variable, with_flag) in [(false, false), (true, false), (true, true)] {
        let folder = fresh_folder();
        let line = format!("ROWHOUSE_ACCOUNTS='{}'\n", settings[0]);
        std::fs::write(folder.join(".env"), line).expect("the folder is writable");
        let variables = [("ROWHOUSE_ACCOUNTS", settings[1].as_str())];
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
        if with_flag {
            arguments.extend(["--accounts", settings[2].as_str()]);
        }
        let server = Process::spawn(folder, &arguments, &variables[..usize::from(with_variable)]);
        let winner = usize::from(with_variable) + usize::from(with_flag);
        for number in 0..3 {
            let status = Client::path_style(server.address(), account(number + 1)).get("/Tables").status;
            assert_eq!(status, if number == winner { 200 } else { 404 }, "account {number}, winner {winner}");
        }
    }
}

#[test]
fn a_dotenv_file_without_an_end_is_refused_in_one_line() {
    let folder = fresh_folder();
    std::os::unix::fs::symlink("/dev/zero", folder.join(".env")).expect("the folder is writable");
    let output = run(&folder, &["serve", "--database-url", "sqlite::memory:"], &[]);
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "rowhouse: .env: the file has more than 4 MiB\n");
}

#[test]
fn a_flag_wins_over_the_variable_of_the_other_form_of_a_secret() {
    let folder = fresh_folder();
    std::fs::write(folder.join("accounts"), account(1).setting()).expect("the folder is writable");
    let other = account(2).setting();
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    for (flag, value, variable, beside, winner) in [
        ("--accounts-file", "accounts", "ROWHOUSE_ACCOUNTS", other.as_str(), 1),
        ("--accounts", other.as_str(), "ROWHOUSE_ACCOUNTS_FILE", "accounts", 2),
    ] {
        let arguments = [&fixed[..], &[flag, value]].concat();
        std::fs::write(folder.join(".env"), format!("{variable}='{beside}'\n")).expect("it is writable");
        let server = Process::spawn(folder.clone(), &arguments, &[]);
        for number in 1..=2 {
            let status = Client::path_style(server.address(), account(number)).get("/Tables").status;
            assert_eq!(status, if number == winner { 200 } else { 404 }, "account {number}, {flag}");
        }
        server.kill();
    }
    // Neither is nearer than the other.
    let both = [("ROWHOUSE_ACCOUNTS", other.as_str()), ("ROWHOUSE_ACCOUNTS_FILE", "accounts")];
    refuses_to_start(&fixed, &both, &["--accounts and --accounts-file"]);
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn two_replicas_start_at_once_on_one_fresh_database() {
    let url = fresh_database();
    let servers: Vec<Process> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| Process::serve(&url, &[]))).collect();
        threads.into_iter().map(|thread| thread.join().expect("both come up")).collect()
    });
    let [one, other] = [servers[0].client(), servers[1].client()];
    let t = one.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let there = Table::new(&other, t.name.clone());
    assert_eq!(there.properties(), json!({ "A": 1 }));
    there.merge("p", "r", &json!({ "A": 2 }), Some(&etag)).expect(204);
    assert_eq!(t.properties(), json!({ "A": 2 }));
    other.delete_table(&t.name).expect(204);
    t.insert(&with_keys("p", "s", json!({}))).refused(NO_TABLE);
    other.create_table(&t.name).expect(201);
    assert_eq!(t.count(), 0);
}
