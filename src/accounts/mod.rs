//! Accounts that are kept in the database: what an operator does with them, and
//! how a server learns of it.
//!
//! The command line and any other door for operators call the same functions.
//! Keys are handed out in base64 where they are made, and nowhere else.

mod follow;
mod replica;

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) use follow::{Follower, LoadError, check};
pub(crate) use replica::ReplicaRules;

use crate::auth::accounts::is_account_name;
use crate::auth::seal::{KeySlot, MasterKeys, NONCE};
use crate::model::Ticks;
use crate::store::{AccountChange, Backend, Failure, Fault, Resealed, StoredAccount};

/// Bytes of a key that is made here, as many as the service's have.
const KEY: usize = 64;
/// Bytes of a key that is given, at most.
const MAX_KEY: usize = 1024;
/// Requests a second that an account may be limited to.
pub(crate) const MAX_REQUESTS_PER_SECOND: u32 = 1_000_000;
/// Tries against others that change the same account.
const ATTEMPTS: u32 = 5;

/// Why an account was not changed, for whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccountsError {
    #[error("the account name {0:?} is not 3 to 24 lower-case letters and digits")]
    Name(String),
    #[error("a key must have 1 to {MAX_KEY} bytes")]
    KeyLength,
    #[error("a limit must be 1 to {MAX_REQUESTS_PER_SECOND} requests a second")]
    Limit,
    #[error("there is an account {0} already")]
    Exists(String),
    #[error("there is no account {0} in the database")]
    Unknown(String),
    #[error(
        "the master key does not open the keys in the database: give the one that they were stored under"
    )]
    MasterKey,
    #[error("the operating system gave no random bytes")]
    Random,
    #[error(
        "neither master key opens the keys of the account {0}: give the one that they were stored under as \
         --old-master-key, or remove the account"
    )]
    Closed(String),
    #[error("other changes of accounts were under way; try again")]
    Contended,
    #[error("the database failed ({0:?})")]
    Store(Fault),
}

impl From<Failure> for AccountsError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => AccountsError::Store(fault),
            Failure::Refused(_) => AccountsError::Store(Fault::Other),
        }
    }
}

/// A new account with its keys in base64, to be shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewAccount {
    pub name: String,
    pub keys: [String; 2],
}

/// Adds an account, with new keys unless some are given as bytes.
///
/// # Errors
/// [`AccountsError`] for a name that is none or taken, and for another master
/// key than that of the accounts that exist.
pub(crate) async fn add<B: Backend>(
    store: &B,
    master: &MasterKeys,
    name: &str,
    keys: Option<[Vec<u8>; 2]>,
    now: Ticks,
) -> Result<NewAccount, AccountsError> {
    if !is_account_name(name) {
        return Err(AccountsError::Name(name.to_owned()));
    }
    let keys = match keys {
        Some(keys) => keys,
        None => [random::<KEY>()?.to_vec(), random::<KEY>()?.to_vec()],
    };
    if keys.iter().any(|key| !(1..=MAX_KEY).contains(&key.len())) {
        return Err(AccountsError::KeyLength);
    }
    // Two master keys over one database would leave every server without half
    // of the accounts.
    let existing = store.accounts().await?;
    if !existing.is_empty() && !existing.iter().any(|account| opens(master, account)) {
        return Err(AccountsError::MasterKey);
    }
    let [first, second] = &keys;
    let account = StoredAccount {
        name: name.to_owned(),
        keys: [seal(master, name, KeySlot::First, first)?, seal(master, name, KeySlot::Second, second)?],
        disabled: false,
        created: now,
        rotated: [now; 2],
    };
    if !store.change_account(&AccountChange::Add(account)).await? {
        return Err(AccountsError::Exists(name.to_owned()));
    }
    Ok(NewAccount { name: name.to_owned(), keys: keys.map(|key| STANDARD.encode(key)) })
}

/// The accounts by name. Their keys stay sealed.
///
/// # Errors
/// [`AccountsError::Store`].
pub(crate) async fn list<B: Backend>(store: &B) -> Result<Vec<StoredAccount>, AccountsError> {
    Ok(store.accounts().await?)
}

/// The account of this name. Its keys stay sealed.
///
/// # Errors
/// [`AccountsError`] for an unknown account.
pub(crate) async fn find<B: Backend>(store: &B, name: &str) -> Result<StoredAccount, AccountsError> {
    let found = store.accounts().await?.into_iter().find(|account| account.name == name);
    found.ok_or_else(|| AccountsError::Unknown(name.to_owned()))
}

/// How many requests of each account servers answer in a second, where that is limited.
///
/// # Errors
/// [`AccountsError::Store`].
pub(crate) async fn limits<B: Backend>(store: &B) -> Result<HashMap<String, u32>, AccountsError> {
    let options = store.account_options().await?;
    Ok(options.into_iter().filter_map(|options| Some((options.name, options.requests_per_second?))).collect())
}

/// Limits how many requests of an account each server answers in a second, or ends its limit.
/// The account may be one of the settings.
///
/// # Errors
/// [`AccountsError::Name`] for a name that no account can have, [`AccountsError::Limit`].
pub(crate) async fn limit<B: Backend>(
    store: &B,
    name: &str,
    requests_per_second: Option<u32>,
) -> Result<(), AccountsError> {
    if !is_account_name(name) {
        return Err(AccountsError::Name(name.to_owned()));
    }
    if requests_per_second.is_some_and(|limit| !(1..=MAX_REQUESTS_PER_SECOND).contains(&limit)) {
        return Err(AccountsError::Limit);
    }
    change(store, name, AccountChange::Limit { name: name.to_owned(), requests_per_second }).await
}

