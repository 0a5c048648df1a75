//! A test server on a thread of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Account, FaultRule};
use crate::error;
use crate::protocol::auth::accounts::connection_string;
use crate::server::config::Config;
use crate::server::start::{self, ListeningServer};
use crate::service::Service;
use crate::store::contract::reset::MAX_SNAPSHOTS;

/// Timeout for starting, and for reset, snapshot and restore.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    /// The account of [`Server::connection_string`].
    first: Account,
    others: Vec<Account>,
    running: Option<RunningServer>,
}

/// The handles of a server that has not been stopped.
struct RunningServer {
    listening: ListeningServer,
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// A stored state that a [`Server`] can restore, any number of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(String);

/// The counts of a [`FaultRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCount {
    /// Requests, and operations in batches, that matched.
    pub matched: u64,
    /// The number of these that met the fault.
    pub hits: u64,
}

/// Why an operation on a test server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The accounts are invalid.
    #[error("accounts: {0}")]
    Accounts(Box<dyn std::error::Error + Send + Sync>),
    /// The settings are invalid.
    #[error("{0}")]
    Settings(Box<dyn std::error::Error + Send + Sync>),
    /// The server could not start.
    #[error("{0}")]
    Start(Box<dyn std::error::Error + Send + Sync>),
    /// The system could not start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The server did not answer in time.
    #[error("the server did not answer within {ANSWER_TIMEOUT:?}")]
    Timeout,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
    /// The server has no account of this name.
    #[error("the server has no account {0}")]
    NoSuchAccount(String),
    /// The snapshot belongs to another server, or was dropped.
    #[error("the server has no such snapshot; it belongs to another server or was dropped")]
    NoSuchSnapshot,
    /// The server already keeps the maximum number of snapshots.
    #[error("the server keeps at most {MAX_SNAPSHOTS} snapshots; drop one first")]
    TooManySnapshots,
    /// The faults are invalid.
    #[error("faults: {0}")]
    Faults(Box<dyn std::error::Error + Send + Sync>),
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(String),
}

impl From<error::Error> for ServerError {
    fn from(error: error::Error) -> Self {
        Self::Database(error.code.facts().code.to_owned())
    }
}

