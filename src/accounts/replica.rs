//! The CORS rules that a read replica has, which answers of the secondary follow.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::follow::{LastCount, rules_of};
use crate::codec::properties::CorsRule;
use crate::store::{Backend, Failure};

/// The CORS rules of accounts as a replica was last read.
#[derive(Debug, Default)]
pub(crate) struct ReplicaRules {
    rules: ArcSwap<HashMap<String, Arc<[CorsRule]>>>,
    last: Mutex<Option<LastCount>>,
}

impl ReplicaRules {
    /// The rules of an account; none before the replica was read.
    pub(crate) fn of(&self, account: &str) -> Arc<[CorsRule]> {
        self.rules.load().get(account).map(Arc::clone).unwrap_or_default()
    }

    /// Reads the rules again if they have changed.
    ///
    /// # Errors
    /// Those of the store; the rules stay.
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
        *last = Some(LastCount::now(changes));
        Ok(())
    }
}
