//! Whether Citus distributes the entities over several servers.
//!
//! Each session looks when it is opened, because the plans that it may make depend on it.
//! Tables can be distributed while servers run: a session that was opened before then fails, and
//! is replaced.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use crate::postgres::statements::{self, EntityStatements};

/// Where the entities are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In one database.
    Single,
    /// On several servers, by the hash of the bucket.
    Distributed,
}

impl Placement {
    /// The statements for it.
    pub(crate) const fn statements(self) -> &'static EntityStatements {
        EntityStatements::of(matches!(self, Placement::Distributed))
    }

    /// Looks into the catalogue; `None` if there is none.
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

/// What the last look found.
#[derive(Debug, Default)]
pub(crate) struct KnownPlacement {
    is_distributed: AtomicBool,
    /// Whether there is a catalogue of Citus.
    has_catalogue: AtomicBool,
}

impl KnownPlacement {
    pub(crate) fn get(&self) -> Placement {
        if self.is_distributed.load(Ordering::Relaxed) { Placement::Distributed } else { Placement::Single }
    }

    /// Whether entities are distributed or may come to be.
    pub(crate) fn may_be_distributed(&self) -> bool {
        self.has_catalogue.load(Ordering::Relaxed)
    }

    /// Looks where the entities are now.
    pub(crate) async fn look(&self, connection: &mut PgConnection) -> Result<Placement, sqlx::Error> {
        let found = Placement::of(connection).await?;
        self.has_catalogue.store(found.is_some(), Ordering::Relaxed);
        let placement = found.unwrap_or(Placement::Single);
        self.is_distributed.store(placement == Placement::Distributed, Ordering::Relaxed);
        Ok(placement)
    }

    /// Whether a statement that found no plan may have failed because entities were distributed
    /// since its session was opened, `opened` being what that session found. Without Citus, every
    /// statement finds one.
    pub(crate) fn is_outdated(&self, opened: Placement) -> bool {
        opened == Placement::Single || opened != self.get()
    }
}
