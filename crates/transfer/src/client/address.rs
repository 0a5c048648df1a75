//! The address of a Table endpoint, and the credentials for it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{TransferError, TransferResult, usage};
use crate::protocol::auth::accounts::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// The suffix of an account's name at the endpoint of its secondary region.
const SECONDARY: &str = "-secondary";
/// The port where the emulator of Cosmos DB has its Table endpoint.
const COSMOS_EMULATOR: &str = ":8902";

#[derive(Debug, Clone)]
pub enum EndpointCredentials {
    /// SharedKeyLite (protocol §10.3).
    Key(Box<AccountKey>),
    /// The query string of a SAS.
    Sas(String),
    Token(String),
}

#[derive(Debug, Clone)]
pub struct Address {
    pub account: String,
    /// Scheme, host and, in path style, the account; without a trailing slash.
    pub tables: String,
    pub credentials: EndpointCredentials,
}

const NO_SIGNATURE: &str = "the address has no signature (sig=…); give a connection string instead";
const NO_ENDPOINT: &str = "the connection string has no TableEndpoint";
const NO_BASE64: &str = "the account key is not base64";

impl Address {
    /// Parses a connection string, or an `http(s)://` address with a SAS.
    pub(crate) fn parse(text: &str) -> TransferResult<Self> {
        match text.split_once('?') {
            _ if !text.starts_with("http://") && !text.starts_with("https://") => {}
            Some((tables, sas)) if is_origin(tables) && sas.contains("sig=") => {
                return Self::new(String::new(), Some(tables), Secret::Sas(sas.to_owned()));
            }
            _ => return Err(usage!("{NO_SIGNATURE}")),
        }
        let invalid = |reason| usage!("the connection string {reason}");
        let ConnectionString { account, secret, tables } = ConnectionString::parse(text).map_err(invalid)?;
        Self::new(account, tables.as_deref(), secret)
    }

    fn new(account: String, tables: Option<&str>, secret: Secret) -> TransferResult<Self> {
        let tables = match tables {
            Some(tables) => tables.trim_end_matches('/').to_owned(),
            None if account.is_empty() => return Err(usage!("{NO_ENDPOINT}")),
            // The public cloud, as in the SDKs.
            None => format!("https://{account}.table.core.windows.net"),
        };
        let account = if account.is_empty() { account_in(&tables).to_owned() } else { account };
        let credentials = match secret {
            Secret::Sas(sas) => EndpointCredentials::Sas(sas),
            Secret::Token(token) => EndpointCredentials::Token(token),
            Secret::Key(key) => {
                let bytes = STANDARD.decode(key).ok().filter(|bytes| !bytes.is_empty());
                let key =
                    bytes.and_then(AccountKey::new).ok_or_else(|| TransferError::Usage(NO_BASE64.into()))?;
                EndpointCredentials::Key(Box::new(key))
            }
        };
        Ok(Self { account, tables, credentials })
    }

    /// Returns the path of the endpoint: empty, or `/account` in path style.
    pub(crate) fn path(&self) -> &str {
        self.parts().2
    }

    /// Returns a form of the address that is the same for all spellings of the loopback host and of the default port.
    pub(crate) fn identity(&self) -> String {
        let (scheme, authority, path) = self.parts();
        let (host, port) = split_port(authority);
        let host = if is_loopback(host) { "localhost".to_owned() } else { host.to_ascii_lowercase() };
        let port = port.unwrap_or(if scheme == "https" { "443" } else { "80" });
        format!("{host}:{port}{path}")
    }

    pub(super) fn is_local(&self) -> bool {
        is_loopback(split_port(self.parts().1).0)
    }

    /// Returns the scheme, the host with its port, and the path.
    fn parts(&self) -> (&str, &str, &str) {
        let (scheme, rest) = self.tables.split_once("://").unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (scheme, authority, path)
    }

    /// Whether the credentials are a SAS for a range of keys, which hides all others.
    pub(crate) fn is_ranged(&self) -> bool {
        let EndpointCredentials::Sas(sas) = &self.credentials else { return false };
        let names = sas.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
        let mut names = names.map(str::to_ascii_lowercase);
        names.any(|name| ["spk", "srk", "epk", "erk"].contains(&name.as_str()))
    }

