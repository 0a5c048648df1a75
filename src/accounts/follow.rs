//! What a server knows of its accounts, and how it follows changes of it: keys and state, CORS
//! rules and limits. There is one snapshot. A counter in the database says when to read it again.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::open;
use crate::auth::AccountSet;
use crate::auth::accounts::AccountKey;
use crate::auth::seal::{KeySlot, MasterKeys};
use crate::codec::properties::{self, CorsRule};
use crate::model::Ticks;
use crate::store::{AccountOptions, Backend, ChangeCounts, Failure, Fault, StoredAccount};

/// Why the stored accounts cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(
        "--master-key: does not open the keys of the account {0} in the database: give the key that they \
         were stored under, or remove the account with `rowhouse account remove {0}`"
    )]
    MasterKey(String),
    #[error("the accounts cannot be read from the database ({0:?})")]
    Store(Fault),
}

impl From<Failure> for LoadError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => LoadError::Store(fault),
            Failure::Refused(_) => LoadError::Store(Fault::Other),
        }
    }
}

/// Whether all accounts open with the master key.
///
/// # Errors
/// [`LoadError::MasterKey`] for the first that does not.
pub(crate) fn check(master: &MasterKeys, stored: &[StoredAccount]) -> Result<(), LoadError> {
    let closed = stored.iter().find(|account| open(master, account).is_none());
    closed.map_or(Ok(()), |account| Err(LoadError::MasterKey(account.name.clone())))
}

/// Limits and service properties are read again after this time, even if nothing was counted:
/// older servers over the same database do not count changes of service properties.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long a request waits until this server follows what it has changed.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows the accounts of the database and of the settings.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Without one, only the accounts of the settings are served.
    master: Option<MasterKeys>,
    /// The accounts of the settings, which win.
    given: AccountSet,
    /// What requests see. A request keeps the snapshot that it began with.
    served: ArcSwap<AccountSet>,
    /// Held while accounts are read and replaced, so that older ones never replace newer ones.
    last: Mutex<LastRead>,
}

/// What was last read.
#[derive(Debug)]
struct LastRead {
    count: LastCount,
    known: KnownAccounts,
}

/// The count of changes at the last reading, and when that was.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastCount {
    changes: ChangeCounts,
    at: Instant,
}

impl LastCount {
    pub(super) fn now(changes: ChangeCounts) -> Self {
        Self { changes, at: Instant::now() }
    }

    /// Whether nothing has to be read again.
    pub(super) fn is_current(self, changes: ChangeCounts) -> bool {
        changes == self.changes && self.at.elapsed() < MAX_AGE
    }
}

/// What is known of the stored accounts, by name.
type KnownAccounts = HashMap<String, OpenedKeys>;

/// The keys of an account, as far as they have opened, and what tells whether
/// they still are its keys.
#[derive(Debug)]
struct OpenedKeys {
    created: Ticks,
    rotated: [Ticks; 2],
    disabled: bool,
    keys: [Option<AccountKey>; 2],
}

impl Follower {
    /// Reads the accounts for the first time.
    ///
    /// # Errors
    /// [`LoadError`]: a server that cannot open its accounts must not start.
    pub(crate) async fn start<B: Backend>(
        store: &B,
        master: Option<MasterKeys>,
        given: AccountSet,
    ) -> Result<Self, LoadError> {
        // The count first: a change in between is then seen as one to come.
        let changes = store.account_changes().await?;
        let nothing = LastRead { count: LastCount::now(changes), known: KnownAccounts::new() };
        let mut follower =
            Self { master, served: ArcSwap::from_pointee(given.clone()), given, last: Mutex::new(nothing) };
        let mut known = KnownAccounts::new();
        if let Some(master) = &follower.master {
            let stored = store.accounts().await?;
            check(master, &stored)?;
            known = opened(master, &known, &stored);
        }
        follower.served.store(Arc::new(follower.set(&known, &store.account_options().await?)));
        follower.last.get_mut().known = known;
        Ok(follower)
    }

    /// The accounts as last read.
    pub(crate) fn accounts(&self) -> Arc<AccountSet> {
        self.served.load_full()
    }

    /// What the stored keys are encrypted under.
    pub(crate) fn master(&self) -> Option<&MasterKeys> {
        self.master.as_ref()
    }

    /// Whether the settings have an account of this name, which then wins.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.keys(name).is_some()
    }

    /// Replaces the snapshot if anything has changed since it was read, and says whether it has.
    /// A key that does not open stays what it was; one that was not known before is not served.
    ///
    /// # Errors
    /// Those of the store; the snapshot stays.
    pub(crate) async fn follow<B: Backend>(&self, store: &B) -> Result<bool, Failure> {
        let mut last = self.last.lock().await;
        let changes = store.account_changes().await?;
        if last.count.is_current(changes) {
            return Ok(false);
        }
        let before = last.count.changes;
        if let Some(master) = self.master.as_ref().filter(|_| changes.accounts != before.accounts) {
            last.known = opened(master, &last.known, &store.accounts().await?);
        }
        let set = self.set(&last.known, &store.account_options().await?);
        self.served.store(Arc::new(set));
        last.count = LastCount::now(changes);
        Ok(changes != before)
    }

    /// Follows a change that this server has made. If that fails, it is followed in a moment:
    /// what is done is done.
    pub(crate) async fn follow_own_change<B: Backend>(&self, store: &B) {
        if !matches!(timeout(FOLLOW_TIMEOUT, self.follow(store)).await, Ok(Ok(_))) {
            tracing::warn!("a change of an account is not served yet");
        }
    }

    /// The snapshot: all accounts with their options.
    fn set(&self, known: &KnownAccounts, options: &[AccountOptions]) -> AccountSet {
        let stored = known.iter().map(|(name, opened)| {
            let keys = opened.keys.iter().flatten().filter(|_| !opened.disabled);
            (name.clone(), keys.cloned().collect())
        });
        let mut set = self.given.beside(stored);
        for account in options {
            let limit = account.requests_per_second.and_then(NonZeroU32::new);
            set.set_options(&account.name, rules_of(account), limit);
        }
        set
    }
}

/// The CORS rules of an account; none where its properties are not readable.
pub(super) fn rules_of(account: &AccountOptions) -> Arc<[CorsRule]> {
    let read = account.properties.as_ref().and_then(|text| properties::from_stored(text).ok());
    read.and_then(|read| read.cors).unwrap_or_default().into()
}

fn opened(master: &MasterKeys, known: &KnownAccounts, stored: &[StoredAccount]) -> KnownAccounts {
    stored.iter().map(|account| (account.name.clone(), opened_keys(master, known, account))).collect()
}

/// The keys of an account. Those that do not open, because they were sealed
/// again under a master key that this server is yet to be given, are still
/// what they were; a key that was made since is not known.
fn opened_keys(master: &MasterKeys, known: &KnownAccounts, account: &StoredAccount) -> OpenedKeys {
    let before = known.get(&account.name).filter(|opened| opened.created == account.created);
    let keys = KeySlot::BOTH.map(|slot| {
        let at = slot.index();
        let opened = master.open(&account.name, slot, &account.keys[at]);
        opened.and_then(AccountKey::new).or_else(|| {
            let same = before.filter(|opened| opened.rotated[at] == account.rotated[at]);
            let kept = same.and_then(|opened| opened.keys[at].clone());
            let (account, kept_on) = (&account.name, kept.is_some());
            tracing::error!(account, key = at + 1, kept_on, "the master key does not open a key");
            kept
        })
    });
    let StoredAccount { created, rotated, disabled, .. } = *account;
    OpenedKeys { created, rotated, disabled, keys }
}
