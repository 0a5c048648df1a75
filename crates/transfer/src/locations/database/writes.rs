//! Writes entities with their Timestamps.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    ATTEMPTS, LocalDatabase, SERVICE_PROPERTIES, describe, error_text, ignore, is_busy, parse_table_name,
    retry,
};
use crate::contract::{Counts, Mode, TransferSource as _, TransferTarget, WritePage};
use crate::error::{TransferResult, failed};
use crate::locations::PageOutcome;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::codec::stored;
use crate::protocol::codec::validated::ValidatedProperties;
use crate::protocol::error::{Code, Error};
use crate::protocol::model::entity::{PropertyOrder, StoredProperties};
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{EdmValue, IfMatch, Key, Stored, TableName, Ticks};
use crate::protocol::plan::{Write, WriteKind};
use crate::rows::range::RowRange;
use crate::rows::{Row, Version};
use crate::store::{Failure, Load, LoadMark, Store};

/// How far a Timestamp may be ahead of the clock, because clocks differ. Later versions of an entity are greater, so
/// they could never return to the present.
const MAX_AHEAD_TICKS: i64 = 24 * 3600 * TICKS_PER_SECOND;
/// The subject of errors about the marks.
const MARKS: &str = "the marks of the copy";
/// Maximum number of concurrent writes of a page. The queues of the stores have room for them.
const IN_FLIGHT: usize = 256;

