//! One write in as few round trips as it takes.
//!
//! Most writes speculate: one statement carries the guard under which
//! `plan::decide` would say yes, and commits by itself. Where the guard fails,
//! the row is read and `decide` names the error; where `decide` says yes after
//! all, the row has changed in between and the write is tried again. A merge has
//! to read first.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::catalog::{Facts, exists};
use super::fault::{Effect, Trouble};
use super::jsonb::JsonText;
use super::pool::{Lease, Statement};
use super::read::{broken_row, read, ticks, version};
use super::{Attempt, PgStore, statements};
use crate::model::entity::StoredProperties;
use crate::model::{IfMatch, Stored, Ticks};
use crate::plan::{Change, Write, WriteKind, Written, decide};
use crate::store::{Failure, Fault, StoreResult};

/// Races to lose before the row is locked.
const LOST_RACES: usize = 3;

/// One write of one entity.
pub struct One<'a> {
    pub write: &'a Write,
    pub now: Ticks,
}

impl Attempt for One<'_> {
    type Done = Written;

    async fn run(&self, store: &PgStore, facts: Facts) -> StoreResult<Option<Written>> {
        let mut lease = store.pool.acquire().await?;
        for _ in 0..LOST_RACES {
            if let Some(assumed) = self.assumption() {
                let change = match decide(self.write, assumed.as_ref(), self.now) {
                    Ok(change) => change,
                    // Refused whatever is stored; a missing table comes first.
                    Err(error) if exists(&mut lease, facts).await? => return Err(error.into()),
                    Err(_) => return Ok(None),
                };
                let row = lease.row(self.speculate(facts, &change), Effect::Unknown).await?;
                if let Some(row) = row {
                    return Ok(Some(written(&row, &change)?));
                }
            }
            let Some(found) = read(&mut lease, facts, &self.write.key).await? else { return Ok(None) };
            let change = decide(self.write, found.as_ref(), self.now)?;
            if matches!(self.write.kind, WriteKind::Merge(_)) {
                let statement = self.guarded(facts, &change, found.as_ref());
                if let Some(row) = lease.row(statement, Effect::Unknown).await? {
                    return Ok(Some(written(&row, &change)?));
                }
            }
        }
        lease.begin().await?;
        let result = self.locked(&mut lease, facts).await;
        match result {
            Ok(Some(written)) => {
                lease.commit().await?;
                Ok(Some(written))
            }
            other => {
                lease.roll_back().await;
                other
            }
        }
    }
}

impl One<'_> {
    /// What has to be stored for the write to succeed, if that can be said
    /// without looking and does not change what is written.
    fn assumption(&self) -> Option<Option<Stored>> {
        let some = |modified| Some(Some(self.stand_in(modified)));
        match self.write.kind {
            WriteKind::Insert | WriteKind::Replace(IfMatch::Absent) => Some(None),
            WriteKind::Merge(_) => None,
            WriteKind::Replace(condition) | WriteKind::Delete(condition) => match condition {
                IfMatch::Absent | IfMatch::Any => some(Ticks::MIN),
                IfMatch::Version(wanted) => wanted.and_then(some),
            },
        }
    }

    fn stand_in(&self, modified: Ticks) -> Stored {
        let properties = StoredProperties::from_stored_text("{}".into());
        Stored { key: self.write.key.clone(), modified, properties }
    }

    fn speculate<'q>(&'q self, facts: Facts, change: &'q Change) -> Statement<'q> {
        match (self.write.kind, change) {
            (WriteKind::Insert, Change::Put { properties, .. }) => {
                self.put(statements::INSERT, facts, properties)
            }
            (WriteKind::Replace(IfMatch::Absent), Change::Put { properties, .. }) => {
                self.put(statements::UPSERT, facts, properties)
            }
            (kind, Change::Put { properties, .. }) => {
                self.put(statements::UPDATE, facts, properties).bind(wanted(kind))
            }
            (kind, Change::Delete) => self.address(statements::DELETE, facts).bind(wanted(kind)),
        }
    }

    /// The change, provided that what was found is still what is stored.
    fn guarded<'q>(&'q self, facts: Facts, change: &'q Change, found: Option<&Stored>) -> Statement<'q> {
        let guard = found.map(|f| f.modified.raw());
        match (change, guard) {
            (Change::Put { properties, .. }, None) => self.put(statements::INSERT, facts, properties),
            (Change::Put { properties, .. }, guard) => {
                self.put(statements::UPDATE, facts, properties).bind(guard)
            }
            (Change::Delete, guard) => self.address(statements::DELETE, facts).bind(guard),
        }
    }

    async fn locked(&self, lease: &mut Lease<'_>, facts: Facts) -> StoreResult<Option<Written>> {
        let row = lease.row(self.address(statements::LOCK_ONE, facts), Effect::Undone).await?;
        let found = row.map(|row| version(&row, self.write.key.clone())).transpose()?;
        if found.is_none() && !exists(lease, facts).await? {
            return Ok(None);
        }
        let change = decide(self.write, found.as_ref(), self.now)?;
        let row = lease.row(self.guarded(facts, &change, found.as_ref()), Effect::Undone).await?;
        match row {
            Some(row) => Ok(Some(written(&row, &change)?)),
            // Inserted by another, or the table went, since the look.
            None => Err(Failure::Fault(Fault::Serialization)),
        }
    }

    fn put<'q>(
        &'q self,
        text: &'static str,
        facts: Facts,
        properties: &'q StoredProperties,
    ) -> Statement<'q> {
        self.address(text, facts).bind(self.now.raw()).bind(JsonText(properties.as_str()))
    }

    fn address(&self, text: &'static str, facts: Facts) -> Statement<'_> {
        let key = &self.write.key;
        sqlx::query(text)
            .bind(facts.bucket(&key.partition))
            .bind(&key.partition)
            .bind(&key.row)
            .bind(facts.table_no)
    }
}

fn wanted(kind: WriteKind) -> Option<i64> {
    match kind {
        WriteKind::Replace(IfMatch::Version(wanted)) | WriteKind::Delete(IfMatch::Version(wanted)) => {
            wanted.map(Ticks::raw)
        }
        _ => None,
    }
}

fn written(row: &PgRow, change: &Change) -> Result<Written, Trouble> {
    let modified = match change {
        Change::Put { .. } => Some(ticks(row.try_get("modified").map_err(broken_row)?)?),
        Change::Delete => None,
    };
    Ok(Written { modified })
}
