//! The accounts that a server serves, with their keys and options.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::codec::properties::CorsRule;
use crate::request::target::Accounts;

/// The well-known development account (protocol §10), built into many client libraries.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// The public key of the development account.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Builds the connection string for clients. `server` is `http://host:port` or `https://host:port`; `key` is
/// in base64.
pub fn connection_string(server: &str, account: &str, key: &str) -> String {
    let scheme = server.split("://").next().unwrap_or_default();
    format!(
        "DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};\
         TableEndpoint={server}/{account};"
    )
}

/// A decoded account key. `Debug` does not print it.
#[derive(Clone)]
pub struct AccountKey {
    bytes: Vec<u8>,
    /// HMAC-SHA256, initialized with the key.
    keyed: Hmac<Sha256>,
}

impl AccountKey {
    /// Creates a key. HMAC accepts keys of any length, so this function never returns `None`.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let keyed = Hmac::new_from_slice(&bytes).ok()?;
        Some(Self { bytes, keyed })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Computes the HMAC-SHA256 of a text that is passed in pieces.
    pub fn sign<'a>(&self, pieces: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        pieces.into_iter().for_each(|piece| mac.update(piece.as_bytes()));
        mac.finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccountKey(…)")
    }
}

/// An account as a server serves it.
#[derive(Debug, Clone, Default)]
struct ServedAccount {
    /// Empty if the account is disabled.
    keys: Vec<AccountKey>,
    cors: Arc<[CorsRule]>,
    requests_per_second: Option<NonZeroU32>,
    /// Whether clients of the account may use extended queries.
    extended_queries: bool,
}

impl ServedAccount {
    fn with_keys(keys: Vec<AccountKey>) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// A snapshot of the served accounts, and the suffixes of hosts whose first label is an account.
#[derive(Debug, Clone, Default)]
pub struct AccountSet {
    accounts: BTreeMap<String, ServedAccount>,
    host_suffixes: Vec<String>,
}

/// Why a list of accounts is invalid. The messages never contain the fields in which keys are expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    #[error("account number {0} is not of the form name:base64key[:base64key2]")]
    Form(usize),
    #[error("the account name {0:?} is not 3 to 24 lower-case letters and digits")]
    Name(String),
    #[error("a key of the account {0} is not base64")]
    Key(String),
    #[error("the account {0} is given twice")]
    Twice(String),
}

impl AccountSet {
    pub fn empty(host_suffixes: Vec<String>) -> Self {
        Self { accounts: BTreeMap::new(), host_suffixes }
    }

    /// Returns this set with other accounts added. An account without keys is disabled. If this set already contains a
    /// name, its own account stays.
    pub fn with_others(&self, others: impl IntoIterator<Item = (String, Vec<AccountKey>)>) -> Self {
        let mut set = self.clone();
        for (name, keys) in others {
            set.accounts.entry(name).or_insert_with(|| ServedAccount::with_keys(keys));
        }
        set
    }

    /// Sets the CORS rules and the request limit of an account. Ignores accounts that are not in the set.
    pub fn set_options(
        &mut self,
        account: &str,
        cors: Arc<[CorsRule]>,
        requests_per_second: Option<NonZeroU32>,
    ) {
        if let Some(served) = self.accounts.get_mut(account) {
            (served.cors, served.requests_per_second) = (cors, requests_per_second);
        }
    }

    /// Sets whether an account has extended queries. Returns `false` if the account is not in the set.
    pub fn set_extended_queries(&mut self, account: &str, extended: bool) -> bool {
        let Some(served) = self.accounts.get_mut(account) else { return false };
        served.extended_queries = extended;
        true
    }

    /// Returns a set that contains only the well-known development account.
    pub fn development(host_suffixes: Vec<String>) -> Self {
        let key = STANDARD.decode(DEVELOPMENT_KEY).ok().and_then(AccountKey::new);
        let accounts = BTreeMap::from([(
            DEVELOPMENT_ACCOUNT.to_owned(),
            ServedAccount::with_keys(key.into_iter().collect()),
        )]);
        Self { accounts, host_suffixes }
    }

