//! Settings that commands share with the server: the address by which clients reach the server, and the key that signs.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};

use super::database::read;
use super::output::{Done, Problem};
use crate::operator::accounts;
use crate::protocol::auth::accounts::AccountKey;
use crate::protocol::auth::key_encryption::KeySlot;
use crate::server::config::{AccountSettings, DatabaseSettings, ListenSettings, Mistakes, secret};
use crate::server::http::reachable;
use crate::store::database::{self, Database};
use crate::transfer::client::address::{ConnectionString, NO_KEY, Secret, is_origin};

/// The address by which clients reach the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndpointSettings {
    /// Address by which clients reach the server, such as https://tables.example.com [default: the
    /// address to listen on]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,

    #[command(flatten)]
    pub port: Port,
}

/// The port that the server listens on, and whether it uses TLS.
#[derive(Debug, Clone, Args)]
pub(crate) struct Port {
    #[command(flatten)]
    pub listen: ListenSettings,

    /// PEM file with the server's certificate; with it, the address begins with https://
    #[arg(long, env = "ROWHOUSE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
}

impl Port {
    /// Returns the scheme, host and port at which this machine reaches the server.
    pub(crate) fn origin(&self) -> Done<String> {
        let encrypted = self.tls_cert.as_ref().is_some_and(|path| !path.as_os_str().is_empty());
        let scheme = if encrypted { "https" } else { "http" };
        Ok(format!("{scheme}://{}", reachable(self.listen.address()?)))
    }
}

impl EndpointSettings {
    /// Returns the scheme, host and port, without a trailing slash.
    pub(crate) fn origin(&self) -> Done<String> {
        match &self.endpoint {
            None => self.port.origin(),
            Some(given) => {
                let origin = given.trim_end_matches('/');
                let refuse = |must: &str| Err(Problem(format!("--endpoint {given}: must {must}")));
                match origin.split_once("://") {
                    _ if !is_origin(origin) => refuse("begin with http:// or https://"),
                    // The account is appended as the path.
                    Some((_, host)) if host.contains('/') => refuse("have no path"),
                    _ => Ok(origin.to_owned()),
                }
            }
        }
    }
}

/// The number of a key, as operators write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyNumber {
    #[value(name = "1")]
    First,
    #[value(name = "2")]
    Second,
}

impl From<KeyNumber> for KeySlot {
    fn from(slot: KeyNumber) -> Self {
        match slot {
            KeyNumber::First => KeySlot::First,
            KeyNumber::Second => KeySlot::Second,
        }
    }
}

/// The source of the key: given directly, or taken from the server's settings or its database.
#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// Connection string, as for SDKs: AccountName=…;AccountKey=…, or UseDevelopmentStorage=true
    #[arg(long, env = "ROWHOUSE_CONNECTION_STRING", hide_env_values = true)]
    connection_string: Option<String>,
    /// File that holds the connection string
    #[arg(long, env = "ROWHOUSE_CONNECTION_STRING_FILE")]
    connection_string_file: Option<PathBuf>,
    /// The account to sign for [default: the first account in the settings]
    #[arg(long, env = "ROWHOUSE_ACCOUNT")]
    account: Option<String>,
    /// The account's key, in base64
    #[arg(long, env = "ROWHOUSE_ACCOUNT_KEY", hide_env_values = true)]
    key: Option<String>,
    /// File that holds the key
    #[arg(long, env = "ROWHOUSE_ACCOUNT_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Number of the account's key to use, if the keys come from the settings or the database [default: 1]
    #[arg(long, value_enum)]
    key_slot: Option<KeyNumber>,
    #[command(flatten)]
    accounts: AccountSettings,
    #[command(flatten)]
    storage: DatabaseSettings,
}

/// The account that signs, with its key.
pub(crate) struct Signer {
    pub account: String,
    pub key: AccountKey,
    /// The table endpoint of the account, if a connection string contains it.
    pub tables: Option<String>,
}

