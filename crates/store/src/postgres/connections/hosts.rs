//! Hosts of one PostgreSQL, and the choice among them.
//!
//! One host is used at a time: the last one that matched the URL's session type. Rowhouse leaves a host when a
//! statement shows that the host is frozen or demoted, and rechecks its role when a session is lost. In both cases the
//! host's sessions are no longer used, because an old primary may lack acknowledged writes. One caller searches for
//! the next host while the others wait. The search tries hosts in turn; a host that was left or did not answer comes
//! last.
//!
//! A primary becomes a standby by a restart, which ends its sessions. A working session therefore belongs to the
//! server whose role was checked when the session was opened, and that role is unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, timeout};

use crate::contract::{HostRole, ListedHost};
use crate::observe::metrics::{NodeMetrics, of_node};
use crate::postgres::connections::host_list::{HostList, WantedSession};
use crate::postgres::connections::options::{PgOptions, StartError, database_message};
use crate::postgres::connections::socket_options::set_socket_options;
use crate::postgres::fault::is_limit;
use crate::postgres::statements;

/// The timeout of an attempt is this fraction of the connection timeout, or less with more hosts.
const ATTEMPT: u32 = 5;
/// A host that did not answer gets half of that timeout, and the full timeout on every eighth attempt, because the
/// host may only be slow.
const PATIENT: u32 = 8;
/// Timeout for closing a session of the wrong type.
const CLOSING: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    wanted: WantedSession,
    /// Timeout of one attempt; used only with several hosts.
    attempt: Duration,
    /// Number of times that a host was left. Sessions of earlier generations are not used.
    generation: AtomicU64,
    choice: Mutex<Choice>,
    /// End of the last search. The lock's holder is searching.
    searched: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Host {
    connect: PgConnectOptions,
    metrics: Arc<NodeMetrics>,
    /// Consecutive attempts without an answer.
    silences: AtomicU32,
}

#[derive(Debug)]
struct Choice {
    /// The host in use, or the last one used.
    host: usize,
    is_found: bool,
    /// The order in which hosts are tried.
    order: Vec<usize>,
}

/// The host of a session, and the generation in which the session was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChosenHost {
    host: usize,
    generation: u64,
}

