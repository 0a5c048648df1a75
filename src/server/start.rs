//! Starts and stops a server and its background tasks.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use actix_web::dev::Server;
use actix_web::rt::System;
use actix_web::web::Data;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::observe::metrics::process;
use crate::observe::trace::Tracer;
use crate::operator::OperatorError;
use crate::operator::accounts::Follower;
use crate::operator::upkeep::{
    DeletedUpkeep, IndexBuilds, IndexRemoval, ON_PURGE_FAILURE, OnFailure, STOP_TIMEOUT, TableUpkeep, Worker,
    follow, purge,
};
use crate::server::admin::{self, Admin, AdminSettings, AdminToken, ConsoleMode, Guard};
use crate::server::config::{AdminAddress, Config, Mistakes};
use crate::server::http::{self, Edge, Listening, Tls};
use crate::service::{BodyMemory, FaultRules, Issuer, RecentRequests, Service, Throttle, VersionClock};
use crate::store::Store;
use crate::store::database::{self, Database, DatabaseError};
use crate::store::postgres::ConnectionDemand;
use crate::store::sqlite::ServerLock;

/// The beginning of the line on standard output that reports that the server is ready. Tools wait for this
/// line.
pub(crate) const READY: &str = "Rowhouse is ready at";

/// Minimum time for the admin listener to stop, because it checks only every second whether its requests have ended.
const ADMIN_STOP: Duration = Duration::from_millis(1100);
/// Pause before another read of standard input that was not ready.
const STDIN_PAUSE: Duration = Duration::from_millis(100);

/// The reason why a server did not start or failed, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("{0}")]
    Config(#[from] Mistakes),
    #[error("{0}; {advice}", advice = .0.advice().unwrap_or(CHECK))]
    Database(#[from] DatabaseError),
    #[error("--tls-cert, --tls-key: {0}; {CHECK}")]
    Tls(String),
    #[error("{0}; {CHECK}")]
    Accounts(#[from] OperatorError),
    #[error("cannot listen on {address}: {}", listen_problem(.error, .flag))]
    Listen { flag: &'static str, address: String, error: io::Error },
    #[error("cannot make the folder {0}: {1}")]
    Folder(String, String),
    #[error("the server failed: {0}")]
    Run(io::Error),
}

/// Advice for a failed start whose message contains none.
const CHECK: &str = "`rowhouse check` says what to do";

fn listen_problem(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program uses this address, perhaps another Rowhouse or Azurite; stop it, or choose another address \
             with {flag}"
        ),
        _ => format!(
            "{error}; give an address of this machine with {flag}, and a port that this user may open"
        ),
    }
}

/// The way in which a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// After the time that the settings give clients to connect elsewhere.
    Drained,
    AtOnce,
}

/// A started server that accepts connections.
struct Running {
    server: Server,
    /// The admin listener, if there is one.
    admin: Option<(Server, Data<Admin>)>,
    listening: ListeningServer,
    /// A message on this channel asks clients to connect elsewhere.
    drain: watch::Sender<()>,
    /// The background work.
    worker: Worker,
    /// Held until the server has ended.
    lock: Option<ServerLock>,
}

/// The address and the service of a running server.
#[derive(Clone)]
pub(crate) struct ListeningServer {
    /// The address that the server listens on, with the actual port.
    pub address: SocketAddr,
    /// The service that answers requests.
    pub service: Arc<Service>,
    /// The address of the console, unless it is off.
    pub console: Option<ConsoleAddress>,
}

/// The address at which a browser finds the console.
#[derive(Clone)]
pub(crate) struct ConsoleAddress {
    pub url: String,
    /// The token that this start generated, if the settings contain none.
    pub generated_token: Option<String>,
}

fn has_console(config: &Config) -> bool {
    config.admin.as_ref().is_some_and(|admin| admin.console != ConsoleMode::Off)
}

