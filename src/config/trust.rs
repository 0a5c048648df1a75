//! Settings of who may come in by bearer token.

use clap::Args;

use super::{ConfigError, is_address};
use crate::auth::bearer::{Assignment, Trust};

/// The audience of tokens for the service.
pub(super) const DEFAULT_AUDIENCE: &str = "https://storage.azure.com";

/// Whose tokens are accepted.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrustSettings {
    /// OpenID Connect issuer whose bearer tokens are accepted
    #[arg(long, env = "ROWHOUSE_OIDC_ISSUER")]
    pub oidc_issuer: Option<String>,

    /// Audience that tokens must be meant for
    #[arg(long, env = "ROWHOUSE_OIDC_AUDIENCE", default_value = DEFAULT_AUDIENCE)]
    pub oidc_audience: String,

    /// principal=reader|contributor[@account[/table]], several separated by ';'
    #[arg(long, env = "ROWHOUSE_OIDC_ROLES", default_value = "")]
    pub oidc_roles: String,

    /// Accept tokens over plain HTTP: for development, or behind a proxy that ends TLS
    #[arg(long, env = "ROWHOUSE_OIDC_OVER_HTTP")]
    pub oidc_over_http: bool,
}

impl TrustSettings {
    /// The issuer, if there is one.
    ///
    /// # Errors
    /// [`ConfigError::Issuer`], [`ConfigError::Roles`].
    pub(crate) fn read(&self) -> Result<Option<Trust>, ConfigError> {
        let Some(issuer) = self.oidc_issuer.as_deref().map(str::trim).filter(|i| !i.is_empty()) else {
            return Ok(None);
        };
        let schemes: &[&str] = if self.oidc_over_http { &["https", "http"] } else { &["https"] };
        if !is_address(issuer, schemes) {
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
