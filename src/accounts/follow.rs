//! How a server notices what became of the stored accounts.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::open;
use crate::auth::AccountSet;
use crate::auth::accounts::AccountKey;
use crate::auth::seal::MasterKey;
use crate::store::{Backend, Failure, Fault, StoredAccount};

/// Why the stored accounts cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
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
pub fn check(master: &MasterKey, stored: &[StoredAccount]) -> Result<(), LoadError> {
    let closed = stored.iter().find(|account| open(master, account).is_none());
    closed.map_or(Ok(()), |account| Err(LoadError::MasterKey(account.name.clone())))
}

/// Follows the stored accounts, beside those of the settings.
#[derive(Debug)]
pub struct Follower {
    master: MasterKey,
    /// The accounts of the settings, which win.
    given: AccountSet,
    /// The count of changes that was last served. Held while accounts are read
    /// and replaced, so that older ones never replace newer ones.
    seen: Mutex<i64>,
}

impl Follower {
    /// Reads the accounts for the first time.
    ///
    /// # Errors
    /// [`LoadError`], since a server that cannot open its accounts is not to
    /// start.
    pub async fn start<B: Backend>(
        store: &B,
        master: MasterKey,
        given: AccountSet,
    ) -> Result<(Self, AccountSet), LoadError> {
        // The count first: a change in between is then seen as one to come.
        let seen = store.account_changes().await?;
        let stored = store.accounts().await?;
        check(&master, &stored)?;
        let follower = Self { master, given, seen: Mutex::new(seen) };
        let set = follower.set(&stored);
        Ok((follower, set))
    }

    /// What the stored keys are encrypted under.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// Whether the settings have an account of this name, which then wins.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.keys(name).is_some()
    }

    /// Replaces the accounts that are served, if they have changed since, and
    /// says whether they have. One whose keys do not open is refused like a
    /// disabled one; a server that runs goes on with the others.
    ///
    /// # Errors
    /// Those of the store; the accounts of before are then the best known.
    pub async fn follow<B: Backend>(&self, store: &B, served: &ArcSwap<AccountSet>) -> Result<bool, Failure> {
        let mut seen = self.seen.lock().await;
        let changes = store.account_changes().await?;
        if changes == *seen {
            return Ok(false);
        }
        let stored = store.accounts().await?;
        served.store(Arc::new(self.set(&stored)));
        *seen = changes;
        Ok(true)
    }

    fn set(&self, stored: &[StoredAccount]) -> AccountSet {
        self.given.beside(stored.iter().map(|account| {
            let keys = open(&self.master, account);
            if keys.is_none() {
                tracing::error!(account = account.name, "the master key does not open this account's keys");
            }
            let keys: Vec<AccountKey> = keys
                .filter(|_| !account.disabled)
                .into_iter()
                .flatten()
                .filter_map(AccountKey::new)
                .collect();
            (account.name.clone(), keys)
        }))
    }
}
