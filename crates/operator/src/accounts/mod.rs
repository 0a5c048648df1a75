//! The operations on accounts in the database, and the snapshot with which a server follows their changes. Only
//! `add` and `rotate` return keys in base64; `keys` returns their bytes, to sign requests with.

mod follow;

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;

pub use follow::{Follower, check_master_key};

use super::OperatorError;
use super::durations::Time;
use crate::protocol::auth::accounts::is_account_name;
use crate::protocol::auth::key_encryption::{KeySlot, MasterKeys, NONCE_LENGTH};
use crate::protocol::model::Ticks;
use crate::store::{AccountChange, AccountOptions, Resealed, Store, StoredAccount};

/// The length of a new key, as in Azure.
const KEY_BYTES: usize = 64;
/// Maximum bytes of a key that an operator provides.
const MAX_KEY_BYTES: usize = 1024;
/// The highest limit of an account, in requests per second.
pub const MAX_REQUESTS_PER_SECOND: u32 = 1_000_000;
/// Maximum attempts while other processes change the same account.
const ATTEMPTS: u32 = 5;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Account")]
pub struct AccountReport {
    #[schemars(regex(pattern = "^[a-z0-9]{3,24}$"))]
    pub name: String,
    pub disabled: bool,
    pub created: Time,
    /// When each key was made.
    pub rotated: [Time; 2],
    /// Requests per second of the account on each server. Null: the limit of the settings applies.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: Option<u32>,
    /// Whether clients of the account may use extended queries. Off by default.
    pub extended_queries: bool,
}

impl AccountReport {
    fn new(account: &StoredAccount, options: &HashMap<String, AccountOptions>) -> Self {
        let options = options.get(&account.name);
        Self {
            name: account.name.clone(),
            disabled: account.disabled,
            created: Time(account.created),
            rotated: account.rotated.map(Time),
            requests_per_second: options.and_then(|options| options.requests_per_second),
            extended_queries: options.and_then(|options| options.extended_queries).unwrap_or(false),
        }
    }
}

/// An account that was disabled or enabled.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AccountSwitch {
    pub name: String,
    pub disabled: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AccountLimit {
    pub name: String,
    /// Requests per second of the account on each server. Null: the limit of the settings applies.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AccountQueries {
    pub name: String,
    /// Whether clients of the account may use extended queries.
    pub extended: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RemovedAccount {
    /// The name of the account.
    pub removed: String,
}

/// A key slot with its new key, which is shown once.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RotatedKey {
    pub name: String,
    /// 1 or 2.
    pub slot: u8,
    /// The new key in base64.
    pub key: String,
    pub connection_string: String,
}

/// Adds an account, with the given keys or with new ones. Returns its keys in base64, to be shown once.
pub async fn add(
    store: &Store,
    master: &MasterKeys,
    name: &str,
    keys: Option<[Vec<u8>; 2]>,
    now: Ticks,
) -> Result<[String; 2], OperatorError> {
    check_name(name)?;
    let keys = match keys {
        Some(keys) => keys,
        None => [random::<KEY_BYTES>()?.to_vec(), random::<KEY_BYTES>()?.to_vec()],
    };
    if keys.iter().any(|key| !(1..=MAX_KEY_BYTES).contains(&key.len())) {
        return Err(OperatorError::KeyLength(MAX_KEY_BYTES));
    }
    // A server could serve only some of the accounts if a database had accounts under two master keys.
    let existing = store.accounts().await?;
    if !existing.is_empty() && !existing.iter().any(|account| can_decrypt(master, account)) {
        return Err(OperatorError::MasterKey);
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
        return Err(OperatorError::AccountExists(name.to_owned()));
    }
    Ok(keys.map(|key| STANDARD.encode(key)))
}

/// Lists the stored accounts by name, without their keys.
pub async fn list(store: &Store) -> Result<Vec<AccountReport>, OperatorError> {
    let (accounts, options) = (store.accounts().await?, options(store).await?);
    Ok(accounts.iter().map(|account| AccountReport::new(account, &options)).collect())
}

/// Describes one stored account, without its keys.
pub async fn report(store: &Store, name: &str) -> Result<AccountReport, OperatorError> {
    Ok(AccountReport::new(&find(store, name).await?, &options(store).await?))
}

/// Finds the stored account of this name. Its keys stay sealed.
async fn find(store: &Store, name: &str) -> Result<StoredAccount, OperatorError> {
    let found = store.accounts().await?.into_iter().find(|account| account.name == name);
    found.ok_or_else(|| OperatorError::AccountNotFound(name.to_owned()))
}

/// Returns the stored options of the accounts that have any, by name.
async fn options(store: &Store) -> Result<HashMap<String, AccountOptions>, OperatorError> {
    let stored = store.account_options().await?;
    Ok(stored.into_iter().map(|options| (options.name.clone(), options)).collect())
}

/// Returns the stored limit of an account. The account itself may be defined in the settings.
pub async fn read_limit(store: &Store, name: &str) -> Result<AccountLimit, OperatorError> {
    let requests_per_second = options(store).await?.get(name).and_then(|options| options.requests_per_second);
    Ok(AccountLimit { name: name.to_owned(), requests_per_second })
}

fn check_name(name: &str) -> Result<(), OperatorError> {
    if is_account_name(name) { Ok(()) } else { Err(OperatorError::AccountName(name.to_owned())) }
}

