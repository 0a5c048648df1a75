//! Counts, deletes and surveys the entities of a place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::contract::{Counts, Page, Rejected, TransferSource, TransferTarget};
use crate::error::{TransferResult, check_stop, failed};
use crate::protocol::codec::stored;
use crate::protocol::model::TableName;
use crate::rows::Row;
use crate::rows::selection::Selection;
use crate::work::in_parallel;
use crate::work::progress::Progress;
use crate::work::work_queue::{Task, WorkQueue};

/// Maximum entities that a survey lists; further ones are only counted.
const MAX_LISTED: usize = 1000;

/// A concurrent walk over the entities of the selected tables.
pub struct PageWalk<'a> {
    pub source: &'a dyn TransferSource,
    pub selection: &'a Selection,
    pub concurrency: usize,
    pub progress: &'a Progress,
    pub stop: &'a AtomicBool,
}

/// The work that a copy would have to do.
#[derive(Debug, Default)]
pub struct Survey {
    /// The number of entities of each table that can be copied.
    pub tables: BTreeMap<String, u64>,
    /// Bytes of the keys and properties of these entities in a database.
    pub bytes: u64,
    /// The number of entities that the target cannot represent.
    pub rejected: u64,
    /// The first rejected entities, with their tables.
    pub first_rejected: Vec<(String, Rejected)>,
}

impl PageWalk<'_> {
    /// Counts the entities of each selected table. Fails if the source has entities that cannot be parsed.
    pub fn count(&self) -> TransferResult<BTreeMap<String, u64>> {
        self.source.each_rejected(&mut |table, entity| match self.selection.has_table(table) {
            true => refuse_unparsed(table, &[entity]),
            false => Ok(()),
        })?;
        let tables = self.source.selected_tables(self.selection)?;
        let counted = in_parallel(self.concurrency, tables, |table| {
            Ok(self.count_inside(&table)?.map(|entities| (table, entities)))
        })?;
        match counted.into_iter().collect() {
            Some(counts) => Ok(counts),
            None => self.sum(true, &|table, page| Ok(parsed_rows(table, page)?.len() as u64)),
        }
    }

    /// Counts a table inside the source, if it can.
    fn count_inside(&self, table: &str) -> TransferResult<Option<u64>> {
        self.progress.expect(table, None);
        self.source.count(table, &mut |entities| {
            self.progress.add(table, Counts { written: entities, ..Counts::default() });
            check_stop(self.stop)
        })
    }

    /// Deletes the entities from `target`, which is the same place; returns their number. Entities that
    /// change during the walk are kept.
    pub fn delete(&self, target: &dyn TransferTarget) -> TransferResult<BTreeMap<String, u64>> {
        self.sum(true, &|table, page| {
            let version = |row: &Row| (row.key.clone(), row.version());
            target.delete(table, &parsed_rows(table, page)?.iter().map(version).collect::<Vec<_>>())
        })
    }

    /// Reads all entities, and finds the entities that the target cannot represent.
    pub fn survey(&self, to_cosmos: bool) -> TransferResult<Survey> {
        let found = Mutex::new(Survey::default());
        let bytes = AtomicU64::new(0);
        let reject = |table: &str, entity: Rejected| {
            let mut found = found.lock();
            found.rejected += 1;
            if found.first_rejected.len() < MAX_LISTED {
                found.first_rejected.push((table.to_owned(), entity));
            }
        };
        self.source.each_rejected(&mut |table, entity| {
            if self.selection.has_table(table) {
                reject(table, entity);
            }
            Ok(())
        })?;
        let tables = self.sum(false, &|table, page| {
            page.rejected.iter().for_each(|entity| reject(table, entity.clone()));
            let mut fit = 0;
            for row in &page.rows {
                match cosmos_obstacle(row).filter(|_| to_cosmos) {
                    Some(reason) => reject(table, Rejected { entity: row.to_json(), reason }),
                    None => {
                        fit += 1;
                        bytes.fetch_add(row.bytes(), Ordering::Relaxed);
                    }
                }
            }
            Ok(fit)
        })?;
        let found = found.into_inner();
        Ok(Survey { tables, bytes: bytes.into_inner(), ..found })
    }

    /// Sums what `work` returns for each page.
    fn sum(
        &self,
        keys_only: bool,
        work: &(dyn Fn(&str, &Page) -> TransferResult<u64> + Sync),
    ) -> TransferResult<BTreeMap<String, u64>> {
        let tables = self.source.selected_tables(self.selection)?;
        let queue = WorkQueue::for_tables(self.source, &tables, self.progress)?;
        let sums = Mutex::new(BTreeMap::from_iter(tables.into_iter().map(|table| (table, 0))));
        queue.each(self.source, self.concurrency, |task| {
            let sum = self.sum_range(&queue, task, keys_only, work)?;
            *sums.lock().entry(task.table.clone()).or_default() += sum;
            Ok(())
        })?;
        Ok(sums.into_inner())
    }

    fn sum_range(
        &self,
        queue: &WorkQueue,
        task: &Task,
        keys_only: bool,
        work: &(dyn Fn(&str, &Page) -> TransferResult<u64> + Sync),
    ) -> TransferResult<u64> {
        let mut reader = self.source.open(&task.table, &task.range, keys_only)?;
        let mut sum = 0;
        while let Some(mut page) = reader.next()? {
            check_stop(self.stop)?;
            let is_last = queue.keep_own(task, &mut page, self.source.is_ordered());
            let part = work(&task.table, &page)?;
            self.progress.add(&task.table, Counts { written: part, ..Counts::default() });
            sum += part;
            if is_last {
                break;
            }
        }
        Ok(sum)
    }
}

