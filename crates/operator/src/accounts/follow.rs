//! The accounts that a server serves: keys, state and options, in one snapshot, and the
//! property indexes of tables. A change counter in the database is polled, and the snapshot reloaded when it changes.
//! The read replica has its own rules and indexes: it may lag behind.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::decrypt_keys;
use crate::OperatorError;
use crate::indexes::IndexCatalog;
use crate::protocol::auth::AccountSet;
use crate::protocol::auth::accounts::AccountKey;
use crate::protocol::auth::key_encryption::{KeySlot, MasterKeys};
use crate::protocol::codec::properties::{self, CorsRule};
use crate::protocol::model::Ticks;
use crate::store::{AccountOptions, ChangeCounts, Failure, Fault, Store, StoredAccount};

/// Checks that the master key decrypts the keys of all accounts.
///
/// # Errors
/// [`OperatorError::MasterKeyOfServer`] for the first account whose keys it does not decrypt.
pub fn check(master: &MasterKeys, stored: &[StoredAccount]) -> Result<(), OperatorError> {
    let closed = stored.iter().find(|account| decrypt_keys(master, account).is_none());
    closed.map_or(Ok(()), |account| Err(OperatorError::MasterKeyOfServer(account.name.clone())))
}

/// Accounts, their options and indexes are reloaded after this time, even if no counter has changed: older servers on the
/// same database do not count changes of service properties, and a failover may lose a change and its count.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long a request waits for this server to load the change that it made.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// Holds the accounts of the database and of the settings, and follows changes in the database.
#[derive(Debug)]
pub struct Follower {
    /// `None`: only the accounts of the settings are served.
    master: Option<MasterKeys>,
    /// The accounts of the settings. They win over stored accounts of the same name. `None` for a replica:
    /// its accounts are those that have CORS rules or limits there.
    given: Option<AccountSet>,
    /// The snapshot for requests. A request keeps the one that it began with.
    served: ArcSwap<AccountSet>,
    /// The property indexes of all tables.
    indexes: ArcSwap<IndexCatalog>,
    /// Locked while accounts are read and replaced, so that an older snapshot never replaces a
    /// newer one.
    last: Mutex<LastRead>,
}

/// The result of the last read.
#[derive(Debug, Default)]
struct LastRead {
    /// The change counters, and the time of the read; `None` before the first read.
    count: Option<(ChangeCounts, Instant)>,
    known: KnownAccounts,
}

/// The decrypted keys of the stored accounts, by name.
type KnownAccounts = HashMap<String, OpenedKeys>;

/// The keys of an account that could be decrypted, and the times that show whether they are still
/// its keys.
#[derive(Debug)]
struct OpenedKeys {
    created: Ticks,
    rotated: [Ticks; 2],
    disabled: bool,
    keys: [Option<AccountKey>; 2],
}

impl Follower {
    /// Reads the accounts for the first time.
    pub async fn start(
        store: &Store,
        master: Option<MasterKeys>,
        given: AccountSet,
    ) -> Result<Self, OperatorError> {
        let unread = |failure| match failure {
            Failure::Fault(fault) => OperatorError::Unread(fault),
            Failure::Refused(_) => OperatorError::Unread(Fault::Other),
        };
        match (&master, store.accounts().await) {
            (Some(master), stored) => check(master, &stored.map_err(unread)?)?,
            (None, Ok(stored)) if !stored.is_empty() => tracing::warn!(
                "{} accounts in the database are not served, because there is no --master-key; `rowhouse account list` \
                 names them",
                stored.len()
            ),
            // Nothing needs them.
            (None, _) => {}
        }
        let follower = Self::new(master, Some(given));
        follower.follow(store).await.map_err(unread)?;
        Ok(follower)
    }

    /// Follows the read replica, which is not read yet.
    pub fn of_replica() -> Self {
        Self::new(None, None)
    }

    fn new(master: Option<MasterKeys>, given: Option<AccountSet>) -> Self {
        let served = ArcSwap::from_pointee(given.clone().unwrap_or_default());
        Self { master, given, served, indexes: ArcSwap::default(), last: Mutex::default() }
    }

    /// The accounts as last read.
    pub fn accounts(&self) -> Arc<AccountSet> {
        self.served.load_full()
    }

    pub fn indexes(&self) -> Arc<IndexCatalog> {
        self.indexes.load_full()
    }

