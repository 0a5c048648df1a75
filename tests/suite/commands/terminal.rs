//! What a person sees at a terminal: bars and questions.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use super::copying::{Served, batch_rows, filled};
use super::*;
use crate::operators::{ask, get, refused};
use crate::support::http::Wire;

/// A command whose input and messages are those of a terminal.
struct AtTerminal {
    keyboard: File,
    child: Child,
    shown: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl AtTerminal {
    fn start(site: &Site, arguments: &[&str]) -> Self {
        Self::start_with_output(site, arguments, Some(Stdio::piped()))
    }

    /// Without a place of its own, the output is shown too.
    fn start_with_output(site: &Site, arguments: &[&str], output: Option<Stdio>) -> Self {
        let near =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&near).and_then(|()| unlockpt(&near)).expect("a terminal");
        tcsetwinsize(&near, Winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        let name = ptsname(&near, Vec::new()).expect("a name");
        let far = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes()));
        let far = far.expect("the other end");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        command.args(arguments).current_dir(&site.folder).env("TERM", "xterm");
        command
            .env_remove("NO_COLOR")
            .stdin(far.try_clone().expect("a file"))
            .stdout(output.unwrap_or_else(|| far.try_clone().expect("a file").into()))
            .stderr(far);
        let child = command.spawn().expect("the binary runs");
        // The far end closes with the command, and with it the reader.
        drop(command);
        let keyboard = File::from(near);
        let (mut screen, shown) =
            (keyboard.try_clone().expect("a file"), Arc::new(Mutex::new(String::new())));
        let written = shown.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                *written.lock().expect("text") += &String::from_utf8_lossy(&bytes[..read]);
            }
        });
        Self { keyboard, child, shown, reader }
    }

    fn shown(&self) -> String {
        self.shown.lock().expect("text").clone()
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("a terminal");
    }

    /// The exit status, what the terminal has shown, and standard output.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut printed = String::new();
        self.child.stdout.take().expect("its output").read_to_string(&mut printed).expect("text");
        let status = self.child.wait().expect("its end").code();
        self.reader.join().expect("all that was shown");
        let shown = self.shown.lock().expect("text").clone();
        (status, shown, printed)
    }
}

/// The last line that was drawn of a bar, when it said these words.
fn bar<'t>(shown: &'t str, name: &str, words: &[&str]) -> Option<&'t str> {
    let lines = shown.split(['\r', '\n']).rev();
    lines.into_iter().find(|line| line.contains(name) && words.iter().all(|word| line.contains(word)))
}

/// Of two servers, one at least finds the default port in use.
#[test]
fn a_server_at_a_terminal_shows_an_address_that_opens_its_console() {
    let site = Site::sqlite();
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:", "--until-stdin-closes"];
    let servers = [(); 2].map(|()| AtTerminal::start_with_output(&site, &arguments, None));
    let printed = servers.each_ref().map(|server| {
        until_some("the address of the console", || {
            let shown = server.shown();
            let (_, rest) = shown.split_once("Console: http://")?;
            let (address, rest) = rest.split_once("/console/#token=")?;
            let (token, _) = rest.split_once('\n')?;
            Some((address.to_owned(), token.trim_end().to_owned()))
        })
    });
    assert_ne!(printed[0].0, printed[1].0);
    for (address, token) in &printed {
        let listener = Wire::new(address);
        let root = ask(&listener, "GET", "/", "");
        assert_eq!((root.status, root.header("location")), (308, Some("console/")));
        let authorization = format!("Authorization: Bearer {token}\r\n");
        assert_eq!(ask(&listener, "GET", "/console/api/session", &authorization).status, 200);
        // Not even programs on this machine read from a listener that no operator asked for.
        for path in ["/console/api/session", "/metrics", "/tables"] {
            refused(&get(&listener, path), 401, "Unauthorized");
        }
    }
    for mut server in servers {
        server.child.kill().and_then(|()| server.child.wait()).expect("its end");
    }
}