/// Opens the database and starts to listen.
async fn start(config: &Config) -> Result<Running, ServeError> {
    process::started();
    let lock = database::lock(&config.database)?;
    let limits = config.serving.limits();
    let (primary, secondary) = database::open(&config.database).await?;
    let service = Arc::new(Service {
        follower: Follower::start(&primary, config.master_key.clone(), config.accounts.clone()).await?,
        primary,
        secondary,
        secondary_follower: Follower::for_replica(),
        version_clock: VersionClock::default(),
        issuer: config.trust.clone().map(Issuer::new),
        limits,
        body_memory: BodyMemory::new(config.serving.max_body_memory as usize * 1024 * 1024),
        max_requests_per_second: config.serving.max_requests_per_second.and_then(NonZeroU32::new),
        throttle: Throttle::default(),
        max_comparisons: config.serving.max_filter_comparisons as usize,
        fault_rules: FaultRules::default(),
        keep_deleted: config.keep_deleted,
        slow_threshold: config.slow_request,
        recent: has_console(config).then(RecentRequests::new),
        tracer: config.traces.clone().map(Tracer::start).transpose().map_err(ServeError::Run)?,
    });
    let mut worker = start_jobs(config, &service);
    let listen = |error| ServeError::Listen { flag: "--listen", address: config.listen.to_string(), error };
    let listener = http::bind(config.listen).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let mut server = Server::build()
        .disable_signals()
        .max_concurrent_connections(config.serving.max_clients as usize)
        .shutdown_timeout(u64::from(config.shutdown.shutdown_seconds));
    if let Some(workers) = config.serving.workers {
        server = server.workers(usize::from(workers));
    }
    let tls = config
        .tls
        .clone()
        .map(|files| Tls::load(files).map(Arc::new).map_err(ServeError::Tls))
        .transpose()?;
    if let Some(tls) = tls.clone() {
        actix_web::rt::spawn(async move { tls.follow().await });
    }
    let (admin, console) = start_admin(config, &service, address, &mut worker)?;
    let (drain, draining) = watch::channel(());
    let edge = Edge {
        service: Arc::clone(&service),
        proxies: config.proxies.clone(),
        busy_poll: config.serving.busy_poll,
        draining,
    };
    let edge = Data::new(edge);
    let listening = Listening { server, listener, tls, limits };
    let server =
        http::listen(listening, move |app| http::configure(app, edge.clone()), |_, _| ()).map_err(listen)?;
    let server = server.run();
    Ok(Running {
        server,
        admin,
        listening: ListeningServer { address, service, console },
        drain,
        worker,
        lock,
    })
}

/// Starts the background work.
fn start_jobs(config: &Config, service: &Arc<Service>) -> Worker {
    let mut worker = Worker::default();
    worker.run(service, ON_PURGE_FAILURE, async |service: &Service| purge(&service.primary).await);
    let mut deleted = DeletedUpkeep::default();
    worker.run(service, DeletedUpkeep::ON_FAILURE, async move |service: &Service| {
        deleted.step(&service.primary).await
    });
    let mut upkeep = TableUpkeep::default();
    worker.run(service, TableUpkeep::ON_FAILURE, async move |service: &Service| {
        upkeep.step(&service.primary).await
    });
    let mut builds = IndexBuilds::default();
    worker.run(service, OnFailure::NONE, async move |service: &Service| {
        Ok(builds.step(&service.primary, &service.follower).await)
    });
    let mut removal = IndexRemoval::default();
    worker.run(service, OnFailure::NONE, async move |service: &Service| {
        Ok(removal.step(&service.primary).await)
    });
    let unread = OnFailure::for_follower("the accounts cannot be read; the known ones stay in use");
    worker.run(service, unread, async |service: &Service| follow(&service.follower, &service.primary).await);
    if service.secondary.is_some() {
        let unread = OnFailure::for_follower("the secondary database does not answer yet");
        worker.run(service, unread, async |service: &Service| match &service.secondary {
            Some(secondary) => follow(&service.secondary_follower, secondary).await,
            None => Ok(Duration::MAX),
        });
    }
    let config = config.clone();
    worker.run(service, OnFailure::NONE, async move |service: &Service| {
        log_connections(&config, &service.primary).await;
        Ok(Duration::MAX)
    });
    worker
}

