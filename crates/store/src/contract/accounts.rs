//! StoredAccounts as stored in the database: names in plain text, keys encrypted (sealed).

use super::StoreResult;
use crate::protocol::auth::seal::KeySlot;
use crate::protocol::model::Ticks;
use crate::sql::SqlRow;

/// An account with its sealed keys, which this layer cannot decrypt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAccount {
    pub name: String,
    /// Sealed by `auth::seal::MasterKey::seal`.
    pub keys: [Vec<u8>; 2],
    pub disabled: bool,
    pub created: Ticks,
    /// When each key was made.
    pub rotated: [Ticks; 2],
}

impl StoredAccount {
    /// Lists all, for [`StoredAccount::read`].
    pub(crate) const LIST: &str =
        "SELECT name, key1, key2, disabled, created, rotated1, rotated2 FROM accounts ORDER BY name";

    pub(crate) fn read(row: &SqlRow) -> StoreResult<Self> {
        Ok(Self {
            name: row.get(0)?,
            keys: [row.get(1)?, row.get(2)?],
            disabled: row.get(3)?,
            created: row.ticks(4)?,
            rotated: [row.ticks(5)?, row.ticks(6)?],
        })
    }
}

/// A change of accounts, which is atomic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountChange {
    /// Adds an account; refused if one of this name exists.
    Add(StoredAccount),
    /// Replaces one key, if its sealed form is still `was`.
    Rotate { name: String, slot: KeySlot, was: Vec<u8>, sealed: Vec<u8>, now: Ticks },
    /// Disables or enables an account.
    Disable { name: String, disabled: bool },
    /// Its tables stay, but are inaccessible until there is an account of this name again.
    Remove { name: String },
    /// Sets or removes the limit of an account, which may be one of the settings.
    Limit { name: String, requests_per_second: Option<u32> },
    /// Sets whether an account has extended queries; it may be one of the settings.
    Queries { name: String, extended: bool },
    /// Replaces the sealed forms of the keys of these accounts, but not the keys themselves, if no
    /// account was changed since [`StoredAccounts::account_changes`] returned the count `seen`.
    Reseal { seen: i64, accounts: Vec<Resealed> },
}

/// Change counters of the stored accounts and their options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Counts changes of what [`StoredAccounts::accounts`] returns: accounts, their keys and state.
    pub accounts: i64,
    /// Counts changes of what [`StoredAccounts::account_options`] returns: limits, queries and
    /// service properties.
    pub options: i64,
    /// Counts changes of what [`Indexes::indexes`](super::Indexes::indexes) returns.
    pub indexes: i64,
}

/// The stored options of an account. The account itself may be one of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountOptions {
    pub name: String,
    /// Its service properties as stored JSON, if any were ever set.
    pub properties: Option<String>,
    /// The limit in requests per second on each server, if an operator has set one.
    pub requests_per_second: Option<u32>,
    /// Whether it has extended queries, if an operator has chosen.
    pub extended_queries: Option<bool>,
}

/// An account's keys, sealed under another master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resealed {
    pub name: String,
    pub keys: [Vec<u8>; 2],
}

store_trait! {
/// StoredAccounts in the database, and their options: limits, queries and service properties.
pub trait StoredAccounts {
    /// Returns the change counters of accounts, of their options and of indexes. If a counter differs
    /// from the last read, [`StoredAccounts::accounts`], [`StoredAccounts::account_options`] or
        /// [`Indexes::indexes`](super::Indexes::indexes)
    /// has changed.
    async fn account_changes(&self) -> StoreResult<ChangeCounts>;

    /// Reads the stored accounts, in the order of their names, without those of the settings.
    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>>;

    /// Reads the options of all accounts that have any.
    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>>;

    /// Changes stored accounts; `false` if the condition of the change does not hold, and nothing
    /// was done.
    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool>;

    /// Reads the account's service properties as stored JSON; `None` if none were ever set.
    async fn properties(&self, account: &str) -> StoreResult<Option<String>>;

    /// Replaces the given members of the account's service properties, and keeps the others. Counts
    /// as a change of the account's options.
    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()>;
}}
