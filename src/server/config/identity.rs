//! Settings of the accounts, the master key, and the issuer of bearer tokens.

use std::path::PathBuf;

use clap::Args;
use ureq::http::Uri;

use super::is_url;
use super::mistakes::{Mistakes, secret};
use crate::protocol::auth::AccountSet;
use crate::protocol::auth::bearer::{Assignment, Trust};
use crate::protocol::auth::key_encryption::{MasterKey, MasterKeys};

/// The keys that encrypt the account keys in the database.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Accounts")]
pub(crate) struct MasterKeySettings {
    /// Master key, 32 bytes in base64, the same for every server; it encrypts the keys of the accounts in the
    /// database, and servers without it do not serve those accounts
    #[arg(long, env = "ROWHOUSE_MASTER_KEY", hide_env_values = true)]
    pub master_key: Option<String>,

    /// File that holds the master key
    #[arg(long, env = "ROWHOUSE_MASTER_KEY_FILE")]
    pub master_key_file: Option<PathBuf>,

    /// Previous master key, while you replace it; it decrypts stored keys, but encrypts none
    #[arg(long, env = "ROWHOUSE_OLD_MASTER_KEY", hide_env_values = true)]
    pub old_master_key: Option<String>,

    /// File that holds the previous master key
    #[arg(long, env = "ROWHOUSE_OLD_MASTER_KEY_FILE")]
    pub old_master_key_file: Option<PathBuf>,
}

impl MasterKeySettings {
    /// Returns the master key, if there is one, and the previous master key.
    pub(crate) fn read(&self) -> Result<Option<MasterKeys>, Mistakes> {
        let current = read_master_key("--master-key", &self.master_key, &self.master_key_file)?;
        let previous = read_master_key("--old-master-key", &self.old_master_key, &self.old_master_key_file)?;
        match (current, previous) {
            (Some(current), previous) => Ok(Some(MasterKeys { current, previous })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err("--old-master-key: needs --master-key, the key that replaces it".into()),
        }
    }
}

fn read_master_key(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<MasterKey>, Mistakes> {
    let Some(text) = secret(flag, value, file)? else { return Ok(None) };
    match MasterKey::parse(&text) {
        Some(key) => Ok(Some(key)),
        None => {
            let rule = "must be 32 bytes in base64; `openssl rand -base64 32` generates such a key";
            Err(format!("{flag}: {rule}").into())
        }
    }
}

/// The accounts of the settings.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Accounts")]
pub(crate) struct AccountSettings {
    /// Accounts with one or two keys each: name:base64key[:base64key2], separated by ';' [default: the
    /// well-known development account; none with --master-key]
    #[arg(long, env = "ROWHOUSE_ACCOUNTS", hide_env_values = true)]
    pub accounts: Option<String>,

    /// File that holds the accounts, separated by ';' or line ends
    #[arg(long, env = "ROWHOUSE_ACCOUNTS_FILE")]
    pub accounts_file: Option<PathBuf>,

    #[command(flatten)]
    pub master_key: MasterKeySettings,
}

/// The accounts of the settings whose clients may use extended queries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Accounts")]
pub(crate) struct QuerySettings {
    /// Names of the accounts in --accounts whose clients may use extended queries, separated by ','
    #[arg(long, env = "ROWHOUSE_EXTENDED_QUERIES", value_delimiter = ',')]
    pub extended_queries: Vec<String>,
}

impl QuerySettings {
    /// Enables extended queries for these accounts. All of them must be in the settings.
    pub(crate) fn apply(&self, accounts: &mut AccountSet) -> Result<(), Mistakes> {
        let given = self.extended_queries.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let mut unknown = given.filter(|name| !accounts.set_extended_queries(name, true));
        match unknown.next() {
            None => Ok(()),
            Some(name) => Err(format!(
                "--extended-queries {name:?}: is not an account in --accounts; for an account in the database, use \
                 `rowhouse account queries`"
            )
            .into()),
        }
    }
}

/// The accounts of the settings, and the master keys.
#[derive(Debug)]
pub(crate) struct Identities {
    /// The accounts of the settings. Without any account and without a master key, this is the development
    /// account.
    pub accounts: AccountSet,
    pub is_development: bool,
    pub master_key: Option<MasterKeys>,
}

impl AccountSettings {
    /// Reads the settings. If they are invalid, records the mistakes and returns `None`.
    pub(crate) fn read(&self, suffixes: Vec<String>, mistakes: &mut Mistakes) -> Option<Identities> {
        let master_key = mistakes.record(self.master_key.read());
        let given = mistakes.record(secret("--accounts", &self.accounts, &self.accounts_file));
        let parsed = match given? {
            Some(text) => {
                let parsed = AccountSet::parse(&text, suffixes.clone());
                Some(mistakes.record(parsed.map_err(|error| format!("--accounts: {error}")))?)
            }
            None => None,
        };
        let master_key = master_key?;
        let is_development = parsed.is_none() && master_key.is_none();
        let accounts = match parsed {
            Some(accounts) => accounts,
            None if is_development => AccountSet::development(suffixes),
            None => AccountSet::empty(suffixes),
        };
        Some(Identities { accounts, is_development, master_key })
    }
}

/// The audience of tokens for Azure Storage.
pub(crate) const DEFAULT_AUDIENCE: &str = "https://storage.azure.com";

/// The issuer whose tokens are accepted, and the roles of their bearers.
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
    /// Reads the settings. Returns `None` if no issuer is set.
    pub(crate) fn read(&self) -> Result<Option<Trust>, String> {
        let Some(issuer) = self.oidc_issuer.as_deref().map(str::trim).filter(|i| !i.is_empty()) else {
            return Ok(None);
        };
        let schemes: &[&str] = if self.oidc_over_http { &["https", "http"] } else { &["https"] };
        let has_user =
            issuer.parse::<Uri>().is_ok_and(|uri| uri.authority().is_some_and(|a| a.as_str().contains('@')));
        // A password in the URL would appear in the log.
        if !is_url(issuer, schemes) || has_user {
            return Err("--oidc-issuer: must be a URL that begins with https://, or with http:// if --oidc-over-http is \
                        given, and must contain no user name"
                .into());
        }
        let assignments = Assignment::parse_list(&self.oidc_roles);
        Ok(Some(Trust {
            issuer: issuer.to_owned(),
            audience: self.oidc_audience.clone(),
            assignments: assignments.map_err(|error| format!("--oidc-roles: {error}"))?,
            over_http: self.oidc_over_http,
        }))
    }
}
