//! Settings of bearer tokens.

use clap::Args;
use ureq::http::Uri;

use super::{ConfigError, is_address};
use crate::protocol::auth::bearer::{Assignment, Trust};

/// The audience of tokens for Azure Storage.
pub(super) const DEFAULT_AUDIENCE: &str = "https://storage.azure.com";

/// The issuer whose tokens are accepted, and their roles.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Bearer tokens")]
pub(crate) struct TrustSettings {
    /// OpenID Connect issuer whose bearer tokens the server accepts
    #[arg(long, env = "ROWHOUSE_OIDC_ISSUER")]
    pub oidc_issuer: Option<String>,

    /// Audience that tokens must have
    #[arg(long, env = "ROWHOUSE_OIDC_AUDIENCE", default_value = DEFAULT_AUDIENCE)]
    pub oidc_audience: String,

    /// Permissions of the bearers of tokens: principal=reader|contributor[@account[/table]], separated by ';'
    #[arg(long, env = "ROWHOUSE_OIDC_ROLES", default_value = "")]
    pub oidc_roles: String,

    /// Accept tokens over plain HTTP: for development, or behind a proxy that terminates TLS
    #[arg(long, env = "ROWHOUSE_OIDC_OVER_HTTP")]
    pub oidc_over_http: bool,
}

impl TrustSettings {
    /// Reads the settings. Returns `None` without an issuer.
    ///
    /// # Errors
    /// [`ConfigError::Issuer`], [`ConfigError::Roles`].
    pub(crate) fn read(&self) -> Result<Option<Trust>, ConfigError> {
        let Some(issuer) = self.oidc_issuer.as_deref().map(str::trim).filter(|i| !i.is_empty()) else {
            return Ok(None);
        };
        let schemes: &[&str] = if self.oidc_over_http { &["https", "http"] } else { &["https"] };
        let has_user =
            issuer.parse::<Uri>().is_ok_and(|uri| uri.authority().is_some_and(|a| a.as_str().contains('@')));
        // A password in the URL would appear in the log.
        if !is_address(issuer, schemes) || has_user {
            return Err(ConfigError::Issuer);
        }
        Ok(Some(Trust {
            issuer: issuer.to_owned(),
            audience: self.oidc_audience.clone(),
            assignments: Assignment::parse_list(&self.oidc_roles)?,
            over_http: self.oidc_over_http,
        }))
    }
}