    pub(crate) const fn has_key(&self) -> bool {
        matches!(self.credentials, EndpointCredentials::Key(_))
    }

    /// Whether the endpoint is a secondary region, whose changes arrive late.
    pub(crate) fn is_secondary(&self) -> bool {
        let (_, authority, path) = self.parts();
        let host = authority.split('.').next().unwrap_or_default();
        [host, path].iter().any(|part| part.ends_with(SECONDARY))
    }

    /// Returns the time until which the SAS is valid.
    pub(crate) fn signature_expiry(&self) -> Option<String> {
        let EndpointCredentials::Sas(sas) = &self.credentials else { return None };
        let mut pairs = sas.split('&').filter_map(|pair| pair.split_once('='));
        let expiry = pairs.find(|(name, _)| name.eq_ignore_ascii_case("se"))?.1;
        Some(expiry.replace("%3A", ":").replace("%3a", ":"))
    }

    /// Whether the endpoint is Cosmos DB for Table, which has no order of rows and no Timestamp
    /// filters.
    pub(crate) fn is_cosmos(&self) -> bool {
        let (_, authority, _) = self.parts();
        authority.contains(".table.cosmos.")
            || authority.contains(".table.cosmosdb.")
            || authority.ends_with(COSMOS_EMULATOR)
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Returns the account in an address: its path or, without one, the first label of its host.
fn account_in(tables: &str) -> &str {
    let rest = tables.split_once("://").map_or(tables, |(_, rest)| rest);
    match rest.split_once('/') {
        Some((_, path)) => path.rsplit('/').next().unwrap_or_default(),
        None => rest.split(['.', ':']).next().unwrap_or_default(),
    }
    .trim_end_matches(SECONDARY)
}

/// The table endpoint of the development account in the SDKs.
const DEVELOPMENT_TABLES: &str = "http://127.0.0.1:10002/devstoreaccount1";

/// A credential as text, which `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    Key(String),
    Sas(String),
    Token(String),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct ConnectionString {
    /// Empty if a SAS or token is given without an account.
    pub account: String,
    pub secret: Secret,
    /// The table endpoint of the account, if given, without a trailing slash.
    pub tables: Option<String>,
}

pub const NO_KEY: &str = "has no AccountName and AccountKey";
const NO_ORIGIN: &str = "its endpoint must begin with http:// or https://";

impl ConnectionString {
    /// Parses `AccountName=…;AccountKey=…`, or `UseDevelopmentStorage=true`. `SharedAccessSignature=…`, or
    /// `BearerToken=…`, which SDKs do not know, may replace the key.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let part = |wanted: &str| {
            let mut parts = text.split(';').filter_map(|part| part.trim().split_once('='));
            let value = parts.find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
            value.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
        };
        if part("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            let [account, key, tables] = [DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, DEVELOPMENT_TABLES];
            let secret = Secret::Key(key.into());
            return Ok(Self { account: account.into(), secret, tables: Some(tables.into()) });
        }
        let account = part("AccountName").unwrap_or_default();
        let from_suffix = || {
            let scheme = part("DefaultEndpointsProtocol").unwrap_or("https");
            part("EndpointSuffix").map(|suffix| format!("{scheme}://{account}.table.{suffix}"))
        };
        let tables = part("TableEndpoint").map(|given| given.trim_end_matches('/').to_owned());
        let tables = tables.or_else(from_suffix);
        let key = part("AccountKey").filter(|_| !account.is_empty()).map(|key| Secret::Key(key.into()));
        let sas = || part("SharedAccessSignature").map(|sas| Secret::Sas(sas.trim_start_matches('?').into()));
        let token = || part("BearerToken").map(|token| Secret::Token(token.into()));
        let secret = key.or_else(sas).or_else(token).ok_or(NO_KEY)?;
        match tables.as_deref().is_none_or(is_origin) {
            true => Ok(Self { account: account.into(), secret, tables }),
            false => Err(NO_ORIGIN),
        }
    }
}

