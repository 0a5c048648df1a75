//! Starts and stops a server with its background tasks.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use actix_web::dev::Server;
use actix_web::rt::System;
use actix_web::web::Data;
use tokio::signal::unix::{SignalKind, signal};

use crate::observe::metrics::{METRICS, process};
use crate::observe::trace::Tracer;
use crate::operator::accounts::{Follower, LoadError, ReplicaRules};
use crate::operator::upkeep;
use crate::protocol::model::Ticks;
use crate::server::admin::{self, Admin, AdminSettings, ConsoleMode};
use crate::server::config::{Config, Database};
use crate::server::http::{self, Edge, Tls, TlsError, TlsFiles};
use crate::service::{BodyMemory, Issuer, RecentRequests, Service, Throttle, VersionClock, index_builds};
use crate::store::postgres::{self, ConnectionDemand, DistributionError, PgStore, RespreadError, StartError};
use crate::store::sqlite::{Location, OpenError, ServerLock, SqliteOptions, SqliteStore};
use crate::store::{Backend, Inspection, Store};

/// Interval of checks for deleted tables, and of the count of those to be purged.
const PURGE_IDLE: Duration = Duration::from_secs(5);
/// Pause after a purge step, as a multiple of its duration: requests have the processors and the
/// disk to themselves for that long.
const PURGE_REST: u32 = 19;
/// The minimum pause after a purge step.
const PURGE_PAUSE: Duration = Duration::from_millis(5);
/// Poll interval for changes of accounts.
const FOLLOW_PAUSE: Duration = Duration::from_secs(2);

/// The beginning of the line on standard output that reports that the server is ready. Tools wait
/// for it.
pub(crate) const READY: &str = "Rowhouse is ready at";