    /// Parses `name:key[:key2]` entries, separated by `;` or line ends.
    ///
    /// # Errors
    /// [`AccountError`] for the first invalid account.
    pub fn parse(text: &str, host_suffixes: Vec<String>) -> Result<Self, AccountError> {
        let mut set = Self { accounts: BTreeMap::new(), host_suffixes };
        let given = text.split([';', '\n']).map(str::trim).filter(|a| !a.is_empty());
        for (at, account) in given.enumerate() {
            let mut fields = account.split(':');
            let name = fields.next().unwrap_or_default();
            let keys: Vec<&str> = fields.collect();
            if !(1..=2).contains(&keys.len()) {
                return Err(AccountError::Form(at + 1));
            }
            if !is_account_name(name) {
                return Err(AccountError::Name(name.to_owned()));
            }
            let keys = keys
                .into_iter()
                .map(|key| STANDARD.decode(key).ok().filter(|k| !k.is_empty()).and_then(AccountKey::new))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| AccountError::Key(name.to_owned()))?;
            if set.accounts.insert(name.to_owned(), ServedAccount::with_keys(keys)).is_some() {
                return Err(AccountError::Twice(name.to_owned()));
            }
        }
        if set.accounts.is_empty() { Err(AccountError::Form(1)) } else { Ok(set) }
    }

    /// Returns whether the account exists and is disabled.
    pub fn is_disabled(&self, account: &str) -> bool {
        self.accounts.get(account).is_some_and(|served| served.keys.is_empty())
    }

    /// Returns the keys of an account. A signature by any of these keys is valid.
    pub fn keys(&self, account: &str) -> Option<&[AccountKey]> {
        self.accounts.get(account).map(|served| served.keys.as_slice())
    }

    /// Returns the names of all accounts, in order.
    pub fn names(&self) -> Vec<&str> {
        self.accounts.keys().map(String::as_str).collect()
    }

    /// Returns the CORS rules of an account.
    pub fn cors(&self, account: &str) -> Arc<[CorsRule]> {
        self.accounts.get(account).map(|served| Arc::clone(&served.cors)).unwrap_or_default()
    }

    /// Returns the request limit that an operator has set for an account, in requests per second.
    pub fn requests_per_second(&self, account: &str) -> Option<NonZeroU32> {
        self.accounts.get(account)?.requests_per_second
    }

    /// Returns whether the clients of an account may use extended queries.
    pub fn has_extended_queries(&self, account: &str) -> bool {
        self.accounts.get(account).is_some_and(|served| served.extended_queries)
    }

    /// Returns the first account by name, with its first key in base64, for a connection string.
    pub fn sample(&self) -> Option<(&str, String)> {
        let (name, served) = self.accounts.first_key_value()?;
        Some((name, STANDARD.encode(served.keys.first()?.bytes())))
    }
}

impl Accounts for AccountSet {
    fn exists(&self, name: &str) -> bool {
        self.accounts.contains_key(name)
    }

    fn host_suffixes(&self) -> &[String] {
        &self.host_suffixes
    }
}

/// Returns whether a name consists of 3 to 24 lower-case letters and digits (protocol §1.1).
pub fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_accounts_read_as_documented() {
        let set = AccountSet::parse("abc:AAAA;def:AQID:BAUG ;", vec![]).unwrap();
        assert_eq!(set.keys("abc").unwrap().len(), 1);
        assert_eq!(set.keys("def").unwrap()[1].bytes(), [4, 5, 6]);
        assert!(set.keys("nobody").is_none());
        assert_eq!(set.sample(), Some(("abc", "AAAA".into())));
    }

    #[test]
    fn mistakes_are_named_without_repeating_keys() {
        for (text, error) in [
            ("", AccountError::Form(1)),
            ("abc", AccountError::Form(1)),
            ("abc:AAAA;def:a:b:c", AccountError::Form(2)),
            ("AB:AAAA", AccountError::Name("AB".into())),
            ("abc:%%%", AccountError::Key("abc".into())),
            ("abc:", AccountError::Key("abc".into())),
            ("abc:AAAA;abc:AAAA", AccountError::Twice("abc".into())),
        ] {
            assert_eq!(AccountSet::parse(text, vec![]).unwrap_err(), error, "{text}");
        }
        let set = AccountSet::development(vec![]);
        assert!(!format!("{set:?}").contains("Eby8"));
        assert_eq!(set.keys(DEVELOPMENT_ACCOUNT).unwrap()[0].bytes().len(), 64);
    }
}