/// Whether a text is an HTTP origin, perhaps with a path.
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['?', '#', ';', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_in_path_style_and_host_style() {
        for (text, tables, account, path) in [
            ("AccountName=abc;AccountKey=AA==", "https://abc.table.core.windows.net", "abc", ""),
            (
                "AccountName=abc;AccountKey=AA==;TableEndpoint=http://h:1/abc/",
                "http://h:1/abc",
                "abc",
                "/abc",
            ),
            ("http://h:1/abc?sv=1&sig=x", "http://h:1/abc", "abc", "/abc"),
            ("https://abc.table.cosmos.azure.com/?sig=x", "https://abc.table.cosmos.azure.com", "abc", ""),
            ("TableEndpoint=https://a.b;SharedAccessSignature=?sig=x", "https://a.b", "a", ""),
            (
                "https://abc-secondary.table.core.windows.net?sig=x",
                "https://abc-secondary.table.core.windows.net",
                "abc",
                "",
            ),
            ("http://h:1/abc-secondary?sig=x", "http://h:1/abc-secondary", "abc", "/abc-secondary"),
            ("TableEndpoint=https://a.b;AccountName=c;BearerToken=x", "https://a.b", "c", ""),
        ] {
            let address = Address::parse(text).unwrap();
            let found = (address.tables.as_str(), address.account.as_str(), address.path());
            assert_eq!(found, (tables, account, path), "{text}");
            assert_eq!(address.is_cosmos(), text.contains("cosmos"), "{text}");
        }
        let identity = |tables: &str| Address::parse(&format!("{tables}?sig=x")).unwrap().identity();
        for other in ["http://127.0.0.1/abc", "http://[::1]:80/abc", "http://LOCALHOST:80/abc"] {
            assert_eq!(identity(other), identity("http://localhost/abc"));
            assert!(Address::parse(&format!("{other}?sig=x")).unwrap().is_local(), "{other}");
        }
        for other in
            ["http://localhost:81/abc", "https://localhost/abc", "http://localhost/abd", "http://h/abc"]
        {
            assert_ne!(identity(other), identity("http://localhost/abc"));
        }
        let wrong = |text| Address::parse(text).unwrap_err().to_string();
        assert_eq!(wrong("http://h/abc"), NO_SIGNATURE);
        assert_eq!(wrong("AccountName=a;AccountKey=%"), NO_BASE64);
        assert_eq!(wrong("BearerToken=a"), NO_ENDPOINT);
        assert_eq!(wrong("nonsense"), format!("the connection string {NO_KEY}"));
    }

    #[test]
    fn addresses_are_those_that_sdks_find() {
        let tables = |rest: &str| {
            let text = format!("AccountName=abc; accountkey=AA==;{rest}");
            ConnectionString::parse(&text).map(|read| (read.account, read.secret, read.tables))
        };
        for (rest, expected) in [
            ("", None),
            ("DefaultEndpointsProtocol=http", None),
            ("TableEndpoint=http://h:1/abc/;BlobEndpoint=http://x", Some("http://h:1/abc")),
            ("EndpointSuffix=example.com", Some("https://abc.table.example.com")),
            ("DefaultEndpointsProtocol=http;EndpointSuffix=a.b:8", Some("http://abc.table.a.b:8")),
            ("EndpointSuffix=a.b;TableEndpoint=https://h", Some("https://h")),
        ] {
            let expected = ("abc".to_owned(), Secret::Key("AA==".to_owned()), expected.map(str::to_owned));
            assert_eq!(tables(rest), Ok(expected), "{rest}");
        }
        for wrong in
            ["TableEndpoint=h:1", "TableEndpoint=http://h?x", "DefaultEndpointsProtocol=x;EndpointSuffix=a"]
        {
            assert!(tables(wrong).is_err_and(|error| error == NO_ORIGIN), "{wrong}");
        }
    }

    #[test]
    fn development_storage_is_the_account_that_everybody_knows() {
        let read = ConnectionString::parse("usedevelopmentstorage=TRUE;").unwrap();
        assert_eq!(
            (read.account.as_str(), read.secret),
            (DEVELOPMENT_ACCOUNT, Secret::Key(DEVELOPMENT_KEY.into()))
        );
        assert_eq!(read.tables.as_deref(), Some(DEVELOPMENT_TABLES));
        for wrong in ["UseDevelopmentStorage=false", "AccountName=abc", "AccountName=abc;AccountKey=", "x"] {
            assert!(ConnectionString::parse(wrong).is_err(), "{wrong}");
        }
    }
}
