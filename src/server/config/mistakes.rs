//! Invalid settings, collected so that all are reported at once, and secrets, which are given inline or in files.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::protocol::auth::accounts::AccountError;
use crate::protocol::auth::bearer::AssignmentError;
use crate::server::file::read_text;
use crate::store::database::DatabaseUrlError;

/// An invalid setting, for the operator who starts the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("--listen {0}: not an address with a port, such as 127.0.0.1:10002")]
    Listen(String),
    #[error("--tls-cert, --tls-key: give both or none")]
    Tls,
    #[error("--trusted-proxies: {0}")]
    Proxies(String),
    #[error("--host-suffix {0}: must be a name such as tables.example.com, without a port")]
    HostSuffix(String),
    #[error("--otlp-endpoint: must be an address that begins with http:// or https://")]
    OtlpEndpoint,
    #[error(
        "--otlp-headers: must be valid HTTP headers as name=value, separated by ',', with \
         percent-encoded values"
    )]
    OtlpHeaders,
    #[error("--trace-ratio: must be a number from 0 to 1")]
    TraceRatio,
    #[error("--admin-listen {0}: not an address with a port, such as 127.0.0.1:10003")]
    AdminListen(String),
    #[error("--admin-listen {0}: other machines can reach this address, so --admin-token is required")]
    AdminToken(SocketAddr),
    #[error("--admin-listen {0}: --listen uses this port too; choose another port")]
    AdminPort(SocketAddr),
    #[error("--test-mode: needs --admin-listen, the address to which test suites send their requests")]
    TestMode,
    #[error(
        "--admin-token: must have at least 16 characters and no spaces; `openssl rand -hex 16` \
         generates a token"
    )]
    WeakToken,
    #[error("{0}")]
    Database(#[from] DatabaseUrlError),
    #[error(
        "--oidc-issuer: must be a URL that begins with https://, or with http:// if --oidc-over-http is given, \
         and must contain no user name"
    )]
    Issuer,
    #[error("--oidc-roles: {0}")]
    Roles(#[from] AssignmentError),
    #[error("--accounts: {0}")]
    Accounts(#[from] AccountError),
    #[error(
        "--extended-queries {0:?}: is not an account in --accounts; for an account in the database, use \
         `rowhouse account queries`"
    )]
    ExtendedQueries(String),
    #[error("{0}: must be 32 bytes in base64; `openssl rand -base64 32` generates such a key")]
    MasterKey(&'static str),
    #[error("--old-master-key: needs --master-key, the key that replaces it")]
    OldMasterKey,
    #[error(
        "--listen {0}: other machines can reach this address, and could use the well-known development \
         account, because no other account is set; set --accounts (ROWHOUSE_ACCOUNTS) or --master-key, or \
         allow it with --allow-development-account (ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true)"
    )]
    Development(SocketAddr),
    #[error(
        "--keep-deleted {0}: must be 0, or a number of seconds, minutes, hours, days or weeks such as 7d"
    )]
    KeepDeleted(String),
    #[error(
        "--log {0}: must be a level (error, warn, info, debug, trace) or a filter such as \
         info,rowhouse=debug"
    )]
    Log(String),
    #[error("{0} and {0}-file: give one of the two")]
    Both(&'static str),
    #[error("{flag}-file {}: {reason}", path.display())]
    File { flag: &'static str, path: PathBuf, reason: String },
}

/// All invalid settings, one per line.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) struct Mistakes(Vec<ConfigError>);

impl std::fmt::Display for Mistakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigError> for Mistakes {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl Mistakes {
    /// Returns the value, or records the mistake and returns `None`.
    pub(crate) fn record<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }

    /// Returns the value, unless mistakes were recorded.
    pub(crate) fn unless<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

/// Returns a secret that is given inline or in a file. A blank inline value counts as `None`, which some
/// callers refuse.
pub(crate) fn secret(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, ConfigError> {
    let value = value.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let file = file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let (path, text) = match (value, file) {
        (Some(_), Some(_)) => return Err(ConfigError::Both(flag)),
        (value, None) => return Ok(value.map(str::to_owned)),
        (None, Some(path)) => (path, read_text(path)),
    };
    let wrong = |reason: String| ConfigError::File { flag, path: path.clone(), reason };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    // An empty file must not count as missing, because then the development account would be served.
    if text.trim().is_empty() {
        return Err(wrong("the file is empty".into()));
    }
    Ok(Some(text.trim().to_owned()))
}