/// Why a server did not start or failed, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error(
        "there is no file {0}; the first start makes it, as do `rowhouse migrate` and `rowhouse account add`"
    )]
    Missing(String),
    #[error("{0}")]
    Sqlite(#[from] OpenError),
    #[error("{0}")]
    Postgres(#[from] StartError),
    #[error("{0}")]
    Distribution(#[from] DistributionError),
    #[error("{0}")]
    Respread(#[from] RespreadError),
    #[error("{0}: {1}")]
    Tls(&'static str, TlsError),
    #[error("{0}")]
    Accounts(#[from] LoadError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("the server failed: {0}")]
    Run(std::io::Error),
}

impl AppError {
    /// What to do, where that is known of this error.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            AppError::Postgres(error) => error.advice(),
            _ => None,
        }
    }
}

/// A started server that accepts connections.
struct Running {
    server: Server,
    /// The admin listener, if there is one.
    admin: Option<(Server, Data<Admin>)>,
    listening: ListeningServer,
    /// Held until the server has ended.
    lock: Option<ServerLock>,
}

/// The address and the service of a running server.
#[derive(Clone)]
pub(crate) struct ListeningServer {
    /// The address that it listens on, with the actual port.
    pub address: SocketAddr,
    /// The service that answers requests.
    pub service: Arc<Service>,
}

/// Opens the database without its replica, and migrates the schema.
///
/// # Errors
/// [`AppError`], to be shown to the operator.
pub(crate) async fn open_primary(database: &Database) -> Result<Store, AppError> {
    Ok(open(database).await?.0)
}

/// As [`open_primary`], but does not create a missing database file: its name may be misspelt.
///
/// # Errors
/// [`AppError`], to be shown to the operator.
pub(crate) async fn open_existing(database: &Database) -> Result<Store, AppError> {
    match database.missing_file() {
        Some(path) => Err(AppError::Missing(path.display().to_string())),
        None => open_primary(database).await,
    }
}

/// Opens the database for reading alone: it is neither created nor migrated, and nothing is written to it.
///
/// # Errors
/// [`AppError`], to be shown to the operator; it says what is missing.
pub(crate) async fn open_to_read(database: &Database) -> Result<Store, AppError> {
    if let Some(path) = database.missing_file() {
        return Err(AppError::Missing(path.display().to_string()));
    }
    Ok(match database {
        Database::Sqlite(options) => Store::Sqlite(SqliteStore::open_to_read(options)?),
        Database::Postgres { options, .. } => {
            Store::Postgres(Box::new(PgStore::open_to_read(options).await?))
        }
    })
}

/// Inspects the database without changing it.
///
/// # Errors
/// [`AppError`] if the database cannot be inspected.
pub(crate) async fn inspect_primary(database: &Database) -> Result<Inspection, AppError> {
    Ok(match database {
        Database::Sqlite(options) => SqliteStore::inspect(&options.location)?,
        Database::Postgres { options, .. } => postgres::inspect(options).await?,
    })
}

/// Inspects the read replica, if there is one.
pub(crate) async fn inspect_replica(database: &Database) -> Option<Result<Inspection, AppError>> {
    match database {
        Database::Postgres { replica: Some(options), .. } => {
            Some(postgres::inspect(options).await.map_err(AppError::Postgres))
        }
        _ => None,
    }
}

/// Compares the connections that a server with these settings may open with the `allowed` ones;
/// `None` for SQLite.
pub(crate) fn connection_demand(config: &Config, allowed: u32) -> Option<ConnectionDemand> {
    let Database::Postgres { options, .. } = &config.database else { return None };
    let threads = match config.workers {
        Some(workers) => u32::from(workers),
        None => available_parallelism().map_or(1, |threads| u32::try_from(threads.get()).unwrap_or(u32::MAX)),
    };
    Some(ConnectionDemand { most: options.most_connections(threads), allowed })
}

/// Logs how many connections this server may open, and how many the database allows.
async fn warn_of_connections(config: Config, service: Arc<Service>) {
    let Store::Postgres(store) = &service.primary else { return };
    let demand = match store.allowed_connections().await {
        Ok(allowed) => connection_demand(&config, allowed),
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

/// Locks a SQLite file against other servers; `None` for other databases.
///
/// # Errors
/// [`AppError::Sqlite`] if a server has it.
pub(crate) fn lock(database: &Database) -> Result<Option<ServerLock>, AppError> {
    match database {
        Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => Ok(ServerLock::take(path)?),
        _ => Ok(None),
    }
}

/// Opens the database and, if there is one, its read replica.
async fn open(database: &Database) -> Result<(Store, Option<Store>), AppError> {
    Ok(match database {
        Database::Sqlite(options) => (Store::Sqlite(SqliteStore::open(options)?), None),
        Database::Postgres { options, replica } => {
            let primary = PgStore::connect(options.clone()).await?;
            let replica = replica.as_ref().map(|replica| primary.replica(replica)).transpose()?;
            (Store::Postgres(Box::new(primary)), replica.map(|store| Store::Postgres(Box::new(store))))
        }
    })
}

fn has_console(config: &Config) -> bool {
    config.admin.as_ref().is_some_and(|admin| admin.console != ConsoleMode::Off)
}

/// Opens the database and starts to listen.
async fn start(config: &Config) -> Result<Running, AppError> {
    process::started();
    let lock = lock(&config.database)?;
    let (primary, secondary) = open(&config.database).await?;
    let service = Arc::new(Service {
        follower: Follower::start(&primary, config.master_key.clone(), config.accounts.clone()).await?,
        primary,
        secondary,
        replica_rules: ReplicaRules::default(),
        version_clock: VersionClock::default(),
        issuer: config.trust.clone().map(Issuer::new),
        limits: config.limits,
        body_memory: BodyMemory::new(config.limits.body_memory),
        max_requests_per_second: config.max_requests_per_second.and_then(NonZeroU32::new),
        throttle: Throttle::default(),
        max_comparisons: config.max_filter_comparisons,
        slow: config.slow_request,
        recent: has_console(config).then(RecentRequests::new),
        tracer: config.traces.clone().map(Tracer::start).transpose().map_err(AppError::Run)?,
    });
    actix_web::rt::spawn(purge_forever(service.clone()));
    let working = service.clone();
    actix_web::rt::spawn(async move { upkeep::run(&working.primary).await });
    let tidied = service.clone();
    actix_web::rt::spawn(async move { upkeep::tidy_views(&tidied.primary).await });
    actix_web::rt::spawn(warn_of_connections(config.clone(), service.clone()));
    actix_web::rt::spawn(follow_accounts(service.clone()));
    actix_web::rt::spawn(follow_replica(service.clone()));
    actix_web::rt::spawn(index_builds::build_indexes(service.clone()));
    actix_web::rt::spawn(index_builds::remove_indexes(service.clone()));
    let listen = |error| AppError::Listen(config.listen, error);
    let listener = http::bind(config.listen).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let mut server = Server::build()
        .disable_signals()
        .max_concurrent_connections(config.max_clients as usize)
        .shutdown_timeout(u64::from(config.shutdown_seconds));
    if let Some(workers) = config.workers {
        server = server.workers(usize::from(workers));
    }
    let tls = config.tls.clone().map(encryption).transpose()?;
    if let Some(tls) = tls.clone() {
        actix_web::rt::spawn(async move { tls.follow().await });
    }
    let admin = start_admin(config, &service, address)?;
    let edge =
        Edge { service: Arc::clone(&service), proxies: config.proxies.clone(), busy_poll: config.busy_poll };
    let server = http::listen(server, listener, edge, tls).map_err(listen)?.run();
    Ok(Running { server, admin, listening: ListeningServer { address, service }, lock })
}

fn encryption(files: TlsFiles) -> Result<Arc<Tls>, AppError> {
    let flags = files.flags();
    Tls::load(files).map(Arc::new).map_err(|error| AppError::Tls(flags, error))
}

/// Starts the admin listener, if it is configured.
fn start_admin(
    config: &Config,
    service: &Arc<Service>,
    tables: SocketAddr,
) -> Result<Option<(Server, Data<Admin>)>, AppError> {
    let Some(settings) = &config.admin else { return Ok(None) };
    let failed = |error| AppError::Listen(settings.listen, error);
    let listener = http::bind(settings.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let admin_settings = AdminSettings {
        token: settings.token.clone(),
        test_mode: settings.test_mode,
        console: settings.console,
        tables_endpoint: format!("{scheme}://{}", http::reachable(tables)),
        proxies: config.proxies.clone(),
    };
    let admin = Data::new(Admin::new(service.clone(), admin_settings));
    let server = admin::listen(listener, admin.clone()).map_err(failed)?;
    if has_console(config) {
        actix_web::rt::spawn(admin::record_history(admin.clone()));
    }
    tracing::info!("operators are answered at http://{address}");
    if settings.test_mode {
        tracing::warn!(
            "TEST MODE: anyone who can reach http://{address} can delete and replace all stored data; \
             never start a server like this on data that matters"
        );
    }
    Ok(Some((server, admin)))
}

/// Serves until SIGTERM or SIGINT, then finishes the requests in flight. `ready` is called once the
/// server accepts connections; if it fails, the server ends.
///
/// # Errors
/// [`AppError`], to be shown to the operator.
pub(crate) fn run(
    config: &Config,
    ready: impl FnOnce(SocketAddr) -> Result<(), AppError>,
) -> Result<(), AppError> {
    System::new().block_on(async {
        // The signal handlers are installed before others can know of the server.
        let mut terminate = signal(SignalKind::terminate()).map_err(AppError::Run)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(AppError::Run)?;
        let told = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        serve_until(config, told, |listening| ready(listening.address)).await
    })
}

/// Serves until `stop` completes, on this thread and those that it starts. Does not handle signals.
///
/// # Errors
/// [`AppError`], to be shown to the operator.
#[cfg(feature = "testing")]
pub(crate) fn run_until(
    config: &Config,
    stop: impl Future<Output = ()> + 'static,
    ready: impl FnOnce(&ListeningServer),
) -> Result<(), AppError> {
    System::new().block_on(serve_until(config, stop, |listening| {
        ready(listening);
        Ok(())
    }))
}

async fn serve_until(
    config: &Config,
    stop: impl Future<Output = ()> + 'static,
    ready: impl FnOnce(&ListeningServer) -> Result<(), AppError>,
) -> Result<(), AppError> {
    let mut stop = Box::pin(stop);
    let Running { server, admin, listening, lock } = tokio::select! {
        started = start(config) => started?,
        // Otherwise a stop signal would wait for a database that does not answer.
        () = &mut stop => {
            tracing::info!("stopped before the server was ready");
            return Ok(());
        }
    };
    let handle = server.handle();
    let admin = admin.map(|(server, admin)| {
        let handle = server.handle();
        actix_web::rt::spawn(server);
        (handle, admin)
    });
    ready(&listening)?;
    let probes = admin.as_ref().map(|(_, admin)| admin.clone());
    let graceful = config.shutdown_seconds > 0;
    actix_web::rt::spawn(async move {
        stop.await;
        tracing::info!("shutting down; waiting for requests in flight");
        if let Some(admin) = probes {
            admin.stop();
        }
        // A graceful stop checks its connections only once a second, so without a grace period the
        // server stops at once.
        handle.stop(graceful).await;
    });
    let ended = server.await;
    // The admin listener ends last, so that probes see the shutdown until it is complete.
    if let Some((handle, _)) = admin {
        handle.stop(false).await;
    }
    if let Some(tracer) = &listening.service.tracer {
        tracer.flush();
    }
    listening.service.primary.close().await;
    drop(lock);
    ended.map_err(AppError::Run)
}

/// Polls the CORS rules of the replica. While it does not answer, the known rules stay in use, and
/// the primary is served anyway.
async fn follow_replica(service: Arc<Service>) {
    let Some(replica) = &service.secondary else { return };
    let mut away = false;
    loop {
        match service.replica_rules.follow(replica).await {
            Ok(()) => away = false,
            Err(failure) if !away => {
                away = true;
                tracing::warn!(?failure, "the secondary database does not answer yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}

/// Polls the accounts, their CORS rules and limits. While the database does not answer, the known
/// ones stay in use.
async fn follow_accounts(service: Arc<Service>) {
    let mut away = false;
    loop {
        tokio::time::sleep(FOLLOW_PAUSE).await;
        match service.follower.follow(&service.primary).await {
            Ok(changed) => {
                away = false;
                if changed {
                    tracing::info!("the accounts have changed");
                }
            }
            Err(failure) if !away => {
                away = true;
                tracing::warn!(?failure, "the accounts cannot be read; the known ones stay in use");
            }
            Err(_) => {}
        }
    }
}

/// Purges the entities of deleted tables in small steps while the server runs. Several servers may
/// do so at once.
async fn purge_forever(service: Arc<Service>) {
    let mut counted: Option<Instant> = None;
    loop {
        let store = &service.primary;
        if counted.is_none_or(|at| at.elapsed() >= PURGE_IDLE) {
            if let Ok(tables) = store.backlog().await {
                METRICS.purge_backlog.set(i64::try_from(tables).unwrap_or(i64::MAX));
            }
            counted = Some(Instant::now());
        }
        let started = Instant::now();
        let pause = match store.purge(Ticks::now()).await {
            Ok(true) => (started.elapsed() * PURGE_REST).clamp(PURGE_PAUSE, PURGE_IDLE),
            Ok(false) => PURGE_IDLE,
            Err(failure) => {
                tracing::warn!(?failure, "purging deleted tables failed; will retry");
                PURGE_IDLE
            }
        };
        tokio::time::sleep(pause).await;
    }
}