impl Server {
    pub(super) fn run(config: Config, first: Account, others: Vec<Account>) -> Result<Self, ServerError> {
        let (ready, started) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let serve = move || serve(&config, stopped, &ready);
        let thread = std::thread::Builder::new().name("rowhouse-testing".into()).spawn(serve)?;
        let (listening, runtime) = started.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ServerError::Timeout,
            RecvTimeoutError::Disconnected => ServerError::Stopped,
        })??;
        let address = listening.address;
        Ok(Self { address, first, others, running: Some(RunningServer { listening, runtime, stop, thread }) })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name of the first account, or of the development account.
    pub fn account(&self) -> &str {
        &self.first.name
    }

    /// Returns the key of [`Server::account`], in base64.
    pub fn key(&self) -> &str {
        &self.first.key
    }

    /// Returns the table endpoint of [`Server::account`], `http://127.0.0.1:port/account`.
    pub fn endpoint(&self) -> String {
        format!("http://{}/{}", self.address, self.account())
    }

    /// Returns the connection string of [`Server::account`].
    pub fn connection_string(&self) -> String {
        self.connection_string_of(&self.first)
    }

    /// Returns the connection string of another account of the server.
    pub fn connection_string_of(&self, account: &Account) -> String {
        connection_string(&format!("http://{}", self.address), &account.name, &account.key)
    }

    /// Deletes all data of all accounts, and removes all fault rules.
    ///
    /// This method, and those for snapshots, block the calling thread for about a millisecond and
    /// need no async runtime. Concurrent requests see the state before or after.
    ///
    /// # Errors
    /// Returns [`ServerError`] if the server has stopped or its database fails.
    pub fn reset(&self) -> Result<(), ServerError> {
        self.ask(async |listening| Ok(listening.service.reset(None).await?))
    }

    /// Deletes all data of one account. Fault rules stay in force.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::NoSuchAccount`].
    pub fn reset_account(&self, account: &str) -> Result<(), ServerError> {
        let account = self.known(account)?;
        self.ask(async move |listening| Ok(listening.service.reset(Some(&account)).await?))
    }

    /// Takes a snapshot of all accounts.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::TooManySnapshots`].
    pub fn snapshot(&self) -> Result<Snapshot, ServerError> {
        self.take(None)
    }

    /// Takes a snapshot of one account. Restoring it does not change other accounts.
    ///
    /// # Errors
    /// As [`Server::snapshot`], and [`ServerError::NoSuchAccount`].
    pub fn snapshot_account(&self, account: &str) -> Result<Snapshot, ServerError> {
        let account = self.known(account)?;
        self.take(Some(account))
    }

    fn take(&self, account: Option<String>) -> Result<Snapshot, ServerError> {
        let taken =
            self.ask(async move |listening| Ok(listening.service.take_snapshot(account.as_deref()).await?));
        taken?.map(Snapshot).ok_or(ServerError::TooManySnapshots)
    }

    /// Restores a snapshot: tables, policies, service properties, and entities with their ETags and
    /// timestamps.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::NoSuchSnapshot`].
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), ServerError> {
        let name = snapshot.0.clone();
        let restored = self.ask(async move |listening| Ok(listening.service.restore_snapshot(&name).await?));
        restored?.then_some(()).ok_or(ServerError::NoSuchSnapshot)
    }

    /// Deletes a snapshot. All snapshots end with the server.
    ///
    /// # Errors
    /// As [`Server::restore`].
    pub fn drop_snapshot(&self, snapshot: &Snapshot) -> Result<(), ServerError> {
        let name = snapshot.0.clone();
        let dropped = self.ask(async move |listening| Ok(listening.service.drop_snapshot(&name).await?));
        dropped?.then_some(()).ok_or(ServerError::NoSuchSnapshot)
    }

    /// Replaces all fault rules. An empty list removes them, and so does [`Server::reset`].
    ///
    /// ```
    /// use rowhouse::testing::{FaultCount, FaultRule, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.set_faults([
    ///     FaultRule::error("ServerBusy").operation("InsertEntity").times(2),
    ///     FaultRule::disconnect_after().table("Orders").after(2),
    ///     FaultRule::page(1).operation("QueryEntities").times(1000),
    /// ])?;
    /// // … the code under test …
    /// assert_eq!(server.faults()?, [FaultCount { matched: 0, hits: 0 }; 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`ServerError::Faults`] for names that the server does not know, for errors of malformed
    /// requests, for numbers out of their limits, and for more than 100 rules. The existing rules then stay.
    pub fn set_faults(&self, rules: impl IntoIterator<Item = FaultRule>) -> Result<(), ServerError> {
        let rules = self.service()?.fault_rules.replace(rules.into_iter().collect());
        rules.map_err(|error| ServerError::Faults(error.into()))
    }

    /// Returns the counts of all rules, in their order.
    ///
    /// # Errors
    /// Returns [`ServerError::Stopped`] if the server has stopped.
    pub fn faults(&self) -> Result<Vec<FaultCount>, ServerError> {
        let rules = self.service()?.fault_rules.list();
        Ok(rules.into_iter().map(|rule| FaultCount { matched: rule.matched, hits: rule.hits }).collect())
    }

    /// Stops the server, as dropping it does. Requests in flight are aborted. Afterwards the port
    /// is free, and data in memory is lost.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(RunningServer { stop, thread, .. }) = self.running.take() else { return };
        // Both fail only if the server has already ended.
        let _ = stop.send(());
        let _ = thread.join();
    }

    fn known(&self, account: &str) -> Result<String, ServerError> {
        let known = self.others.iter().chain([&self.first]).find(|known| known.name == account);
        known.map(|known| known.name.clone()).ok_or_else(|| ServerError::NoSuchAccount(account.to_owned()))
    }

    fn service(&self) -> Result<&Service, ServerError> {
        let running = self.running.as_ref().ok_or(ServerError::Stopped)?;
        Ok(&running.listening.service)
    }

    /// Runs work on the server's runtime, and blocks until the work is done. `block_on` would panic in a caller that
    /// is inside another runtime.
    fn ask<T, F>(&self, work: impl FnOnce(ListeningServer) -> F) -> Result<T, ServerError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServerError>> + Send + 'static,
    {
        let RunningServer { listening, runtime, .. } = self.running.as_ref().ok_or(ServerError::Stopped)?;
        let (reply, answer) = mpsc::sync_channel(1);
        let work = work(listening.clone());
        runtime.spawn(async move { reply.send(work.await) });
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ServerError::Timeout,
            RecvTimeoutError::Disconnected => ServerError::Stopped,
        })?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

/// Serves until the sender of `stopped` sends or is dropped. Sends one message to `ready`: the started server, or the
/// error that prevented the start.
fn serve(
    config: &Config,
    stopped: oneshot::Receiver<()>,
    ready: &SyncSender<Result<(ListeningServer, Handle), ServerError>>,
) {
    let stop = async move {
        // A dropped sender also stops the server.
        let _ = stopped.await;
    };
    let announce = |listening: &ListeningServer| {
        let _ = ready.send(Ok((listening.clone(), Handle::current())));
    };
    if let Err(error) = start::run_until(config, stop, announce) {
        tracing::error!(%error, "a test server failed");
        // After a successful start, the receiver no longer exists.
        let _ = ready.try_send(Err(ServerError::Start(error.into())));
    }
}
