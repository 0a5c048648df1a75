//! Connection strings in the format of the Azure SDKs.

use crate::protocol::auth::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// The table endpoint of the development account in the SDKs.
const DEVELOPMENT_TABLES: &str = "http://127.0.0.1:10002/devstoreaccount1";

/// A credential as text. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// An account key in base64.
    Key(String),
    /// The query string of a SAS.
    Sas(String),
    /// A bearer token.
    Token(String),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A parsed connection string.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectionString {
    /// Empty if a SAS or token is given without it.
    pub account: String,
    pub secret: Secret,
    /// The table endpoint of the account, if given, without a trailing slash.
    pub tables: Option<String>,
}

/// Why a connection string is invalid: it has no key.
pub const NO_KEY: &str = "has no AccountName and AccountKey";
/// Why a connection string is invalid: its endpoint is not an HTTP URL.
const NO_ORIGIN: &str = "its endpoint must begin with http:// or https://";

impl ConnectionString {
    /// Reads `AccountName=…;AccountKey=…`, or `UseDevelopmentStorage=true`. In place of the key may
    /// stand `SharedAccessSignature=…`, or `BearerToken=…`, which SDKs do not know.
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
        let by_suffix = || {
            let scheme = part("DefaultEndpointsProtocol").unwrap_or("https");
            part("EndpointSuffix").map(|suffix| format!("{scheme}://{account}.table.{suffix}"))
        };
        let tables = part("TableEndpoint").map(|given| given.trim_end_matches('/').to_owned());
        let tables = tables.or_else(by_suffix);
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

/// Whether a text is the beginning of an HTTP URL.
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['?', '#', ';', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

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
