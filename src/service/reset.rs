//! Resets and snapshots for test suites. The store resets and restores the data; this module drops cached values.

use uuid::Uuid;

use super::Service;
use crate::error::{Error, Result};
use crate::protocol::model::Ticks;
use crate::store::StoreSnapshot;

impl Service {
    /// Empties one account. Without an account, empties all accounts and removes the fault rules.
    pub(crate) async fn reset(&self, account: Option<&str>) -> Result<()> {
        self.primary.reset(account, Ticks::now()).await.map_err(Error::from)?;
        if account.is_none() {
            self.fault_rules.clear();
        }
        self.follow_properties().await;
        Ok(())
    }

    /// Takes a snapshot of one account or of all accounts, and returns its name. Returns `None` if there are
    /// already [`crate::store::contract::reset::MAX_SNAPSHOTS`].
    pub(crate) async fn take_snapshot(&self, account: Option<&str>) -> Result<Option<String>> {
        let name = Uuid::new_v4().simple().to_string();
        let taken = self.primary.take_snapshot(&name, account, Ticks::now()).await;
        Ok(taken.map_err(Error::from)?.then_some(name))
    }

    /// Restores a snapshot. Returns `false` if none has this name.
    pub(crate) async fn restore_snapshot(&self, name: &str) -> Result<bool> {
        let restored = self.primary.restore_snapshot(name, Ticks::now()).await;
        let restored = restored.map_err(Error::from)?;
        self.follow_properties().await;
        Ok(restored)
    }

    /// Drops a snapshot. Returns `false` if none has this name.
    pub(crate) async fn drop_snapshot(&self, name: &str) -> Result<bool> {
        self.primary.drop_snapshot(name).await.map_err(Error::from)
    }

    /// Lists the snapshots, the oldest first.
    pub(crate) async fn snapshots(&self) -> Result<Vec<StoreSnapshot>> {
        self.primary.snapshots().await.map_err(Error::from)
    }

    /// Reloads the service properties from the database.
    async fn follow_properties(&self) {
        self.follower.follow_own_change(&self.primary).await;
    }
}
