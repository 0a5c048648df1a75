//! Keeps a snapshot of the accounts (keys, state and options) and of the property indexes that a server uses. The
//! server polls change counters in the database, and reloads the snapshot when a counter has changed. A read replica
//! has its own snapshot, because the replica may lag behind.

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
pub fn check_master_key(master: &MasterKeys, stored: &[StoredAccount]) -> Result<(), OperatorError> {
    let undecryptable = stored.iter().find(|account| decrypt_keys(master, account).is_none());
    undecryptable.map_or(Ok(()), |account| Err(OperatorError::MasterKeyOfServer(account.name.clone())))
}

/// Accounts, their options and indexes are reloaded after this time even if no counter has changed. Older servers on
/// the same database do not count changes of service properties. After a failover that lost a change and its count,
/// the next change may bring the counter back to the known value.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long a request waits for this server to load the change that it made.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// Holds the accounts of the database and of the settings, and follows changes in the database.
#[derive(Debug)]
pub struct Follower {
    /// Without master keys, the server serves only the accounts in the settings.
    master: Option<MasterKeys>,
    /// The accounts in the settings, which override stored accounts of the same name. `None` for the read
    /// replica, whose snapshot has only options: CORS rules, request limits and extended queries.
    configured: Option<AccountSet>,
    /// The current snapshot. A request keeps the snapshot that it began with.
    served: ArcSwap<AccountSet>,
    /// The property indexes of all tables.
    indexes: ArcSwap<IndexCatalog>,
    /// Locked while accounts are read and replaced, so that an older snapshot never replaces a
    /// newer one.
    last: Mutex<LastRead>,
}

#[derive(Debug, Default)]
struct LastRead {
    /// The change counters, and the time of the read; `None` before the first read.
    count: Option<(ChangeCounts, Instant)>,
    known: KnownAccounts,
}

/// The decrypted keys of the stored accounts, by name.
type KnownAccounts = HashMap<String, DecryptedKeys>;

/// The decrypted keys of an account, and the times that show whether the stored keys have changed since.
#[derive(Debug)]
struct DecryptedKeys {
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
        configured: AccountSet,
    ) -> Result<Self, OperatorError> {
        let unread = |failure| match failure {
            Failure::Fault(fault) => OperatorError::Unread(fault),
            Failure::Refused(_) => OperatorError::Unread(Fault::Other),
        };
        match (&master, store.accounts().await) {
            (Some(master), stored) => check_master_key(master, &stored.map_err(unread)?)?,
            (None, Ok(stored)) if !stored.is_empty() => tracing::warn!(
                "{} accounts in the database are not served, because there is no --master-key; `rowhouse account list` \
                 names them",
                stored.len()
            ),
            // Without a master key, the server needs no stored accounts.
            (None, _) => {}
        }
        let follower = Self::new(master, Some(configured));
        follower.follow(store).await.map_err(unread)?;
        Ok(follower)
    }

    /// Returns a follower of the read replica, with an empty snapshot.
    pub fn for_replica() -> Self {
        Self::new(None, None)
    }

    fn new(master: Option<MasterKeys>, configured: Option<AccountSet>) -> Self {
        let served = ArcSwap::from_pointee(configured.clone().unwrap_or_default());
        Self { master, configured, served, indexes: ArcSwap::default(), last: Mutex::default() }
    }

    /// Returns the current snapshot.
    pub fn accounts(&self) -> Arc<AccountSet> {
        self.served.load_full()
    }

    pub fn indexes(&self) -> Arc<IndexCatalog> {
        self.indexes.load_full()
    }

    pub fn master(&self) -> Option<&MasterKeys> {
        self.master.as_ref()
    }

    /// Whether the settings define an account of this name, which overrides a stored account.
    pub fn is_configured(&self, name: &str) -> bool {
        self.configured.as_ref().is_some_and(|configured| configured.keys(name).is_some())
    }

    /// Reloads the snapshot if it is stale, and returns whether the counters have changed. A key that cannot be
    /// decrypted keeps its last known value; a key without one is not served.
    pub(crate) async fn follow(&self, store: &Store) -> Result<bool, Failure> {
        let mut last = self.last.lock().await;
        // The counters are read first, so that the next poll notices a change between the two reads.
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
            last.known = decrypt_all(master, &last.known, &store.accounts().await?);
        }
        let set = self.build_snapshot(&last.known, &store.account_options().await?);
        self.served.store(Arc::new(set));
        last.count = Some((changes, Instant::now()));
        Ok(seen.is_some_and(|seen| changes != seen))
    }

    /// Loads a change that this server has stored. If loading fails, the next poll loads the change.
    pub async fn follow_own_change(&self, store: &Store) {
        if !matches!(timeout(FOLLOW_TIMEOUT, self.follow(store)).await, Ok(Ok(_))) {
            tracing::warn!(
                "a change of an account or an index is stored, but could not be loaded yet; will retry"
            );
        }
    }

    /// Builds the snapshot: all accounts with their options.
    fn build_snapshot(&self, known: &KnownAccounts, options: &[AccountOptions]) -> AccountSet {
        let mut set = match &self.configured {
            Some(configured) => configured.with_others(known.iter().map(|(name, opened)| {
                let keys = opened.keys.iter().flatten().filter(|_| !opened.disabled);
                (name.clone(), keys.cloned().collect())
            })),
            None => AccountSet::default()
                .with_others(options.iter().map(|account| (account.name.clone(), Vec::new()))),
        };
        for account in options {
            let limit = account.requests_per_second.and_then(NonZeroU32::new);
            set.set_options(&account.name, cors_rules(account), limit);
            if let Some(extended) = account.extended_queries {
                set.set_extended_queries(&account.name, extended);
            }
        }
        set
    }
}

/// Returns the CORS rules of an account, or none if its properties cannot be parsed.
fn cors_rules(account: &AccountOptions) -> Arc<[CorsRule]> {
    let read = account.properties.as_ref().and_then(|text| properties::from_stored(text).ok());
    read.and_then(|read| read.cors).unwrap_or_default().into()
}

fn decrypt_all(master: &MasterKeys, known: &KnownAccounts, stored: &[StoredAccount]) -> KnownAccounts {
    stored.iter().map(|account| (account.name.clone(), decrypt_or_keep(master, known, account))).collect()
}

/// Decrypts the keys of an account. If a key cannot be decrypted, its last known value stays in use, unless the key
/// was rotated since. For example, the key may be resealed with a master key that this server does not have yet.
fn decrypt_or_keep(master: &MasterKeys, known: &KnownAccounts, account: &StoredAccount) -> DecryptedKeys {
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
    DecryptedKeys { created, rotated, disabled, keys }
}
