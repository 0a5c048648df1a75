//! A server on a thread of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Account;
use crate::app::{self, AppError, Up};
use crate::auth::accounts::{AccountError, connection_string};
use crate::config::{Config, Mistakes};
use crate::error;

/// Time to start, and to reset or restore what is stored.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server; stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    /// The one that its own connection string is for.
    first: Account,
    others: Vec<Account>,
    running: Option<RunningServer>,
}

/// What is there between start and stop.
struct RunningServer {
    up: Up,
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// A state that a [`Server`] can go back to, as often as is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(String);

/// Why a server did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The accounts that were asked for are invalid.
    #[error("accounts: {0}")]
    Accounts(Box<dyn std::error::Error + Send + Sync>),
    /// The settings are invalid.
    #[error("{0}")]
    Settings(Box<dyn std::error::Error + Send + Sync>),
    /// The server could not start.
    #[error("{0}")]
    Start(Box<dyn std::error::Error + Send + Sync>),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The server did not answer in time.
    #[error("the server did not answer within {ANSWER_TIMEOUT:?}")]
    Patience,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
    /// The server has no account of this name.
    #[error("the server has no account {0}")]
    NoSuchAccount(String),
    /// The snapshot is another server's, or was dropped.
    #[error("the server has no such snapshot; it belongs to another server or was dropped")]
    NoSuchSnapshot,
    /// The server keeps as many snapshots as it can.
    #[error("the server keeps 64 snapshots at most; drop one first")]
    TooManySnapshots,
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(String),
}

impl From<AccountError> for ServerError {
    fn from(error: AccountError) -> Self {
        Self::Accounts(error.into())
    }
}

impl From<Mistakes> for ServerError {
    fn from(error: Mistakes) -> Self {
        Self::Settings(error.into())
    }
}

impl From<AppError> for ServerError {
    fn from(error: AppError) -> Self {
        Self::Start(error.into())
    }
}

impl From<error::Error> for ServerError {
    fn from(error: error::Error) -> Self {
        Self::Database(error.code.facts().code.to_owned())
    }
}

impl Server {
    pub(super) fn run(config: Config, first: Account, others: Vec<Account>) -> Result<Self, ServerError> {
        let (ready, started) = mpsc::sync_channel(1);
        let (stop, told) = oneshot::channel();
        let serve = move || serve(&config, told, &ready);
        let thread = std::thread::Builder::new().name("rowhouse-testing".into()).spawn(serve)?;
        let (up, runtime) = started.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ServerError::Patience,
            RecvTimeoutError::Disconnected => ServerError::Stopped,
        })??;
        let address = up.address;
        Ok(Self { address, first, others, running: Some(RunningServer { up, runtime, stop, thread }) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The account that was given first, or the development account.
    pub fn account(&self) -> &str {
        &self.first.name
    }

    /// Its key, in base64.
    pub fn key(&self) -> &str {
        &self.first.key
    }

    /// The address of its tables, `http://127.0.0.1:port/account`.
    pub fn endpoint(&self) -> String {
        format!("http://{}/{}", self.address, self.account())
    }

    /// What clients connect with.
    pub fn connection_string(&self) -> String {
        self.connection_string_of(&self.first)
    }

    /// What clients of another of its accounts connect with.
    pub fn connection_string_of(&self, account: &Account) -> String {
        connection_string(&format!("http://{}", self.address), &account.name, &account.key)
    }

    /// Deletes everything of every account.
    ///
    /// This and what follows waits for the server without a runtime, for about a
    /// millisecond. Requests that are under way see the state before or after.
    ///
    /// # Errors
    /// [`ServerError`] of a server that has stopped or whose database fails.
    pub fn reset(&self) -> Result<(), ServerError> {
        self.ask(async |up| Ok(up.service.reset(None).await?))
    }

    /// Deletes everything of one account.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::NoSuchAccount`].
    pub fn reset_account(&self, account: &str) -> Result<(), ServerError> {
        let account = self.known(account)?;
        self.ask(async move |up| Ok(up.service.reset(Some(&account)).await?))
    }

    /// Keeps the state of every account.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::TooManySnapshots`].
    pub fn snapshot(&self) -> Result<Snapshot, ServerError> {
        self.take(None)
    }

    /// Keeps the state of one account; restoring it leaves the others alone.
    ///
    /// # Errors
    /// As [`Server::snapshot`], and [`ServerError::NoSuchAccount`].
    pub fn snapshot_account(&self, account: &str) -> Result<Snapshot, ServerError> {
        let account = self.known(account)?;
        self.take(Some(account))
    }

    fn take(&self, account: Option<String>) -> Result<Snapshot, ServerError> {
        let taken = self.ask(async move |up| Ok(up.service.take_snapshot(account.as_deref()).await?));
        taken?.map(Snapshot).ok_or(ServerError::TooManySnapshots)
    }

    /// Goes back to a snapshot: tables, policies, service properties, and
    /// entities with their ETags and times.
    ///
    /// # Errors
    /// As [`Server::reset`], and [`ServerError::NoSuchSnapshot`].
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), ServerError> {
        let name = snapshot.0.clone();
        let restored = self.ask(async move |up| Ok(up.service.restore_snapshot(&name).await?));
        restored?.then_some(()).ok_or(ServerError::NoSuchSnapshot)
    }

    /// Forgets a snapshot. All are forgotten with the server.
    ///
    /// # Errors
    /// As [`Server::restore`].
    pub fn drop_snapshot(&self, snapshot: &Snapshot) -> Result<(), ServerError> {
        let name = snapshot.0.clone();
        let dropped = self.ask(async move |up| Ok(up.service.drop_snapshot(&name).await?));
        dropped?.then_some(()).ok_or(ServerError::NoSuchSnapshot)
    }

    /// Stops, as dropping it does. Requests under way are broken off; after this
    /// the port is free and what was in memory is gone.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(RunningServer { stop, thread, .. }) = self.running.take() else { return };
        // Both fail only where the server has come to its end already.
        let _ = stop.send(());
        let _ = thread.join();
    }

    fn known(&self, account: &str) -> Result<String, ServerError> {
        let known = self.others.iter().chain([&self.first]).find(|known| known.name == account);
        known.map(|known| known.name.clone()).ok_or_else(|| ServerError::NoSuchAccount(account.to_owned()))
    }

    /// Has the server's own thread do something, and waits for it: the caller
    /// may be a thread of another runtime, which cannot be blocked on twice.
    fn ask<T, F>(&self, work: impl FnOnce(Up) -> F) -> Result<T, ServerError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServerError>> + Send + 'static,
    {
        let RunningServer { up, runtime, .. } = self.running.as_ref().ok_or(ServerError::Stopped)?;
        let (reply, answer) = mpsc::sync_channel(1);
        let work = work(up.clone());
        runtime.spawn(async move { reply.send(work.await) });
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ServerError::Patience,
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

/// Serves until told to stop. `ready` learns once that it answers, or why not.
fn serve(
    config: &Config,
    told: oneshot::Receiver<()>,
    ready: &SyncSender<Result<(Up, Handle), ServerError>>,
) {
    let stop = async move {
        // A handle that was lost without a word means the same.
        let _ = told.await;
    };
    let announce = |up: &Up| {
        let _ = ready.send(Ok((up.clone(), Handle::current())));
    };
    if let Err(error) = app::run_until(config, stop, announce) {
        tracing::error!(%error, "a server for tests ended");
        // Nobody listens any more if it had started.
        let _ = ready.try_send(Err(error.into()));
    }
}
