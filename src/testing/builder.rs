//! Configuration of a test server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{Account, Server, ServerError};
use crate::protocol::auth::AccountSet;
use crate::server::config::{
    Config, DatabaseSettings, DatabaseUrl, Mistakes, ServingSettings, ShutdownSettings, StorageSettings,
};
use crate::server::http::Proxies;

/// Configures and starts a [`Server`].
#[derive(Debug, Clone)]
pub struct Builder {
    accounts: Vec<Account>,
    database_url: String,
    port: u16,
    host_suffix: Option<String>,
    extended_queries: bool,
}

impl Server {
    /// Starts a server in memory with the development account, and returns once it is ready.
    ///
    /// # Errors
    /// Returns [`ServerError`] if the system provides no port, thread or memory.
    pub fn start() -> Result<Self, ServerError> {
        Self::builder().start()
    }

    /// Returns a builder, for a server with other accounts or another database.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            accounts: Vec::new(),
            database_url: "sqlite::memory:".into(),
            port: 0,
            host_suffix: None,
            extended_queries: false,
        }
    }
}

impl Builder {
    /// Adds an account. [`Server::connection_string`] is for the first one. Without any, the server
    /// has the development account.
    pub fn account(mut self, account: Account) -> Self {
        self.accounts.push(account);
        self
    }

    /// Stores the tables in another database instead of in memory: `sqlite://FILE`, or
    /// `postgres://…` to test against the same kind of database as in production. Existing data is
    /// kept, at start and at stop.
    pub fn database_url(mut self, url: impl Into<String>) -> Self {
        self.database_url = url.into();
        self
    }

    /// Listens on this port instead of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Also serves host names of the form `account.suffix`.
    pub fn host_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.host_suffix = Some(suffix.into());
        self
    }

    /// Lets clients of all accounts use extended queries, which the service answers with 501.
    pub fn extended_queries(mut self) -> Self {
        self.extended_queries = true;
        self
    }

    /// Starts the server, and returns once it is ready.
    ///
    /// # Errors
    /// Returns [`ServerError`] for invalid accounts or addresses, a port that is taken, and a
    /// database that does not answer.
    pub fn start(self) -> Result<Server, ServerError> {
        let config = self.config()?;
        let mut accounts = self.accounts.into_iter();
        let first = accounts.next().unwrap_or_else(Account::development);
        Server::run(config, first, accounts.collect())
    }

    fn config(&self) -> Result<Config, ServerError> {
        let suffixes = self.host_suffix.iter().map(|s| s.trim_start_matches('.').to_owned()).collect();
        let mut accounts = match self.accounts.is_empty() {
            true => AccountSet::development(suffixes),
            false => AccountSet::parse(&Account::setting(&self.accounts), suffixes)
                .map_err(|error| ServerError::Accounts(error.into()))?,
        };
        let names: Vec<String> = accounts.names().into_iter().map(str::to_owned).collect();
        for name in names {
            accounts.set_extended_queries(&name, self.extended_queries);
        }
        let url = DatabaseUrl { database_url: Some(self.database_url.clone()), database_url_file: None };
        let database = DatabaseSettings { url, ..DatabaseSettings::default() };
        let mut mistakes = Mistakes::default();
        let database = StorageSettings::new(database, 8, 64).read(&mut mistakes);
        let database = mistakes.into_result(database).map_err(|error| ServerError::Settings(error.into()))?;
        Ok(Config {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port),
            tls: None,
            database,
            admin: None,
            accounts,
            is_development: self.accounts.is_empty(),
            master_key: None,
            trust: None,
            proxies: Proxies::default(),
            serving: ServingSettings {
                workers: Some(1),
                busy_poll: true,
                max_clients: 10_000,
                max_filter_comparisons: 1000,
                head_seconds: 20,
                body_seconds: 25,
                max_body_memory: 256,
                max_requests_per_second: None,
            },
            keep_deleted: 0,
            // A server for tests stops at once.
            shutdown: ShutdownSettings { drain_seconds: 0, shutdown_seconds: 0, until_stdin_closes: false },
            slow_request: Duration::from_secs(1),
            traces: None,
        })
    }
}
