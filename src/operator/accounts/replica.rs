//! The CORS rules and property indexes that the read replica has. Answers of the secondary use them.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::follow::{LastCount, rules_of};
use crate::operator::indexes::IndexCatalog;
use crate::protocol::codec::properties::CorsRule;
use crate::store::{Backend, Failure};

/// The CORS rules by account, as last read from the replica.
#[derive(Debug, Default)]
pub(crate) struct ReplicaRules {
    rules: ArcSwap<HashMap<String, Arc<[CorsRule]>>>,
    /// The indexes that the replica has: it may lag behind.
    indexes: ArcSwap<IndexCatalog>,
    last: Mutex<Option<LastCount>>,
}

impl ReplicaRules {
    /// The rules of an account; none before the first read of the replica.
    pub(crate) fn of(&self, account: &str) -> Arc<[CorsRule]> {
        self.rules.load().get(account).map(Arc::clone).unwrap_or_default()
    }

    /// The property indexes of the replica.
    pub(crate) fn indexes(&self) -> Arc<IndexCatalog> {
        self.indexes.load_full()
    }

    /// Reloads the rules and indexes if they are stale.
    ///
    /// # Errors
    /// Errors of the store. The rules and indexes stay in use.
    pub(crate) async fn follow<B: Backend>(&self, replica: &B) -> Result<(), Failure> {
        let mut last = self.last.lock().await;
        let changes = replica.account_changes().await?;
        if last.is_some_and(|last| last.is_current(changes)) {
            return Ok(());
        }
        let options = replica.account_options().await?;
        let rules = options.into_iter().map(|options| {
            let rules = rules_of(&options);
            (options.name, rules)
        });
        self.rules.store(Arc::new(rules.collect()));
        self.indexes.store(Arc::new(IndexCatalog::new(replica.indexes().await?)));
        *last = Some(LastCount::now(changes));
        Ok(())
    }
}
