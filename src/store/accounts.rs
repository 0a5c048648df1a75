//! Accounts as a database keeps them: names in plain, keys sealed.

use crate::auth::seal::KeySlot;
use crate::model::Ticks;

/// An account with its sealed keys, which this layer cannot open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAccount {
    pub name: String,
    /// As `auth::seal::MasterKey::seal` makes them.
    pub keys: [Vec<u8>; 2],
    pub disabled: bool,
    pub created: Ticks,
    /// When each key was made.
    pub rotated: [Ticks; 2],
}

/// A change of accounts, done as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountChange {
    /// Not done if there is one of this name.
    Add(StoredAccount),
    /// Replaces one key, if it still is `was`.
    Rotate { name: String, slot: KeySlot, was: Vec<u8>, sealed: Vec<u8>, now: Ticks },
    /// Disables or enables.
    Disable { name: String, disabled: bool },
    /// Its tables stay, out of reach until there is an account of this name.
    Remove { name: String },
    /// Sets or removes the limit of an account, which may be one of the settings.
    Limit { name: String, requests_per_second: Option<u32> },
    /// Replaces the sealed keys of these accounts, which stay what they are, if
    /// no account was changed since [`super::Backend::account_changes`] gave this count.
    Reseal { seen: i64, accounts: Vec<Resealed> },
}

/// How often what is stored of accounts was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Accounts, their keys and state: what [`super::Backend::accounts`] returns.
    pub accounts: i64,
    /// Limits and service properties: what [`super::Backend::account_options`] returns.
    pub options: i64,
}

/// What is stored of an account besides its keys. The account itself may be one of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountOptions {
    pub name: String,
    /// Its service properties as stored JSON, if any were ever set.
    pub properties: Option<String>,
    /// Requests that a server answers it in a second, if an operator has limited them.
    pub requests_per_second: Option<u32>,
}

/// An account's keys, sealed anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resealed {
    pub name: String,
    pub keys: [Vec<u8>; 2],
}
