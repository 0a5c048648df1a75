//! Accounts as stored in the database: names in plain text, keys encrypted (sealed).

use super::StoreResult;
use crate::protocol::auth::key_encryption::KeySlot;
use crate::protocol::model::Ticks;
use crate::sql::SqlRow;

/// An account with its sealed keys. This layer cannot decrypt them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAccount {
    pub name: String,
    /// Sealed by `auth::key_encryption::MasterKey::seal`.
    pub keys: [Vec<u8>; 2],
    pub disabled: bool,
    pub created: Ticks,
    /// Time at which each key was created.
    pub rotated: [Ticks; 2],
}

impl StoredAccount {
    /// Query for all accounts, read by [`StoredAccount::read`].
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

/// An atomic change of the stored accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountChange {
    /// Adds an account, unless one with this name exists.
    Add(StoredAccount),
    /// Replaces one key, if its sealed form still equals `was`.
    Rotate { name: String, slot: KeySlot, was: Vec<u8>, sealed: Vec<u8>, now: Ticks },
    /// Disables or enables an account.
    Disable { name: String, disabled: bool },
    /// Removes an account. Its tables are kept, but are inaccessible until an account with this name exists again.
    Remove { name: String },
    /// Sets or removes an account's request limit. The account may come from the settings instead of the database.
    Limit { name: String, requests_per_second: Option<u32> },
    /// Enables or disables extended queries for an account. The account may come from the settings.
    Queries { name: String, extended: bool },
    /// Replaces the sealed forms of these accounts' keys, but not the keys themselves. Applies only if no account has
    /// changed since [`StoredAccounts::account_changes`] returned the count `seen`.
    Reseal { seen: i64, accounts: Vec<Resealed> },
}

/// Change counters of the stored accounts and their options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Number of changes to the result of [`StoredAccounts::accounts`]: accounts, their keys and their state.
    pub accounts: i64,
    /// Number of changes to the result of [`StoredAccounts::account_options`]: limits, queries and service properties.
    pub options: i64,
    /// Number of changes to the result of [`Indexes::indexes`](super::Indexes::indexes).
    pub indexes: i64,
}

/// The stored options of an account. The account itself may come from the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountOptions {
    pub name: String,
    /// Service properties as stored JSON; `None` if never set.
    pub properties: Option<String>,
    /// Limit in requests per second on each server; `None` if no operator has set one.
    pub requests_per_second: Option<u32>,
    /// Whether extended queries are enabled; `None` if no operator has chosen.
    pub extended_queries: Option<bool>,
}

/// An account's keys, sealed with a new master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resealed {
    pub name: String,
    pub keys: [Vec<u8>; 2],
}

store_trait! {
/// Accounts in the database, and their options: limits, queries and service properties.
pub trait StoredAccounts {
    /// Returns the change counters of accounts, their options and indexes. A counter that differs from the last read
    /// means that the result of [`StoredAccounts::accounts`], [`StoredAccounts::account_options`] or
    /// [`Indexes::indexes`](super::Indexes::indexes) has changed.
    async fn account_changes(&self) -> StoreResult<ChangeCounts>;

    /// Reads the stored accounts, ordered by name. Accounts from the settings are not included.
    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>>;

    /// Reads the options of all accounts that have options.
    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>>;

    /// Changes stored accounts; `false` if the change's condition does not hold and nothing was changed.
    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool>;

    /// Reads the account's service properties as stored JSON; `None` if never set.
    async fn properties(&self, account: &str) -> StoreResult<Option<String>>;

    /// Replaces the given members of the account's service properties and keeps the others. This counts as a change of
    /// the account's options.
    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()>;
}}
