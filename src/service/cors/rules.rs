//! An account's CORS rules for an answer, as the cache has them or the database.

use std::sync::Arc;
use std::time::Duration;

use tokio::spawn;
use tokio::time::{Instant, timeout_at};

use super::cache::{Age, Memory};
use crate::codec::properties::{self, CorsRule};
use crate::request::{Head, Target};
use crate::service::{CachedStore, Service};
use crate::store::Backend as _;

/// How long an answer waits for rules that it can do without.
const MAX_WAIT: Duration = Duration::from_millis(250);

impl Service {
    /// The account's rules. They are never a reason to fail a request, and none to let it
    /// wait long unless a page wants to see it, which waits up to `until`.
    pub(in crate::service) async fn cors_rules(
        self: &Arc<Self>,
        head: &Head<'_>,
        target: &Target,
        until: Instant,
    ) -> Arc<[CorsRule]> {
        let from_page = head.header("origin").is_some();
        if !from_page && !matches!(head.method.as_ref(), "GET" | "OPTIONS") {
            return Arc::default();
        }
        let soon = || Instant::now() + MAX_WAIT;
        let for_page = || if from_page { until.max(soon()) } else { soon() };
        let cors = &self.store_of(target).cors;
        loop {
            let (stale, age, until) = match cors.get(&target.account) {
                Memory::Fresh(rules) => return rules,
                Memory::Old(rules, age) => (Some(rules), age, soon()),
                Memory::Unknown(age) => (None, age, for_page()),
                Memory::Asked => {
                    if Box::pin(timeout_at(for_page(), cors.told(&target.account))).await.is_err() {
                        return Arc::default();
                    }
                    continue;
                }
            };
            let (service, target) = (Arc::clone(self), target.clone());
            // Goes on when nobody waits for it any more: a statement that is given up
            // costs a connection.
            let read = spawn(async move { service.read_cors_rules(&target, age).await });
            return match Box::pin(timeout_at(until, read)).await {
                Ok(Ok(Some(rules))) => rules,
                _ => stale.unwrap_or_default(),
            };
        }
    }

    /// Reads an account's rules, and remembers them.
    async fn read_cors_rules(&self, target: &Target, age: Age) -> Option<Arc<[CorsRule]>> {
        let CachedStore { store, cors } = self.store_of(target);
        let Ok(stored) = store.properties(&target.account).await else {
            cors.failed(&target.account);
            return None;
        };
        let read = stored.and_then(|text| properties::from_stored(&text).ok()).unwrap_or_default();
        let rules: Arc<[CorsRule]> = read.cors.unwrap_or_default().into();
        cors.put(&target.account, Arc::clone(&rules), age);
        Some(rules)
    }
}
