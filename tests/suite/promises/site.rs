//! Servers that are started, killed and replaced while clients work.

use std::sync::atomic::{AtomicBool, Ordering};

use super::line::Address;
use crate::operators::admin_of;
use crate::support::client::Client;
use crate::support::http::Wire;
use crate::support::server::{Process, account, fresh_folder};

/// One server of one database, and its address.
pub struct Site {
    process: Option<Process>,
    pub address: Address,
    url: String,
    options: Vec<String>,
}

impl Site {
    /// Starts a server with account 1 and these further arguments.
    pub fn start(url: &str, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        let mut site = Self { process: None, address: Address::default(), url: url.to_owned(), options };
        site.start_in(fresh_folder());
        site
    }

    fn start_in(&mut self, folder: std::path::PathBuf) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let process = Process::serve_in(folder, &self.url, &options);
        self.address.set(process.address());
        self.process = Some(process);
    }

    /// Ends it with SIGKILL and starts it again in the same folder.
    pub fn kill_and_start(&mut self) {
        let process = self.process.take().expect("it runs");
        process.signal("KILL");
        let folder = process.kill();
        self.start_in(folder);
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        self.process.as_ref().expect("it runs").signal(name);
    }

    /// Stops it as an operator does, then starts another in its place.
    pub fn restart(&mut self) {
        let before = self.process.take().expect("it runs");
        before.signal("TERM");
        before.ends_well();
        drop(before);
        self.start_in(fresh_folder());
    }

    /// What it has written to standard error since it was started.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Where it answers operators, if it was told to.
    pub fn admin(&self) -> Wire {
        admin_of(self.process.as_ref().expect("it runs"))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid
    }

    /// A client of the server as it is now.
    pub fn client(&self) -> Client {
        Client::path_style(&self.address.get(), account(1))
    }
}

/// Tells clients that work on and on to end, also when the test fails before.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