/// Returns the rows of a page, or an error if some entities could not be parsed.
fn parsed_rows<'a>(table: &str, page: &'a Page) -> TransferResult<&'a [Row]> {
    refuse_unparsed(table, &page.rejected)?;
    Ok(&page.rows)
}

fn refuse_unparsed(table: &str, rejected: &[Rejected]) -> TransferResult<()> {
    match rejected.first() {
        None => Ok(()),
        Some(first) => Err(failed!(
            "{table}: entities that are not understood: {} or more; the reason for the first: {}",
            rejected.len(),
            first.reason
        )),
    }
}

const MAX_COSMOS_ROW_KEY: usize = 255;
const COSMOS_NAMES: [&str; 4] = ["id", "rid", "etag", "ResourceId"];

/// Returns the reason why Cosmos DB cannot hold an entity.
pub(crate) fn cosmos_obstacle(row: &Row) -> Option<String> {
    let bytes = row.key.row.len();
    if bytes > MAX_COSMOS_ROW_KEY {
        return Some(format!("its RowKey has {bytes} bytes; Cosmos DB allows {MAX_COSMOS_ROW_KEY}"));
    }
    let fields = stored::fields(row.properties.as_str()).ok()?;
    let taken = fields.iter().find(|field| COSMOS_NAMES.contains(&field.name.as_ref()))?;
    Some(format!("Cosmos DB allows no property named {}", taken.name))
}

/// Returns the problems with the names that tables would have in the target. Cosmos DB has case-sensitive
/// names, and accepts names that Azure does not.
pub fn name_problems(names: &[(String, String)], to_cosmos: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, (source, target)) in names.iter().enumerate() {
        if !to_cosmos && TableName::parse(target).is_err() {
            problems.push(format!("{target:?} is not a valid table name in TO; give --rename {source}=NAME"));
        }
        let is_same = |other: &str| match to_cosmos {
            true => other == target,
            false => other.eq_ignore_ascii_case(target),
        };
        if let Some((other, _)) = names[..at].iter().find(|(_, other)| is_same(other)) {
            problems.push(format!(
                "{other} and {source} would be the same table in TO; give --rename {source}=NAME"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cosmos_does_not_take_is_found() {
        let reason = |json: &str| cosmos_obstacle(&Row::from_json(json).unwrap());
        assert_eq!(reason(r#"{"PartitionKey":"a","RowKey":"b","Id":1,"ETAG":"x"}"#), None);
        let taken = reason(r#"{"PartitionKey":"a","RowKey":"b","A":1,"etag":"x"}"#);
        assert!(taken.is_some_and(|reason| reason.contains("etag")));
        let long = format!(r#"{{"PartitionKey":"a","RowKey":"{}"}}"#, "é".repeat(128));
        assert!(reason(&long).is_some_and(|reason| reason.contains("256")));
    }

    #[test]
    fn names_that_clash_or_are_not_allowed_are_found() {
        let names: Vec<(String, String)> = [("People", "People"), ("people", "people"), ("a-b", "a-b")]
            .map(|(source, target)| (source.to_owned(), target.to_owned()))
            .to_vec();
        let problems = name_problems(&names, false);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("People and people") && problems[1].contains("a-b"));
        assert!(name_problems(&names, true).is_empty());
    }
}