/// Compares the connections that a server with these settings may open with the `allowed` ones;
/// `None` for SQLite.
pub(crate) fn connection_demand(config: &Config, allowed: u32) -> Option<ConnectionDemand> {
    let Database::Postgres { options, .. } = &config.database else { return None };
    let threads = match config.serving.workers {
        Some(workers) => u32::from(workers),
        None => available_parallelism().map_or(1, |threads| u32::try_from(threads.get()).unwrap_or(u32::MAX)),
    };
    Some(ConnectionDemand { most: options.most_connections(threads), allowed })
}

/// Logs how many connections this server may open, and how many the database allows.
pub(crate) async fn log_connections(config: &Config, store: &Store) {
    let Store::Postgres(store) = store else { return };
    let demand = match store.allowed_connections().await {
        Ok(allowed) => connection_demand(config, allowed),
        Err(failure) => {
            return tracing::debug!(?failure, "the connection limit of the database could not be read");
        }
    };
    match demand {
        Some(demand) if demand.fits() => tracing::info!("{demand}"),
        Some(demand) => tracing::warn!("{demand}: {}", ConnectionDemand::ADVICE),
        None => {}
    }
}

/// Opens the socket of the admin listener. A port in use that the operator did not choose is replaced.
fn bind_admin(settings: &AdminAddress) -> io::Result<TcpListener> {
    match http::bind(settings.listen) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && !settings.is_chosen => {
            http::bind(SocketAddr::new(settings.listen.ip(), 0))
        }
        bound => bound,
    }
}

/// The admin listener and the address of its console, if there are any.
type AdminListener = (Option<(Server, Data<Admin>)>, Option<ConsoleAddress>);

/// Starts the admin listener, if it is configured.
fn start_admin(
    config: &Config,
    service: &Arc<Service>,
    tables: SocketAddr,
    worker: &mut Worker,
) -> Result<AdminListener, ServeError> {
    let Some(settings) = &config.admin else { return Ok((None, None)) };
    let failed =
        |error| ServeError::Listen { flag: "--admin-listen", address: settings.listen.to_string(), error };
    let listener = bind_admin(settings).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let (token, generated_token) = match settings.token.clone() {
        Some(token) => (token, None),
        None => {
            let (token, text) = AdminToken::generate();
            (token, Some(text))
        }
    };
    let is_open_locally = settings.is_chosen && settings.token.is_none();
    let admin_settings = AdminSettings {
        guard: Guard { token, is_open_locally },
        test_mode: settings.test_mode,
        console: settings.console,
        tables_endpoint: format!("{scheme}://{}", http::reachable(tables)),
        proxies: config.proxies.clone(),
    };
    let admin = Data::new(Admin::new(service.clone(), admin_settings));
    let server =
        admin::listen(listener, admin.clone(), config.shutdown.shutdown_seconds.into()).map_err(failed)?;
    if has_console(config) {
        worker.run(&admin.clone().into_inner(), OnFailure::NONE, admin::record_history());
    }
    tracing::info!("operators are answered at http://{address}");
    if settings.test_mode {
        tracing::warn!(
            "TEST MODE: anyone who can reach http://{address} can delete and replace all stored data; \
             never start a server like this on data that matters"
        );
    }
    let url = format!("http://{}/console/", http::reachable(address));
    let console = has_console(config).then_some(ConsoleAddress { url, generated_token });
    Ok((Some((server, admin)), console))
}

/// Serves until SIGTERM, after which clients may get time to connect elsewhere, or until SIGINT or, if
/// configured, the end of standard input. Then finishes the requests in flight. `ready` is called once the
/// server accepts connections; if it fails, the server ends.
pub(crate) fn run(
    config: &Config,
    ready: impl FnOnce(&ListeningServer) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    System::new().block_on(async {
        // The signal handlers are installed before other processes can know of the server.
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Run)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Run)?;
        let stdin = if config.shutdown.until_stdin_closes { end_of_stdin() } else { Ok(Arc::default()) };
        let stdin = stdin.map_err(ServeError::Run)?;
        let stop = async move || {
            tokio::select! {
                _ = terminate.recv() => Stop::Drained,
                _ = interrupt.recv() => Stop::AtOnce,
                () = stdin.notified() => Stop::AtOnce,
            }
        };
        serve_until(config, stop, ready).await
    })
}