#[test]
fn a_copy_at_a_terminal_shows_a_bar_for_each_table() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let tables = [client.table(), client.table()];
    batch_rows(&tables[0], "a", 4000);
    batch_rows(&tables[1], "b", 1500);
    // One entity differs there, and is rejected.
    let target = Served::new(Site::sqlite());
    let there = target.client();
    there.create_table(&tables[0].name).expect(201);
    Table::new(&there, &tables[0].name).seed(with_keys("a", "000000", json!({ "N": -1 })));
    let (to, from) = (target.connection_string(), source.site.url.clone());
    let arguments = ["copy", &from, &to, "--rate-limit", "1000", "--concurrency", "2"];
    let mut command = AtTerminal::start(&source.site, &arguments);
    let [first, second] = [&tables[0].name, &tables[1].name].map(String::as_str);
    until("the bars", || {
        let shown = command.shown();
        let is_known = |name, of: &str| bar(&shown, name, &[of, "/s, ", " throttled, ", " left"]).is_some();
        is_known(first, "/4,000 ")
            && is_known(second, "/1,500 ")
            && is_known("all 2 tables", "/5,500 ")
            && bar(&shown, first, &["1 rejected, 0 throttled"]).is_some()
            && bar(&shown, second, &["0 rejected, 0 throttled"]).is_some()
    });
    assert!(command.child.try_wait().expect("a process").is_none(), "bars are shown meanwhile");
    let (status, shown, printed) = command.end();
    assert_eq!(status, Some(3), "{printed}");
    assert!(printed.contains("5499") && !printed.contains('\u{1b}'), "{printed}");
    // They have moved: the largest table was drawn at different lengths.
    let lengths: std::collections::BTreeSet<&str> = shown
        .split(['\r', '\n'])
        .filter(|line| line.contains("/4,000 "))
        .filter_map(|line| line.split("/4,000").next()?.rsplit(' ').next())
        .collect();
    assert!(lengths.len() > 2, "{lengths:?}");
    // Rates have no decimals.
    let rates = shown.split("/s, ").filter_map(|before| before.rsplit(' ').next());
    assert!(rates.take(20).all(|rate| !rate.contains('.')), "{shown}");
}

#[test]
fn a_copy_without_bars_is_quiet_at_a_terminal_too() {
    let (source, _, from) = filled(Site::sqlite(), 200);
    for form in ["plain", "json"] {
        let arguments = ["copy", &from, &format!("dump:{form}"), "--progress", form];
        let (status, shown, printed) = AtTerminal::start(&source.site, &arguments).end();
        assert_eq!((status, shown.as_str()), (Some(0), ""), "{printed}");
    }
}

#[test]
fn changes_are_asked_about_at_a_terminal() {
    let (source, name, from) = filled(Site::sqlite(), 100);
    let target = Served::new(Site::sqlite());
    let there = target.client();
    there.create_table(&name).expect(201);
    let kept = Table::new(&there, &name);
    kept.seed(with_keys("a", "000007", json!({ "N": -1 })));
    let to = target.connection_string();
    let arguments = ["copy", &from, &to, "--mode", "replace"];
    for (answer, status, value) in [("\n", 2, -1), ("n\n", 2, -1), ("yes\n", 0, 7)] {
        let mut command = AtTerminal::start(&source.site, &arguments);
        until("the question", || command.shown().contains(&format!("of {name}. Go on? [y/N] ")));
        command.types(answer);
        let (found, shown, _) = command.end();
        assert_eq!(found, Some(status), "{shown}");
        assert_eq!(kept.entity("a", "000007")["N"], value);
    }
    // A signal ends the question.
    let command = AtTerminal::start(&source.site, &["delete-where", &from, &name, "N lt 50"]);
    until("the question", || command.shown().contains("Go on? [y/N] "));
    signal(&command.child, "INT");
    let (found, shown, _) = command.end();
    assert_eq!(found, Some(130), "{shown}");
    assert!(shown.contains("nothing was done"), "{shown}");
    assert_eq!(Table::new(&source.client(), &name).count(), 100);
}

#[test]
fn the_reading_of_a_file_shows_a_bar() {
    let site = Site::sqlite();
    super::reading_files::write_large(&site);
    let mut command = AtTerminal::start(&site, &["copy", "People.json", "dump:out"]);
    until("a bar", || command.shown().contains("People"));
    // Nothing is written yet.
    assert!(!site.folder.join("out").exists());
    command.child.kill().expect("a signal");
    command.child.wait().expect("its end");
}

#[test]
fn enter_requests_the_last_round_of_a_follower() {
    let (source, _, from) = filled(Site::sqlite(), 20);
    let target = Served::new(Site::sqlite());
    let to = target.connection_string();
    let metrics = source.site.folder.join("follow.prom");
    let arguments = ["follow", &from, &to, "--interval", "1", "--metrics", "follow.prom"];
    let mut follower = AtTerminal::start(&source.site, &arguments);
    until("a round", || metrics.exists());
    follower.types("\n");
    let (status, shown, printed) = follower.end();
    assert_eq!(status, Some(0), "{shown} {printed}");
    assert!(printed.ends_with("\nequal\n"), "{printed}");
}
