//! Accounts of test servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};

use crate::protocol::auth::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// An account of a test server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// 3 to 24 lower-case letters and digits.
    pub name: String,
    /// In base64.
    pub key: String,
}

impl Account {
    /// Makes an account with a key that is derived from the name. The key is always the same, and
    /// not secret.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let key = STANDARD.encode(Sha512::digest(format!("test key of {name}")));
        Self { name, key }
    }

    /// Returns the development account, which client libraries use for
    /// `UseDevelopmentStorage=true`, with port 10002.
    pub fn development() -> Self {
        Self { name: DEVELOPMENT_ACCOUNT.into(), key: DEVELOPMENT_KEY.into() }
    }

    /// Formats the accounts for the `--accounts` setting.
    pub(super) fn setting(accounts: &[Account]) -> String {
        let each = accounts.iter().map(|account| format!("{}:{}", account.name, account.key));
        each.collect::<Vec<_>>().join(";")
    }
}