impl TransferTarget for LocalDatabase {
    fn has_entities(&self, table: &str) -> TransferResult<Option<bool>> {
        match self.probe(table, &RowRange::everything()) {
            Ok(found) => Ok(Some(found.is_some())),
            Err(_) if !self.tables()?.iter().any(|name| name.eq_ignore_ascii_case(table)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete_table(&self, table: &str) -> TransferResult<()> {
        let now = Ticks::now();
        self.run_on(table, async |store, table| {
            ignore(store.delete_table(table, now).await, &[Code::TableNotFound, Code::ResourceNotFound])
        })
    }

    fn create(&self, table: &str) -> TransferResult<bool> {
        let now = Ticks::now();
        self.run_on(table, async |store, table| match store.create_table(table, now).await {
            Err(Failure::Refused(error)) if error.code == Code::TableAlreadyExists => Ok(false),
            created => created.map(|()| true),
        })
    }

    fn write(&self, mut page: WritePage<'_>) -> TransferResult<Counts> {
        let table = parse_table_name(page.table)?;
        let rows = std::mem::take(&mut page.rows);
        let mut writer = LoadWriter { database: self, table, outcome: PageOutcome::new(&page) };
        let rows = writer.deduplicate(rows)?;
        match page.mode {
            Mode::Merge => writer.merge_all(rows)?,
            _ => writer.load_all(rows)?,
        }
        Ok(writer.outcome.counts)
    }

    fn marks(&self, copy: &str) -> TransferResult<Option<Vec<LoadMark>>> {
        self.run(MARKS, async |store| store.marks(copy).await.map(Some))
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        let name = parse_table_name(table)?;
        let mut deleted = 0;
        for chunk in entities.chunks(IN_FLIGHT) {
            let now = Ticks::now();
            let writes: Vec<Write> = chunk
                .iter()
                .map(|(key, version)| delete_of(key, version))
                .collect::<crate::protocol::error::Result<_>>()
                .map_err(|error| describe(table, error.into()))?;
            let work = writes.iter().map(|write| {
                retry(async || self.store.write(name.in_account(&self.account), write, now).await)
            });
            for outcome in self.runtime.block_on(join_all(work)) {
                match outcome {
                    Ok(_) => deleted += 1,
                    Err(Failure::Refused(error))
                        if matches!(
                            error.code,
                            Code::ResourceNotFound | Code::UpdateConditionNotSatisfied
                        ) => {}
                    Err(failure) => return Err(describe(table, failure)),
                }
            }
        }
        Ok(deleted)
    }

    fn finish(&self, copy: &str, _origin: &str, _written: u64) -> TransferResult<()> {
        self.run(MARKS, async |store| store.forget_marks(copy).await)
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let text = policies::to_stored(policies).map_err(|error| describe(table, error.into()))?;
        self.run_on(table, async |store, table| store.set_policies(table, &text).await)
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let text =
            properties::to_stored(wanted).map_err(|error| describe(SERVICE_PROPERTIES, error.into()))?;
        self.run(SERVICE_PROPERTIES, async |store| store.set_properties(&self.account, &text).await)
    }
}

struct LoadWriter<'a, 'p> {
    database: &'a LocalDatabase,
    table: TableName,
    outcome: PageOutcome<'a, 'p>,
}

impl LoadWriter<'_, '_> {
    /// Returns the rows in key order, once each. Rejects rows with a Timestamp in the future, and rows with a key that
    /// occurs before with different properties.
    fn deduplicate(&mut self, mut rows: Vec<Row>) -> TransferResult<Vec<Row>> {
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let mut once: Vec<Row> = Vec::with_capacity(rows.len());
        let newest = Ticks::now().raw().saturating_add(MAX_AHEAD_TICKS);
        for row in rows {
            let is_ahead = row.modified.is_some_and(|modified| modified.raw() > newest);
            if is_ahead && !self.database.is_temporary {
                self.outcome.reject(&row, "its Timestamp lies in the future")?;
                continue;
            }
            match once.last().filter(|before| before.key == row.key) {
                None => once.push(row),
                Some(before) if before.has_properties_of(&row) => self.outcome.counts.unchanged += 1,
                Some(_) => self.outcome.reject(&row, "another entity has this key")?,
            }
        }
        Ok(once)
    }

    /// Stores the rows in one transaction, with the mark of the page.
    fn load_all(&mut self, mut rows: Vec<Row>) -> TransferResult<()> {
        // Another writer may add an entity before the next attempt.
        for _ in 0..ATTEMPTS {
            let count = rows.len() as u64;
            match self.load(&rows, self.mark(count)) {
                Ok(true) => {
                    self.outcome.counts.written += count;
                    return Ok(());
                }
                Ok(false) => rows = self.without_existing(rows)?,
                Err(Failure::Refused(error)) if error.code != Code::TableNotFound && count > 0 => {
                    rows = self.load_singly(rows)?;
                }
                Err(failure) => return Err(describe(self.outcome.page.table, failure)),
            }
        }
        Err(failed!(
            "{}: gave up after {ATTEMPTS} attempts: other writers keep inserting the same keys",
            self.outcome.page.table
        ))
    }

    fn load(&self, rows: &[Row], mark: Option<LoadMark>) -> Result<bool, Failure> {
        let now = Ticks::now();
        let stored = |row: &Row| -> Result<Stored, Failure> {
            let modified = row.modified.unwrap_or(now);
            Ok(Stored { key: row.key.clone(), modified, properties: self.properties_of(row)? })
        };
        let rows = rows.iter().map(stored).collect::<Result<_, _>>()?;
        let load = Arc::new(Load { rows, replaces: self.outcome.page.mode == Mode::Replace, mark });
        let LocalDatabase { store, account, runtime, .. } = self.database;
        let table = self.table.in_account(account);
        runtime.block_on(retry(async || store.load(table, &load).await))
    }

    /// Returns the properties in the order in which the database stores them: display order in SQLite.
    fn properties_of(&self, row: &Row) -> Result<StoredProperties, Failure> {
        let keeps_order = matches!(self.database.store.store, Store::Sqlite(_));
        match row.properties.order() {
            PropertyOrder::Ordinal if keeps_order => Ok(stored::encode(&row.properties_in_order()?)),
            _ => Ok(row.properties.clone()),
        }
    }

    /// Returns the mark of the page with `more` entities written, if the copy keeps marks.
    fn mark(&self, more: u64) -> Option<LoadMark> {
        let reached = self.outcome.page.last.clone()?;
        let Counts { written, unchanged, rejected } = self.outcome.counts;
        let counts = [written + more, unchanged, rejected + self.outcome.page.rejected];
        Some(LoadMark {
            copy: self.outcome.page.copy.to_owned(),
            range: self.outcome.page.range,
            reached,
            counts,
        })
    }

    /// Stores rows singly, and rejects the rows that the database refuses. Returns no rows, because only the mark is
    /// left to store.
    fn load_singly(&mut self, rows: Vec<Row>) -> TransferResult<Vec<Row>> {
        for row in rows {
            match self.load(std::slice::from_ref(&row), None) {
                Ok(true) => self.outcome.counts.written += 1,
                Ok(false) => drop(self.without_existing(vec![row])?),
                Err(Failure::Refused(error)) if error.code != Code::TableNotFound => {
                    self.outcome.reject(&row, error_text(&error))?;
                }
                Err(failure) => return Err(describe(self.outcome.page.table, failure)),
            }
        }
        Ok(Vec::new())
    }

    fn without_existing(&mut self, rows: Vec<Row>) -> TransferResult<Vec<Row>> {
        self.outcome.without_existing(self.database, rows, |row| row)
    }

    /// Merges rows into the existing entities, and then records the mark. A resumed copy may repeat a merge.
    fn merge_all(&mut self, rows: Vec<Row>) -> TransferResult<()> {
        let mut waiting = Vec::with_capacity(rows.len());
        let now = Ticks::now();
        for row in rows {
            let version = row.modified.unwrap_or(now);
            match merge_of(&row) {
                Ok(write) => waiting.push(RowMerge { row, write, version, attempts: 0 }),
                Err(error) => self.outcome.reject(&row, error_text(&error))?,
            }
        }
        while !waiting.is_empty() {
            waiting = self.merge_some(waiting)?;
        }
        self.load(&[], self.mark(0)).map(drop).map_err(|failure| describe(self.outcome.page.table, failure))
    }

    /// Merges as many rows as possible at once; returns the others.
    fn merge_some(&mut self, waiting: Vec<RowMerge>) -> TransferResult<Vec<RowMerge>> {
        let LocalDatabase { store, account, versions, runtime, .. } = self.database;
        let (mut round, mut later) = (Vec::new(), Vec::new());
        for merge in waiting {
            let fits = round.len() < IN_FLIGHT && versions.take(merge.version);
            if fits { round.push(merge) } else { later.push(merge) }
        }
        if round.is_empty() {
            // Another thread is writing with one of these versions.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let work = round
            .iter()
            .map(|merge| store.write(self.table.in_account(account), &merge.write, merge.version));
        let outcomes = runtime.block_on(join_all(work));
        versions.release(round.iter().map(|merge| merge.version));
        for (merge, outcome) in round.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => self.outcome.counts.written += 1,
                Err(Failure::Refused(error)) if error.code != Code::TableNotFound => {
                    self.outcome.reject(&merge.row, error_text(&error))?;
                }
                Err(Failure::Fault(fault)) if is_busy(fault) && merge.attempts < ATTEMPTS => {
                    std::thread::sleep(std::time::Duration::from_millis(20 << merge.attempts));
                    later.push(RowMerge { attempts: merge.attempts + 1, ..merge });
                }
                Err(failure) => return Err(describe(self.outcome.page.table, failure)),
            }
        }
        Ok(later)
    }
}

struct RowMerge {
    row: Row,
    write: Write,
    version: Ticks,
    attempts: u32,
}

fn merge_of(row: &Row) -> std::result::Result<Write, Error> {
    let properties = row.properties_in_order()?;
    let properties = ValidatedProperties::new(row.key.counted_size(), &properties, None)?;
    Ok(Write { kind: WriteKind::Merge(IfMatch::Absent), key: row.key.clone(), properties })
}

fn delete_of(key: &Key, version: &Version) -> crate::protocol::error::Result<Write> {
    let none: &[(String, EdmValue)] = &[];
    let properties = ValidatedProperties::new(key.counted_size(), none, None)?;
    let condition = match version {
        Version::Any => IfMatch::Any,
        Version::Time(time) => IfMatch::Version(Some(*time)),
        // A database only has its own versions.
        Version::Tag(_) => IfMatch::Version(None),
    };
    Ok(Write { kind: WriteKind::Delete(condition), key: key.clone(), properties })
}