/// An account as operators see it, without its keys.
pub(crate) fn shown(account: &StoredAccount, limits: &HashMap<String, u32>) -> Value {
    json!({
        "requestsPerSecond": limits.get(&account.name),
        "name": account.name,
        "disabled": account.disabled,
        "created": account.created.to_canonical(),
        "rotated": account.rotated.map(Ticks::to_canonical),
    })
}

/// Makes a new key in one slot of an account, and returns it in base64. The
/// other key goes on to work, the old one ends once the servers have noticed.
///
/// # Errors
/// [`AccountsError`] for an unknown account and another master key.
pub(crate) async fn rotate<B: Backend>(
    store: &B,
    master: &MasterKeys,
    name: &str,
    slot: KeySlot,
    now: Ticks,
) -> Result<String, AccountsError> {
    for _ in 0..ATTEMPTS {
        let account = find(store, name).await?;
        if !opens(master, &account) {
            return Err(AccountsError::MasterKey);
        }
        let key = random::<KEY>()?;
        let sealed = seal(master, name, slot, &key)?;
        let was = account.keys[slot.index()].clone();
        let change = AccountChange::Rotate { name: name.to_owned(), slot, was, sealed, now };
        if store.change_account(&change).await? {
            return Ok(STANDARD.encode(key));
        }
    }
    Err(AccountsError::Contended)
}

/// Refuses, or serves again, an account whose keys and tables stay.
///
/// # Errors
/// [`AccountsError`] for an unknown account.
pub(crate) async fn set_disabled<B: Backend>(
    store: &B,
    name: &str,
    disabled: bool,
) -> Result<(), AccountsError> {
    change(store, name, AccountChange::Disable { name: name.to_owned(), disabled }).await
}

/// Removes an account and its keys. Its tables stay in the database, out of
/// reach until an account of the same name is added.
///
/// # Errors
/// [`AccountsError`] for an unknown account.
pub(crate) async fn remove<B: Backend>(store: &B, name: &str) -> Result<(), AccountsError> {
    change(store, name, AccountChange::Remove { name: name.to_owned() }).await
}

/// Encrypts the keys that the old master key opens under the one of now, all at
/// once or none, and says of how many accounts.
///
/// # Errors
/// [`AccountsError::Closed`] for keys that neither opens; nothing is changed then.
pub(crate) async fn reseal<B: Backend>(store: &B, master: &MasterKeys) -> Result<usize, AccountsError> {
    for _ in 0..ATTEMPTS {
        // The count first: it then is no longer so if anything changes after it.
        let seen = store.account_changes().await?.accounts;
        let stored = store.accounts().await?;
        let accounts: Vec<Resealed> = stored
            .iter()
            .filter_map(|account| resealed(master, account).transpose())
            .collect::<Result<_, _>>()?;
        let many = accounts.len();
        if many == 0 || store.change_account(&AccountChange::Reseal { seen, accounts }).await? {
            return Ok(many);
        }
    }
    Err(AccountsError::Contended)
}

/// The account's keys under the master key of now; `None` if they are.
fn resealed(master: &MasterKeys, account: &StoredAccount) -> Result<Option<Resealed>, AccountsError> {
    let name = &account.name;
    let is_open = |slot: KeySlot| master.now.open(name, slot, &account.keys[slot.index()]).is_some();
    if KeySlot::BOTH.into_iter().all(is_open) {
        return Ok(None);
    }
    let [first, second] = open(master, account).ok_or_else(|| AccountsError::Closed(name.clone()))?;
    let keys = [seal(master, name, KeySlot::First, &first)?, seal(master, name, KeySlot::Second, &second)?];
    Ok(Some(Resealed { name: name.clone(), keys }))
}

/// The bytes of an account's keys, for signing in its name.
///
/// # Errors
/// [`AccountsError`] for an unknown account and another master key.
pub(crate) async fn keys<B: Backend>(
    store: &B,
    master: &MasterKeys,
    name: &str,
) -> Result<[Vec<u8>; 2], AccountsError> {
    open(master, &find(store, name).await?).ok_or(AccountsError::MasterKey)
}

async fn change<B: Backend>(store: &B, name: &str, change: AccountChange) -> Result<(), AccountsError> {
    let done = store.change_account(&change).await?;
    if done { Ok(()) } else { Err(AccountsError::Unknown(name.to_owned())) }
}

fn seal(master: &MasterKeys, name: &str, slot: KeySlot, key: &[u8]) -> Result<Vec<u8>, AccountsError> {
    master.seal(name, slot, random::<NONCE>()?, key).ok_or(AccountsError::MasterKey)
}

/// Both keys; `None` where either does not open.
fn open(master: &MasterKeys, account: &StoredAccount) -> Option<[Vec<u8>; 2]> {
    let key = |slot: KeySlot| master.open(&account.name, slot, &account.keys[slot.index()]);
    Some([key(KeySlot::First)?, key(KeySlot::Second)?])
}

fn opens(master: &MasterKeys, account: &StoredAccount) -> bool {
    open(master, account).is_some()
}

fn random<const N: usize>() -> Result<[u8; N], AccountsError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| AccountsError::Random)?;
    Ok(bytes)
}