    /// The master keys that the stored keys are encrypted with.
    pub fn master(&self) -> Option<&MasterKeys> {
        self.master.as_ref()
    }

    /// Whether the settings define an account of this name. It wins over a stored one.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.as_ref().is_some_and(|given| given.keys(name).is_some())
    }

    /// Reloads the snapshot if it is stale, and returns whether the counters have changed. A key
    /// that cannot be decrypted keeps its last known value; without one it is not served.
    pub(crate) async fn follow(&self, store: &Store) -> Result<bool, Failure> {
        let mut last = self.last.lock().await;
        // The counters first: a change between the two reads is then noticed by the next poll.
        let changes = store.account_changes().await?;
        let seen = last.count.map(|(changes, _)| changes);
        let before = last.count.filter(|(_, at)| at.elapsed() < MAX_AGE).map(|(changes, _)| changes);
        if before == Some(changes) {
            return Ok(false);
        }
        if before.is_none_or(|before| changes.indexes != before.indexes) {
            self.indexes.store(Arc::new(IndexCatalog::new(store.indexes().await?)));
        }
        let has_changed = before.is_none_or(|before| changes.accounts != before.accounts);
        if let Some(master) = self.master.as_ref().filter(|_| has_changed) {
            last.known = opened(master, &last.known, &store.accounts().await?);
        }
        let set = self.set(&last.known, &store.account_options().await?);
        self.served.store(Arc::new(set));
        last.count = Some((changes, Instant::now()));
        Ok(seen.is_some_and(|seen| changes != seen))
    }

    /// Loads a change that this server has made. If that fails, the next poll loads it: the change
    /// itself is already stored.
    pub async fn follow_own_change(&self, store: &Store) {
        if !matches!(timeout(FOLLOW_TIMEOUT, self.follow(store)).await, Ok(Ok(_))) {
            tracing::warn!(
                "a change of an account or an index is stored, but could not be loaded yet; will retry"
            );
        }
    }

    /// Builds the snapshot: all accounts with their options.
    fn set(&self, known: &KnownAccounts, options: &[AccountOptions]) -> AccountSet {
        let mut set = match &self.given {
            Some(given) => given.beside(known.iter().map(|(name, opened)| {
                let keys = opened.keys.iter().flatten().filter(|_| !opened.disabled);
                (name.clone(), keys.cloned().collect())
            })),
            None => {
                AccountSet::default().beside(options.iter().map(|account| (account.name.clone(), Vec::new())))
            }
        };
        for account in options {
            let limit = account.requests_per_second.and_then(NonZeroU32::new);
            set.set_options(&account.name, rules_of(account), limit);
            if let Some(extended) = account.extended_queries {
                set.set_extended_queries(&account.name, extended);
            }
        }
        set
    }
}

/// Returns the CORS rules of an account; none if its properties cannot be parsed.
fn rules_of(account: &AccountOptions) -> Arc<[CorsRule]> {
    let read = account.properties.as_ref().and_then(|text| properties::from_stored(text).ok());
    read.and_then(|read| read.cors).unwrap_or_default().into()
}

fn opened(master: &MasterKeys, known: &KnownAccounts, stored: &[StoredAccount]) -> KnownAccounts {
    stored.iter().map(|account| (account.name.clone(), opened_keys(master, known, account))).collect()
}

/// Decrypts the keys of an account. If a key cannot be decrypted, because it was resealed under a
/// master key that this server does not have yet, its last known value stays in use, unless the key
/// was rotated since.
fn opened_keys(master: &MasterKeys, known: &KnownAccounts, account: &StoredAccount) -> OpenedKeys {
    let before = known.get(&account.name).filter(|opened| opened.created == account.created);
    let keys = KeySlot::BOTH.map(|slot| {
        let at = slot.index();
        let opened = master.decrypt(&account.name, slot, &account.keys[at]);
        opened.and_then(AccountKey::new).or_else(|| {
            let same = before.filter(|opened| opened.rotated[at] == account.rotated[at]);
            let kept = same.and_then(|opened| opened.keys[at].clone());
            let (account, kept_on) = (&account.name, kept.is_some());
            tracing::error!(
                account,
                key = at + 1,
                kept_on,
                "the master key does not open a key of an account"
            );
            kept
        })
    });
    let StoredAccount { created, rotated, disabled, .. } = *account;
    OpenedKeys { created, rotated, disabled, keys }
}
