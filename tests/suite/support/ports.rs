//! Ports for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that a system gives to whoever asks for any port, so that a server that is away gets its port again.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

static TAKEN: AtomicU16 = AtomicU16::new(0);

/// A port of this machine where nobody listens, and that no other test of this process gets.
pub fn free_port() -> u16 {
    // Processes that run at once begin at different ones.
    let begin = u16::try_from(std::process::id() * 97 % u32::from(COUNT)).expect("it is small");
    loop {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        assert!(taken < COUNT, "no port is free");
        let port = FIRST + (begin + taken) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