impl Hosts {
    pub(crate) fn of(url: &str, acquire_timeout: Duration) -> Result<Self, StartError> {
        let HostList { urls, wanted } = HostList::parse(url).map_err(StartError::Options)?;
        let host = |url: &String| -> Result<Host, StartError> {
            let connect = PgOptions::connect_options(url)?;
            Ok(Host { metrics: of_node(&name_of(&connect)), connect, silences: AtomicU32::new(0) })
        };
        let hosts = urls.iter().map(host).collect::<Result<Vec<_>, _>>()?;
        let parts = ATTEMPT.max(u32::try_from(hosts.len()).unwrap_or(ATTEMPT));
        let order = (0..hosts.len()).collect();
        Ok(Self {
            hosts,
            wanted,
            attempt: acquire_timeout / parts,
            generation: AtomicU64::new(0),
            choice: Mutex::new(Choice { host: 0, is_found: false, order }),
            searched: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) const fn are_several(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Whether sessions on any server are accepted.
    pub(crate) fn take_any(&self) -> bool {
        self.wanted == WantedSession::Any
    }

    /// Whether only sessions on a primary are accepted.
    pub(crate) const fn is_of_primary(&self) -> bool {
        self.wanted.is_of_primary()
    }

    /// The database role of the sessions.
    pub(crate) fn role(&self) -> &str {
        self.hosts[0].connect.get_username()
    }

    /// Returns the name of the host in use, for metrics and logs.
    pub(crate) fn name(&self) -> String {
        name_of(&self.hosts[self.choice.lock().host].connect)
    }

    pub(crate) fn metrics_of(&self, chosen: ChosenHost) -> &Arc<NodeMetrics> {
        &self.hosts[chosen.host].metrics
    }

    /// Returns the metrics of the host in use.
    pub(crate) fn metrics(&self) -> &NodeMetrics {
        let at = if self.are_several() { self.choice.lock().host } else { 0 };
        &self.hosts[at].metrics
    }

    /// Caps `limit` at the timeout of one attempt if there are several hosts.
    pub(crate) fn at_most(&self, limit: Duration) -> Duration {
        if self.are_several() { limit.min(self.attempt) } else { limit }
    }

    /// Whether the host is still the chosen one, in the same generation.
    pub(crate) fn is_in_use(&self, chosen: ChosenHost) -> bool {
        self.generation.load(Ordering::Acquire) == chosen.generation
    }

    /// Stops using a host and moves it to the end of the order, unless the host was already left or there is no other.
    pub(crate) fn leave(&self, chosen: ChosenHost) {
        let mut choice = self.choice.lock();
        if self.are_several() && self.is_in_use(chosen) {
            choice.is_found = false;
            choice.put_last(chosen.host);
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Stops using all sessions of a host that has lost one, unless the host was already left or there is no other.
    /// The host's role is checked before other hosts are tried, because a former primary that still runs may be listed
    /// before it.
    pub(crate) fn recheck(&self, chosen: ChosenHost) {
        let mut choice = self.choice.lock();
        if self.are_several() && self.is_in_use(chosen) {
            choice.is_found = self.wanted == self.wanted.last_resort();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Opens a session on the host in use. If that fails, opens one on the first suitable host. Concurrent callers
    /// share one search.
    pub(crate) async fn connect(&self) -> Result<(PgConnection, ChosenHost), sqlx::Error> {
        if !self.are_several() {
            let connection = self.try_host(0, self.wanted.last_resort()).await?;
            return Ok((connection, ChosenHost { host: 0, generation: 0 }));
        }
        let began = Instant::now();
        if let Some(opened) = self.connect_to_chosen().await {
            return opened;
        }
        let mut searched = self.searched.lock().await;
        if searched.is_some_and(|ended| ended >= began) {
            drop(searched);
            let opened = self.connect_to_chosen().await;
            return opened.unwrap_or_else(|| Err(refused("a concurrent request has just tried all hosts")));
        }
        let found = self.search().await;
        *searched = Some(Instant::now());
        found
    }

    /// Opens a session on the host in use; `None` if there is no such host or it offers no suitable session.
    async fn connect_to_chosen(&self) -> Option<Result<(PgConnection, ChosenHost), sqlx::Error>> {
        let chosen = self.chosen()?;
        match self.attempt(chosen.host, self.wanted.last_resort()).await {
            Ok(connection) => Some(Ok((connection, chosen))),
            Err(error) if is_limit(&error) => Some(Err(error)),
            Err(_) => None,
        }
    }

    /// Tries each host once. If a standby is only preferred, tries each host a second time for any session.
    async fn search(&self) -> Result<(PgConnection, ChosenHost), sqlx::Error> {
        let mut refusals = match self.try_each(self.wanted).await {
            Ok(found) => return Ok(found),
            Err(_) if self.wanted.last_resort() != self.wanted => {
                match self.try_each(self.wanted.last_resort()).await {
                    Ok(found) => return Ok(found),
                    Err(refusals) => refusals,
                }
            }
            Err(refusals) => refusals,
        };
        if let Some(at) = refusals.iter().position(|(_, error)| is_limit(error)) {
            return Err(refusals.swap_remove(at).1);
        }
        refusals.sort_by_key(|(host, _)| *host);
        let of_each = |(host, error): &(usize, sqlx::Error)| {
            format!("{}: {}", name_of(&self.hosts[*host].connect), reason_of(error))
        };
        Err(refused(&refusals.iter().map(of_each).collect::<Vec<_>>().join("; ")))
    }

    /// Tries each host once; returns each host's rejection if none was suitable.
    async fn try_each(
        &self,
        wanted: WantedSession,
    ) -> Result<(PgConnection, ChosenHost), Vec<(usize, sqlx::Error)>> {
        let order = self.choice.lock().order.clone();
        let mut refusals = Vec::new();
        for host in order {
            match self.attempt(host, wanted).await {
                Ok(connection) => return Ok((connection, self.choose(host))),
                Err(error) => refusals.push((host, error)),
            }
            self.choice.lock().put_last(host);
        }
        Err(refusals)
    }

    /// Tries one of several hosts, within the timeout of an attempt.
    async fn attempt(&self, host: usize, wanted: WantedSession) -> Result<PgConnection, sqlx::Error> {
        let silences = &self.hosts[host].silences;
        let is_brief = !silences.load(Ordering::Relaxed).is_multiple_of(PATIENT);
        let limit = if is_brief { self.attempt / 2 } else { self.attempt };
        match timeout(limit, self.try_host(host, wanted)).await {
            Ok(tried) => {
                silences.store(0, Ordering::Relaxed);
                tried
            }
            Err(_) => {
                silences.fetch_add(1, Ordering::Relaxed);
                Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
            }
        }
    }

    async fn try_host(&self, host: usize, wanted: WantedSession) -> Result<PgConnection, sqlx::Error> {
        let connect = &self.hosts[host].connect;
        let mut connection = PgConnection::connect_with(connect).await?;
        if connect.get_socket().is_none() {
            set_socket_options(connect.get_port()).await;
        }
        if wanted == WantedSession::Any {
            return Ok(connection);
        }
        let role = role_of(&mut connection).await?;
        if wanted.fits(role) {
            return Ok(connection);
        }
        // The result of the close does not matter.
        let _ = timeout(CLOSING, connection.close()).await;
        Err(refused(&format!("it is {role}")))
    }

    /// Returns the role of each host, in the order of the URL. All hosts are asked concurrently.
    pub(crate) async fn ask_each(&self) -> Vec<ListedHost> {
        join_all(self.hosts.iter().map(|host| async {
            let asked = async { role_of(&mut PgConnection::connect_with(&host.connect).await?).await };
            let role = match timeout(self.attempt, asked).await {
                Ok(role) => role.map_err(|error| reason_of(&error)),
                Err(_) => Err("no answer in time".to_owned()),
            };
            ListedHost { name: name_of(&host.connect), role }
        }))
        .await
    }

    /// Whether the host of a session answers a new connection. A rejection also counts as an answer.
    pub(crate) async fn answers(&self, chosen: ChosenHost, limit: Duration) -> bool {
        let host = &self.hosts[chosen.host];
        match timeout(self.at_most(limit), PgConnection::connect_with(&host.connect)).await {
            Ok(connected) => matches!(connected, Ok(_) | Err(sqlx::Error::Database(_))),
            Err(_) => {
                host.silences.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn chosen(&self) -> Option<ChosenHost> {
        let choice = self.choice.lock();
        let generation = self.generation.load(Ordering::Acquire);
        choice.is_found.then_some(ChosenHost { host: choice.host, generation })
    }

    fn choose(&self, host: usize) -> ChosenHost {
        let mut choice = self.choice.lock();
        if choice.host != host {
            self.generation.fetch_add(1, Ordering::AcqRel);
            tracing::info!(host = %name_of(&self.hosts[host].connect), "switched to a different database host");
        }
        (choice.host, choice.is_found) = (host, true);
        choice.put_first(host);
        ChosenHost { host, generation: self.generation.load(Ordering::Acquire) }
    }
}

impl Choice {
    fn put_first(&mut self, host: usize) {
        self.order.retain(|other| *other != host);
        self.order.insert(0, host);
    }

    fn put_last(&mut self, host: usize) {
        self.order.retain(|other| *other != host);
        self.order.push(host);
    }
}

/// Returns the name of a host, for metrics and logs.
fn name_of(connect: &PgConnectOptions) -> String {
    match connect.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", connect.get_host(), connect.get_port()),
    }
}

pub(crate) async fn role_of(connection: &mut PgConnection) -> Result<HostRole, sqlx::Error> {
    let asked = sqlx::query_as(statements::SESSION_KIND).bind("transaction_read_only").bind("on");
    Ok(match asked.persistent(false).fetch_one(connection).await? {
        (true, _) => HostRole::Standby,
        (false, true) => HostRole::ReadOnly,
        (false, false) => HostRole::Primary,
    })
}

fn refused(reason: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(reason.to_owned()))
}

fn reason_of(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        other => database_message(other),
    }
}
