//! Detects whether Citus distributes the entities over several servers.
//!
//! Each session checks the placement when it is opened, because the placement determines which plans are valid. Tables
//! can be distributed while servers run. Sessions opened before then fail and are replaced.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use crate::postgres::statements::{self, EntityStatements};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In one database.
    Single,
    /// On several servers, partitioned by the hash of the bucket.
    Distributed,
}

impl Placement {
    pub(crate) const fn statements(self) -> &'static EntityStatements {
        EntityStatements::of(matches!(self, Placement::Distributed))
    }

    /// Reads the placement from the Citus catalogue; `None` if there is no catalogue.
    async fn of(connection: &mut PgConnection) -> Result<Option<Self>, sqlx::Error> {
        let known = sqlx::query_scalar(statements::HAS_RELATION).bind(statements::CITUS_TABLES);
        if !known.persistent(false).fetch_one(&mut *connection).await? {
            return Ok(None);
        }
        let listed = sqlx::query(statements::IS_DISTRIBUTED).bind("entities").persistent(false);
        let listed = listed.fetch_optional(connection).await?;
        Ok(Some(if listed.is_some() { Placement::Distributed } else { Placement::Single }))
    }
}

/// The most recently read placement.
#[derive(Debug, Default)]
pub(crate) struct KnownPlacement {
    is_distributed: AtomicBool,
    has_catalogue: AtomicBool,
}

impl KnownPlacement {
    pub(crate) fn get(&self) -> Placement {
        if self.is_distributed.load(Ordering::Relaxed) { Placement::Distributed } else { Placement::Single }
    }

    /// Whether entities are distributed or may become so.
    pub(crate) fn may_be_distributed(&self) -> bool {
        self.has_catalogue.load(Ordering::Relaxed)
    }

    /// Reads and remembers the current placement.
    pub(crate) async fn look(&self, connection: &mut PgConnection) -> Result<Placement, sqlx::Error> {
        let found = Placement::of(connection).await?;
        self.has_catalogue.store(found.is_some(), Ordering::Relaxed);
        let placement = found.unwrap_or(Placement::Single);
        self.is_distributed.store(placement == Placement::Distributed, Ordering::Relaxed);
        Ok(placement)
    }

    /// Whether a statement that found no plan may have failed because entities were distributed after its session was
    /// opened. `opened` is the placement that the session found. Without Citus, every statement finds a plan.
    pub(crate) fn is_outdated(&self, opened: Placement) -> bool {
        opened == Placement::Single || opened != self.get()
    }
}