impl KeyArguments {
    /// Returns the account and the key. The database is read only if the key is given nowhere else.
    pub(crate) async fn signer(&self) -> Done<Signer> {
        let text = secret("--connection-string", &self.connection_string, &self.connection_string_file)?;
        let key = secret("--key", &self.key, &self.key_file)?;
        let account = self.account.as_deref().filter(|account| !account.is_empty());
        if self.key_slot.is_some() && (text.is_some() || key.is_some()) {
            return Err(Problem(
                "--key-slot: chooses one of the server's keys, but --key or --connection-string gives a key \
                 already"
                    .into(),
            ));
        }
        if let Some(text) = text {
            let refuse = |error: &str| Problem(format!("--connection-string: {error}"));
            let ConnectionString { account: own, secret, tables } =
                ConnectionString::parse(&text).map_err(refuse)?;
            let Secret::Key(of_string) = secret else { return Err(refuse(NO_KEY)) };
            let other = account.filter(|account| *account != own);
            return match (key, other) {
                (Some(_), _) => Err(Problem("--connection-string and --key: give one of the two".into())),
                (None, Some(other)) => {
                    Err(Problem(format!("--connection-string: is for the account {own}, not for {other}")))
                }
                (None, None) => {
                    Ok(Signer { account: own, key: decode_key(&of_string, "--connection-string")?, tables })
                }
            };
        }
        let (account, key) = match (key, account) {
            (Some(key), Some(account)) => (account.to_owned(), decode_key(&key, "--key")?),
            (Some(_), None) => return Err(Problem("--key: give the account too, with --account".into())),
            (None, account) => self.find_in_settings(account).await?,
        };
        Ok(Signer { account, key, tables: None })
    }

    pub(crate) fn database(&self) -> Done<Database> {
        read(&self.storage)
    }

    async fn find_in_settings(&self, account: Option<&str>) -> Done<(String, AccountKey)> {
        let mut mistakes = Mistakes::default();
        let holders = self.accounts.read(Vec::new(), &mut mistakes);
        let database = self.storage.read(&mut mistakes);
        let (holders, database) = mistakes.into_result(holders.zip(database))?;
        let slot = KeySlot::from(self.key_slot.unwrap_or(KeyNumber::First)).index();
        let name =
            account.map(str::to_owned).or_else(|| holders.accounts.sample().map(|(n, _)| n.to_owned()));
        let none = "give a key with --key and --account, or with --connection-string";
        let name = name.ok_or_else(|| {
            Problem(format!("--account is required, because the settings name no account; or {none}"))
        })?;
        if let Some(keys) = holders.accounts.keys(&name) {
            let key = keys.get(slot).cloned();
            let key = key.ok_or_else(|| Problem(format!("the account {name} has no second key")))?;
            return Ok((name, key));
        }
        let Some(master) = &holders.master_key else {
            return Err(Problem(format!("the settings have no account {name}; {none}")));
        };
        let keys = accounts::keys(&database::open_to_read(&database).await?, master, &name).await?;
        let [first, second] = keys;
        let bytes = if slot == 0 { first } else { second };
        let key = AccountKey::new(bytes).ok_or_else(|| Problem("the key cannot be used".into()))?;
        Ok((name, key))
    }
}

fn decode_key(text: &str, flag: &str) -> Done<AccountKey> {
    let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| !bytes.is_empty());
    bytes.and_then(AccountKey::new).ok_or_else(|| Problem(format!("{flag}: the key is empty or not base64")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(endpoint: Option<&str>, listen: &str) -> Result<String, String> {
        let listen = ListenSettings { listen: listen.into() };
        let port = Port { listen, tls_cert: None };
        let settings = EndpointSettings { endpoint: endpoint.map(str::to_owned), port };
        settings.origin().map_err(|problem| problem.0)
    }

    #[test]
    fn the_endpoint_is_what_is_given_or_where_the_server_listens() {
        assert_eq!(origin(None, "0.0.0.0:80").as_deref(), Ok("http://127.0.0.1:80"));
        assert_eq!(origin(None, "[::]:80").as_deref(), Ok("http://[::1]:80"));
        assert_eq!(origin(None, "10.1.2.3:80").as_deref(), Ok("http://10.1.2.3:80"));
        assert_eq!(origin(Some("https://a.b/"), "x").as_deref(), Ok("https://a.b"));
        for wrong in ["a.b", "ftp://a", "https://", "http://a;AccountKey=x", "http://a?b", "http://h:1/abc"] {
            assert!(
                origin(Some(wrong), "127.0.0.1:1").is_err_and(|text| text.contains("--endpoint")),
                "{wrong}"
            );
        }
    }
}
