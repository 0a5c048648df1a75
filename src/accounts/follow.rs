//! How a server notices what became of the stored accounts.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::open;
use crate::auth::AccountSet;
use crate::auth::accounts::AccountKey;
use crate::auth::seal::{KeySlot, MasterKeys};
use crate::model::Ticks;
use crate::store::{Backend, Failure, Fault, StoredAccount};

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

/// Follows the stored accounts, beside those of the settings.
#[derive(Debug)]
pub(crate) struct Follower {
    master: MasterKeys,
    /// The accounts of the settings, which win.
    given: AccountSet,
    /// What was last served. Held while accounts are read and replaced, so that
    /// older ones never replace newer ones.
    last: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The count of changes.
    changes: i64,
    known: KnownAccounts,
}

/// What is known of the stored accounts, by name.
type KnownAccounts = HashMap<String, Learnt>;

/// The keys of an account, as far as they have opened, and what tells whether
/// they still are its keys.
#[derive(Debug)]
struct Learnt {
    created: Ticks,
    rotated: [Ticks; 2],
    keys: [Option<AccountKey>; 2],
}

impl Follower {
    /// Reads the accounts for the first time.
    ///
    /// # Errors
    /// [`LoadError`], since a server that cannot open its accounts is not to
    /// start.
    pub(crate) async fn start<B: Backend>(
        store: &B,
        master: MasterKeys,
        given: AccountSet,
    ) -> Result<(Self, AccountSet), LoadError> {
        // The count first: a change in between is then seen as one to come.
        let changes = store.account_changes().await?;
        let stored = store.accounts().await?;
        check(&master, &stored)?;
        let last = Mutex::new(Seen { changes, known: KnownAccounts::new() });
        let mut follower = Self { master, given, last };
        let (set, known) = follower.set(&KnownAccounts::new(), &stored);
        follower.last.get_mut().known = known;
        Ok((follower, set))
    }

    /// What the stored keys are encrypted under.
    pub(crate) fn master(&self) -> &MasterKeys {
        &self.master
    }

    /// Whether the settings have an account of this name, which then wins.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.keys(name).is_some()
    }

    /// Replaces the accounts that are served, if they have changed since, and
    /// says whether they have. A key that does not open stays what it was; one
    /// that was not known before is not served.
    ///
    /// # Errors
    /// Those of the store; the accounts of before are then the best known.
    pub(crate) async fn follow<B: Backend>(
        &self,
        store: &B,
        served: &ArcSwap<AccountSet>,
    ) -> Result<bool, Failure> {
        let mut last = self.last.lock().await;
        let changes = store.account_changes().await?;
        if changes == last.changes {
            return Ok(false);
        }
        let stored = store.accounts().await?;
        let (set, known) = self.set(&last.known, &stored);
        served.store(Arc::new(set));
        *last = Seen { changes, known };
        Ok(true)
    }

    /// What is served of the stored accounts, and what is then known of them.
    fn set(&self, known: &KnownAccounts, stored: &[StoredAccount]) -> (AccountSet, KnownAccounts) {
        let known: KnownAccounts =
            stored.iter().map(|account| (account.name.clone(), self.learn(known, account))).collect();
        let set = self.given.beside(stored.iter().map(|account| {
            let keys = known.get(&account.name).filter(|_| !account.disabled);
            let keys = keys.into_iter().flat_map(|learnt| learnt.keys.iter().flatten().cloned());
            (account.name.clone(), keys.collect())
        }));
        (set, known)
    }

    /// The keys of an account. Those that do not open, because they were sealed
    /// anew under a master key that this server is yet to be given, are still
    /// what they were; a key that was made since is not known.
    fn learn(&self, known: &KnownAccounts, account: &StoredAccount) -> Learnt {
        let before = known.get(&account.name).filter(|learnt| learnt.created == account.created);
        let keys = KeySlot::BOTH.map(|slot| {
            let at = slot.index();
            let opened = self.master.open(&account.name, slot, &account.keys[at]);
            opened.and_then(AccountKey::new).or_else(|| {
                let same = before.filter(|learnt| learnt.rotated[at] == account.rotated[at]);
                let kept = same.and_then(|learnt| learnt.keys[at].clone());
                let (account, kept_on) = (&account.name, kept.is_some());
                tracing::error!(account, key = at + 1, kept_on, "the master key does not open a key");
                kept
            })
        });
        Learnt { created: account.created, rotated: account.rotated, keys }
    }
}
