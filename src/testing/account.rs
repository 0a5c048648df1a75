//! The accounts of a server of a test.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};

use crate::auth::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// An account of a server of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// 3 to 24 lower-case letters and digits.
    pub name: String,
    /// In base64.
    pub key: String,
}

impl Account {
    /// An account of this name, with a key that is made from it: the same
    /// wherever it is asked for, and known to everybody who knows the name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let key = STANDARD.encode(Sha512::digest(format!("test key of {name}")));
        Self { name, key }
    }

    /// The development account, which client libraries know as
    /// `UseDevelopmentStorage=true` with port 10002.
    pub fn development() -> Self {
        Self { name: DEVELOPMENT_ACCOUNT.into(), key: DEVELOPMENT_KEY.into() }
    }

    /// As the setting for accounts takes it.
    pub(super) fn setting(accounts: &[Account]) -> String {
        let each = accounts.iter().map(|account| format!("{}:{}", account.name, account.key));
        each.collect::<Vec<_>>().join(";")
    }
}