/// Sets or removes the limit of an account, in requests per second on each server. The account may be defined in the
/// settings.
pub async fn set_limit(
    store: &Store,
    name: &str,
    requests_per_second: Option<u32>,
) -> Result<AccountLimit, OperatorError> {
    check_name(name)?;
    if requests_per_second.is_some_and(|limit| !(1..=MAX_REQUESTS_PER_SECOND).contains(&limit)) {
        return Err(OperatorError::Limit(MAX_REQUESTS_PER_SECOND));
    }
    change(store, name, AccountChange::Limit { name: name.to_owned(), requests_per_second }).await?;
    Ok(AccountLimit { name: name.to_owned(), requests_per_second })
}

/// Sets whether an account has extended queries. The account may be defined in the settings.
pub async fn set_queries(store: &Store, name: &str, extended: bool) -> Result<AccountQueries, OperatorError> {
    check_name(name)?;
    change(store, name, AccountChange::Queries { name: name.to_owned(), extended }).await?;
    Ok(AccountQueries { name: name.to_owned(), extended })
}

/// Makes a new key in one slot of an account, and returns it in base64. The key in the other slot
/// keeps working. The replaced key works until the servers have loaded the change.
pub async fn rotate(
    store: &Store,
    master: &MasterKeys,
    name: &str,
    slot: KeySlot,
    now: Ticks,
) -> Result<String, OperatorError> {
    for _ in 0..ATTEMPTS {
        let account = find(store, name).await?;
        if !can_decrypt(master, &account) {
            return Err(OperatorError::MasterKey);
        }
        let key = random::<KEY_BYTES>()?;
        let sealed = seal(master, name, slot, &key)?;
        let was = account.keys[slot.index()].clone();
        let change = AccountChange::Rotate { name: name.to_owned(), slot, was, sealed, now };
        if store.change_account(&change).await? {
            return Ok(STANDARD.encode(key));
        }
    }
    Err(OperatorError::Contended)
}

/// Disables or enables an account. Its keys and tables stay.
pub async fn set_disabled(store: &Store, name: &str, disabled: bool) -> Result<AccountSwitch, OperatorError> {
    change(store, name, AccountChange::Disable { name: name.to_owned(), disabled }).await?;
    Ok(AccountSwitch { name: name.to_owned(), disabled })
}

/// Removes an account and its keys. Its tables stay in the database, but are inaccessible until an
/// account of the same name is added.
pub async fn remove(store: &Store, name: &str) -> Result<RemovedAccount, OperatorError> {
    change(store, name, AccountChange::Remove { name: name.to_owned() }).await?;
    Ok(RemovedAccount { removed: name.to_owned() })
}

/// Encrypts the keys that are sealed under the old master key with the current one, all of them or
/// none. Returns the number of accounts.
///
/// # Errors
/// [`OperatorError::BothMasterKeys`] if neither master key decrypts a key; then nothing is changed.
pub async fn reseal(store: &Store, master: &MasterKeys) -> Result<usize, OperatorError> {
    for _ in 0..ATTEMPTS {
        // The counter is read first, because the store refuses the change if the counter has changed since.
        let seen = store.account_changes().await?.accounts;
        let stored = store.accounts().await?;
        let accounts: Vec<Resealed> = stored
            .iter()
            .filter_map(|account| reseal_account(master, account).transpose())
            .collect::<Result<_, _>>()?;
        let count = accounts.len();
        if count == 0 || store.change_account(&AccountChange::Reseal { seen, accounts }).await? {
            return Ok(count);
        }
    }
    Err(OperatorError::Contended)
}

/// Encrypts the account's keys with the current master key; `None` if they already are.
fn reseal_account(master: &MasterKeys, account: &StoredAccount) -> Result<Option<Resealed>, OperatorError> {
    let name = &account.name;
    let is_current =
        |slot: KeySlot| master.current.decrypt(name, slot, &account.keys[slot.index()]).is_some();
    if KeySlot::BOTH.into_iter().all(is_current) {
        return Ok(None);
    }
    let [first, second] =
        decrypt_keys(master, account).ok_or_else(|| OperatorError::BothMasterKeys(name.clone()))?;
    let keys = [seal(master, name, KeySlot::First, &first)?, seal(master, name, KeySlot::Second, &second)?];
    Ok(Some(Resealed { name: name.clone(), keys }))
}

/// Returns the bytes of an account's keys, to sign requests with.
pub async fn keys(store: &Store, master: &MasterKeys, name: &str) -> Result<[Vec<u8>; 2], OperatorError> {
    decrypt_keys(master, &find(store, name).await?).ok_or(OperatorError::MasterKey)
}

async fn change(store: &Store, name: &str, change: AccountChange) -> Result<(), OperatorError> {
    let done = store.change_account(&change).await?;
    if done { Ok(()) } else { Err(OperatorError::AccountNotFound(name.to_owned())) }
}

fn seal(master: &MasterKeys, name: &str, slot: KeySlot, key: &[u8]) -> Result<Vec<u8>, OperatorError> {
    master.current.seal(name, slot, random::<NONCE_LENGTH>()?, key).ok_or(OperatorError::MasterKey)
}

/// Decrypts both keys; `None` if either cannot be decrypted.
fn decrypt_keys(master: &MasterKeys, account: &StoredAccount) -> Option<[Vec<u8>; 2]> {
    let key = |slot: KeySlot| master.decrypt(&account.name, slot, &account.keys[slot.index()]);
    Some([key(KeySlot::First)?, key(KeySlot::Second)?])
}

fn can_decrypt(master: &MasterKeys, account: &StoredAccount) -> bool {
    decrypt_keys(master, account).is_some()
}

fn random<const N: usize>() -> Result<[u8; N], OperatorError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| OperatorError::Random)?;
    Ok(bytes)
}
