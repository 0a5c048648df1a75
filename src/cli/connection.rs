//! Connection strings in the format of the Azure SDKs.

use super::endpoint::is_origin;
use super::output::{Done, Problem};
use crate::auth::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// The table endpoint of the development account in the SDKs.
const DEVELOPMENT_TABLES: &str = "http://127.0.0.1:10002/devstoreaccount1";

/// A parsed connection string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConnectionString {
    pub account: String,
    /// In base64.
    pub key: String,
    /// The table endpoint of the account, if given, without a trailing slash.
    pub tables: Option<String>,
}

impl ConnectionString {
    /// Reads `AccountName=…;AccountKey=…`, or `UseDevelopmentStorage=true`.
    ///
    /// # Errors
    /// [`Problem`] if the account or its key is missing, or the endpoint is invalid.
    pub(crate) fn parse(text: &str) -> Done<Self> {
        let part = |wanted: &str| {
            let mut parts = text.split(';').filter_map(|part| part.trim().split_once('='));
            let value = parts.find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
            value.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
        };
        if part("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            let [account, key, tables] = [DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, DEVELOPMENT_TABLES];
            return Ok(Self { account: account.into(), key: key.into(), tables: Some(tables.into()) });
        }
        let (Some(account), Some(key)) = (part("AccountName"), part("AccountKey")) else {
            return Err(Problem("--connection-string: has no AccountName and AccountKey".into()));
        };
        let by_suffix = || {
            let scheme = part("DefaultEndpointsProtocol").unwrap_or("https");
            part("EndpointSuffix").map(|suffix| format!("{scheme}://{account}.table.{suffix}"))
        };
        let tables = part("TableEndpoint").map(|given| given.trim_end_matches('/').to_owned());
        let tables = tables.or_else(by_suffix);
        match tables.as_deref().is_none_or(is_origin) {
            true => Ok(Self { account: account.into(), key: key.into(), tables }),
            false => {
                Err(Problem("--connection-string: its endpoint must begin with http:// or https://".into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_sdks_find() {
        let tables = |rest: &str| {
            let text = format!("AccountName=abc; accountkey=AA==;{rest}");
            ConnectionString::parse(&text).map(|read| (read.account, read.key, read.tables)).map_err(|p| p.0)
        };
        for (rest, expected) in [
            ("", None),
            ("DefaultEndpointsProtocol=http", None),
            ("TableEndpoint=http://h:1/abc/;BlobEndpoint=http://x", Some("http://h:1/abc")),
            ("EndpointSuffix=example.com", Some("https://abc.table.example.com")),
            ("DefaultEndpointsProtocol=http;EndpointSuffix=a.b:8", Some("http://abc.table.a.b:8")),
            ("EndpointSuffix=a.b;TableEndpoint=https://h", Some("https://h")),
        ] {
            let expected = ("abc".to_owned(), "AA==".to_owned(), expected.map(str::to_owned));
            assert_eq!(tables(rest), Ok(expected), "{rest}");
        }
        for wrong in
            ["TableEndpoint=h:1", "TableEndpoint=http://h?x", "DefaultEndpointsProtocol=x;EndpointSuffix=a"]
        {
            assert!(tables(wrong).is_err_and(|text| text.contains("endpoint")), "{wrong}");
        }
    }

    #[test]
    fn development_storage_is_the_account_that_everybody_knows() {
        let read = ConnectionString::parse("usedevelopmentstorage=TRUE;").unwrap();
        assert_eq!((read.account.as_str(), read.key.as_str()), (DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY));
        assert_eq!(read.tables.as_deref(), Some(DEVELOPMENT_TABLES));
        for wrong in ["UseDevelopmentStorage=false", "AccountName=abc", "AccountName=abc;AccountKey=", "x"] {
            assert!(ConnectionString::parse(wrong).is_err(), "{wrong}");
        }
    }
}
