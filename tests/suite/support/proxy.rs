//! A road to PostgreSQL that can break at an exact place, and be blocked or slow.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use super::pace;

/// Where the road breaks once the server has sent bytes that hold a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The database never hears them.
    Before,
    /// The database does as it is told, but its answer is lost.
    After,
}

/// How bytes get along the road.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traffic {
    #[default]
    Free,
    /// Connections are accepted and stay open, but nothing passes. What was sent
    /// meanwhile arrives once the road is free.
    Blocked,
    /// Answers arrive this much later.
    Slow(Duration),
    /// Connections are closed, new ones at once.
    Cut,
}

/// How bytes pass over the connections that share it.
type SharedTraffic = Arc<RwLock<Traffic>>;
type Trap = Arc<Mutex<Option<Armed>>>;

struct Armed {
    /// Only the connection that has carried this is of interest,
    key: Vec<u8>,
    /// and there the bytes that hold this, or the first with the key.
    mark: Option<&'static str>,
    place: Break,
}

/// Carries connections to a database until a trap closes.
pub struct Proxy {
    port: u16,
    trap: Trap,
    /// That of new connections.
    traffic: Arc<Mutex<SharedTraffic>>,
    accepted: Arc<AtomicUsize>,
}

impl Proxy {
    /// A road to the host and port of this URL.
    pub fn to(database: &str) -> Self {
        let target = authority(database).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let trap = Trap::default();
        let traffic = Arc::<Mutex<SharedTraffic>>::default();
        let (armed, current) = (Arc::clone(&trap), Arc::clone(&traffic));
        let accepted = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&accepted);
        // Ends with the tests.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                let allowed = Arc::clone(&current.lock().expect("nobody panics while it is held"));
                if *allowed.read().expect("nobody panics while it is held") == Traffic::Cut {
                    continue;
                }
                if let Ok(database) = TcpStream::connect(&target) {
                    carry(client, database, &armed, &allowed);
                }
            }
        });
        Self { port, trap, traffic, accepted }
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The URL with this road in place of the direct one.
    pub fn url(&self, database: &str) -> String {
        // A socket's folder would lead past us.
        let direct = database.split_once('?').map_or(database, |(address, _)| address);
        direct.replacen(authority(direct), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Sets the trap. It closes once: on the connection that carries the key, at
    /// the key or, if there is one, at the mark that follows.
    pub fn arm(&self, key: &str, mark: Option<&'static str>, place: Break) {
        let armed = Armed { key: key.into(), mark, place };
        *self.trap.lock().expect("nobody panics while it is held") = Some(armed);
    }

    /// Lets bytes pass in this way from now on.
    pub fn let_pass(&self, traffic: Traffic) {
        let shared = self.traffic.lock().expect("nobody panics while it is held");
        *shared.write().expect("nobody panics while it is held") = traffic;
    }

    /// Has nothing pass over the present connections ever again, though they stay open. New ones are free.
    pub fn forget_connections(&self) {
        self.let_pass(Traffic::Blocked);
        *self.traffic.lock().expect("nobody panics while it is held") = SharedTraffic::default();
    }

    /// Whether the trap has closed.
    pub fn has_struck(&self) -> bool {
        self.trap.lock().expect("nobody panics while it is held").is_none()
    }
}

/// `host:port`.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or_default();
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
}

/// Waits while the road is blocked; how it is after that.
fn wait(traffic: &RwLock<Traffic>) -> Traffic {
    loop {
        let now = *traffic.read().expect("nobody panics while it is held");
        if now != Traffic::Blocked {
            return now;
        }
        pace(Duration::from_millis(20));
    }
}

fn carry(client: TcpStream, database: TcpStream, trap: &Trap, traffic: &SharedTraffic) {
    let deaf = Arc::new(Mutex::new(false));
    let back = (database.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
    let (trap, hears) = (Arc::clone(trap), Arc::clone(&deaf));
    let (there, home) = (Arc::clone(traffic), Arc::clone(traffic));
    std::thread::spawn(move || {
        let mut carried = false;
        pump(client, database, |bytes| {
            if wait(&there) == Traffic::Cut {
                return false;
            }
            let mut trap = trap.lock().expect("nobody panics while it is held");
            let Some(armed) = trap.as_ref() else { return true };
            carried |= holds(bytes, &armed.key);
            if !carried || armed.mark.is_some_and(|mark| !holds(bytes, mark.as_bytes())) {
                return true;
            }
            let place = armed.place;
            *trap = None;
            *hears.lock().expect("nobody panics while it is held") = place == Break::After;
            place == Break::After
        });
    });
    std::thread::spawn(move || {
        // Deaf to an answer means that the database has given one.
        pump(back.0, back.1, |_| {
            match wait(&home) {
                Traffic::Slow(delay) => pace(delay),
                Traffic::Cut => return false,
                Traffic::Free | Traffic::Blocked => {}
            }
            !*deaf.lock().expect("nobody panics while it is held")
        });
    });
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Passes bytes on for as long as `passes` agrees, then closes both.
pub fn pump(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if !passes(&buffer[..n]) || to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