/// Reads standard input on a separate thread, and notifies at its end.
fn end_of_stdin() -> io::Result<Arc<Notify>> {
    let ended = Arc::<Notify>::default();
    let notify = Arc::clone(&ended);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let (mut stdin, mut ignored) = (io::stdin().lock(), [0; 1024]);
        loop {
            match stdin.read(&mut ignored) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process made standard input non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(STDIN_PAUSE),
                Ok(0) | Err(_) => break,
            }
        }
        notify.notify_one();
    })?;
    Ok(ended)
}

/// Serves until `stop` completes, on this thread and on threads that it starts. Does not handle signals.
#[cfg(feature = "testing")]
pub(crate) fn run_until(
    config: &Config,
    stop: impl Future<Output = ()> + 'static,
    ready: impl FnOnce(&ListeningServer),
) -> Result<(), ServeError> {
    let mut stop = Box::pin(stop);
    let stop = async move || {
        stop.as_mut().await;
        Stop::AtOnce
    };
    System::new().block_on(serve_until(config, stop, |listening| {
        ready(listening);
        Ok(())
    }))
}

/// Serves until `stop` completes. `stop` is called again while clients leave, to cut this time short.
async fn serve_until(
    config: &Config,
    mut stop: impl AsyncFnMut() -> Stop + 'static,
    ready: impl FnOnce(&ListeningServer) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let Running { server, admin, listening, drain, worker, lock } = tokio::select! {
        started = start(config) => started?,
        // Otherwise a stop signal would wait for a database that does not respond.
        _ = stop() => {
            tracing::info!("stopped before the server was ready");
            return Ok(());
        }
    };
    let handle = server.handle();
    let admin = admin.map(|(server, admin)| {
        let handle = server.handle();
        (actix_web::rt::spawn(server), handle, admin)
    });
    ready(&listening)?;
    let probes = admin.as_ref().map(|(_, _, admin)| admin.clone());
    let drain_time = Duration::from_secs(config.shutdown.drain_seconds.into());
    let shutdown_time = Duration::from_secs(config.shutdown.shutdown_seconds.into());
    let graceful = !shutdown_time.is_zero();
    let shutdown = Rc::<Cell<Option<Instant>>>::default();
    let began = Rc::clone(&shutdown);
    actix_web::rt::spawn(async move {
        let first = stop().await;
        if let Some(admin) = probes {
            admin.stop();
        }
        if first == Stop::Drained && !drain_time.is_zero() {
            tracing::info!("draining for {drain_time:?}: clients are asked to connect elsewhere");
            drain.send_replace(());
            tokio::select! {
                () = sleep(drain_time) => {}
                _ = stop() => {}
            }
        }
        tracing::info!("shutting down; waiting for requests in flight");
        began.set(Some(Instant::now()));
        // A graceful stop checks its connections only once a second, so the server stops at once without a
        // grace period.
        handle.stop(graceful).await;
    });
    let ended = server.await;
    // The admin listener ends last, so that probes see the shutdown until it is complete.
    if let Some((running, handle, admin)) = admin {
        let spent = shutdown.get().map_or(Duration::ZERO, |began| began.elapsed());
        // Operators' requests in flight get the rest of the time, at least until the first check.
        let rest = shutdown_time.saturating_sub(spent).max(ADMIN_STOP);
        let _ = timeout(rest, handle.stop(graceful)).await;
        // Closes the connections, so that operators' requests end and are audited before the stores close.
        running.abort();
        let _ = timeout(ADMIN_STOP, admin.connections.closed()).await;
    }
    if let Some(tracer) = &listening.service.tracer {
        tracer.flush();
    }
    worker.stop(STOP_TIMEOUT).await;
    listening.service.primary.close().await;
    drop(lock);
    ended.map_err(ServeError::Run)
}
