//! Deleted tables: finding them, bringing them back, and having them purged.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::OperatorError;
use crate::protocol::model::{TableName, Ticks};
use crate::store::{
    DeletedScan, DeletedTable, Failure, Fault, Store, StoreResult, TableRecords, TableSize, Undeletion,
};

/// Maximum deleted tables of a list, which has the last deleted ones.
pub(crate) const MAX_LISTED: u32 = 1000;
/// Maximum entities of a deleted table that are counted before it is purged, and for the metric.
pub(crate) const MAX_COUNTED: u32 = 1_000_000;
/// Maximum deleted tables that an error lists.
const MAX_NAMED: usize = 10;
/// Time after which the remaining tables are measured at the next refresh.
const REFRESH_TIME: Duration = Duration::from_millis(100);
/// A table that could not be measured is measured again after this time.
const MEASURE_AGAIN: Duration = Duration::from_secs(3600);
/// The same if the database was only away.
const MEASURE_SOON: Duration = Duration::from_secs(60);

/// Which of the deleted tables of a name is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletedChoice {
    /// There must be only one.
    Only,
    /// The last deleted.
    Newest,
    /// The one with this number.
    Number(i64),
}

/// A table that was brought back.
#[derive(Debug)]
pub(crate) struct UndeletedTable {
    pub table: DeletedTable,
    /// The name that it has now.
    pub name: String,
    /// What belongs to it. Servers build its indexes again.
    pub records: TableRecords,
    /// How many of its indexes have no room in the database.
    pub left_out: usize,
}

/// Finds a deleted table by its name.
pub(crate) async fn find(
    store: &Store,
    account: &str,
    name: &TableName,
    choice: DeletedChoice,
) -> Result<DeletedTable, OperatorError> {
    let table_no = if let DeletedChoice::Number(number) = choice { Some(number) } else { None };
    let scan = DeletedScan { account: Some(account), name: Some(name), table_no, most: MAX_LISTED };
    let mut found = store.deleted_tables(scan).await?;
    match found.len() {
        0 => Err(OperatorError::DeletedTableNotFound),
        1 => Ok(found.swap_remove(0)),
        _ if choice == DeletedChoice::Newest => Ok(found.swap_remove(0)),
        _ => Err(OperatorError::SeveralDeletedTables(several(name, &found))),
    }
}

fn several(name: &TableName, found: &[DeletedTable]) -> String {
    let each = |table: &DeletedTable| format!("{} deleted {}", table.table_no, table.deleted.to_canonical());
    let mut lines: Vec<String> = found.iter().take(MAX_NAMED).map(each).collect();
    if found.len() > MAX_NAMED {
        lines.push(format!("and {} more", found.len() - MAX_NAMED));
    }
    format!(
        "several tables {} were deleted: give --newest, or --number with one of\n{}",
        name.as_given(),
        lines.join("\n")
    )
}

/// Finds a deleted table by its number.
///
/// # Errors
/// [`OperatorError::DeletedTableNotFound`]; failures of the database.
pub(crate) async fn by_number(store: &Store, table_no: i64) -> Result<DeletedTable, OperatorError> {
    let scan = DeletedScan { table_no: Some(table_no), most: 1, ..DeletedScan::default() };
    store.deleted_tables(scan).await?.pop().ok_or(OperatorError::DeletedTableNotFound)
}

/// Measures a deleted table, counting `most` entities at most.
///
/// # Errors
/// [`OperatorError::DeletedTableNotFound`]; failures of the database.
pub(crate) async fn size(store: &Store, table: &DeletedTable, most: u32) -> Result<TableSize, OperatorError> {
    store.deleted_size(table.table_no, most).await?.ok_or(OperatorError::DeletedTableNotFound)
}

/// Measures a deleted table before it is purged; `None` if that takes longer than a statement may take.
pub(crate) async fn size_in_time(
    store: &Store,
    table: &DeletedTable,
) -> Result<Option<TableSize>, OperatorError> {
    match size(store, table, MAX_COUNTED).await {
        Err(OperatorError::Store(Fault::Timeout)) => Ok(None),
        size => size.map(Some),
    }
}

/// Brings a table back under a free name, or under its last one.
pub(crate) async fn undelete(
    store: &Store,
    table: DeletedTable,
    name: Option<TableName>,
    now: Ticks,
) -> Result<UndeletedTable, OperatorError> {
    let name = name.map_or_else(|| super::table_name(&table.name), Ok)?;
    let (records, left_out) = match store.undelete(&table, &name, now).await? {
        Undeletion::Done { records, left_out } => (records, left_out),
        Undeletion::Gone => return Err(OperatorError::DeletedTableNotFound),
        Undeletion::NameTaken => return Err(OperatorError::TableNameTaken(name.as_given().to_owned())),
        Undeletion::TooSoon(from) => return Err(OperatorError::RenamedTooSoon(from.to_canonical())),
    };
    Ok(UndeletedTable { name: name.as_given().to_owned(), table, records, left_out })
}

/// Has a deleted table purged from now on.
///
/// # Errors
/// [`OperatorError::DeletedTableNotFound`]; failures of the database.
pub(crate) async fn purge(store: &Store, table: &DeletedTable, now: Ticks) -> Result<(), OperatorError> {
    match store.purge_deleted(table, now).await? {
        true => Ok(()),
        false => Err(OperatorError::DeletedTableNotFound),
    }
}

/// The sizes of the deleted tables that can be brought back, by number and time of deletion. Each is measured once:
/// nothing writes to a table until it is brought back.
#[derive(Debug, Default)]
pub(crate) struct DeletedSizes(HashMap<(i64, i64), DeletedSize>);

#[derive(Debug, Clone, Copy)]
enum DeletedSize {
    Bytes(u64),
    UnknownUntil(Instant),
}

fn deletion(table: &DeletedTable) -> (i64, i64) {
    (table.table_no, table.deleted.raw())
}

/// Whether another attempt may soon succeed.
fn may_pass(failure: &Failure) -> bool {
    !matches!(failure, Failure::Refused(_) | Failure::Fault(Fault::Timeout | Fault::Other))
}

impl DeletedSizes {
    /// Measures tables that were deleted since the last call, and returns the bytes of all that are measured, at
    /// most of the [`MAX_LISTED`] last deleted ones.
    pub(crate) async fn refresh(&mut self, store: &Store) -> Result<u64, Failure> {
        let begun = Instant::now();
        let kept = store.deleted_tables(DeletedScan { most: MAX_LISTED, ..DeletedScan::default() }).await?;
        for table in self.unmeasured(&kept) {
            if begun.elapsed() >= REFRESH_TIME {
                break;
            }
            let size = store.deleted_size(table.table_no, MAX_COUNTED).await;
            self.note(table, size);
        }
        Ok(self.bytes())
    }

    /// Forgets tables that are no longer kept, and returns those that are to be measured.
    fn unmeasured<'a>(&mut self, kept: &'a [DeletedTable]) -> Vec<&'a DeletedTable> {
        let deletions: HashSet<_> = kept.iter().map(deletion).collect();
        let now = Instant::now();
        self.0.retain(|deletion, size| {
            deletions.contains(deletion) && !matches!(size, DeletedSize::UnknownUntil(end) if *end <= now)
        });
        kept.iter().filter(|table| !self.0.contains_key(&deletion(table))).collect()
    }

    /// Remembers a size, and leaves a table alone for a time that could not be measured.
    fn note(&mut self, table: &DeletedTable, size: StoreResult<Option<TableSize>>) {
        let size = match size {
            Ok(Some(size)) => DeletedSize::Bytes(size.bytes),
            Ok(None) => return,
            Err(failure) => {
                let DeletedTable { table_no, account, name, .. } = table;
                tracing::debug!(table_no, account, name, ?failure, "a deleted table could not be measured");
                let pause = if may_pass(&failure) { MEASURE_SOON } else { MEASURE_AGAIN };
                DeletedSize::UnknownUntil(Instant::now() + pause)
            }
        };
        self.0.insert(deletion(table), size);
    }

    fn bytes(&self) -> u64 {
        self.0.values().map(|size| if let DeletedSize::Bytes(bytes) = size { *bytes } else { 0 }).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_leaves_a_table_unmeasured_for_long() {
        for (fault, passes) in [(Fault::Unavailable, true), (Fault::Busy, true), (Fault::Timeout, false)] {
            assert_eq!(may_pass(&fault.into()), passes);
        }
    }

    #[test]
    fn what_cannot_be_measured_neither_costs_other_sizes_nor_is_tried_at_once_again() {
        let table = |table_no| DeletedTable {
            table_no,
            account: "account".to_owned(),
            name: "People".to_owned(),
            created: Ticks::MIN,
            deleted: Ticks::MIN,
            kept_until: Ticks::MAX,
        };
        let kept = [table(1), table(2), table(3)];
        let measured = |bytes| Ok(Some(TableSize { entities: 1, bytes, complete: true }));
        let mut sizes = DeletedSizes::default();
        assert_eq!(sizes.unmeasured(&kept), [&kept[0], &kept[1], &kept[2]]);
        sizes.note(&kept[0], measured(5));
        sizes.note(&kept[1], Err(Fault::Timeout.into()));
        assert_eq!((sizes.unmeasured(&kept), sizes.bytes()), (vec![&kept[2]], 5));
        sizes.note(&kept[2], measured(7));
        assert_eq!((sizes.unmeasured(&kept), sizes.bytes()), (vec![], 12));
        // Its time has come.
        sizes.0.insert(deletion(&kept[1]), DeletedSize::UnknownUntil(Instant::now()));
        assert_eq!(sizes.unmeasured(&kept), [&kept[1]]);
        sizes.note(&kept[1], measured(100));
        assert_eq!(sizes.bytes(), 112);
        // What was brought back, and deleted again.
        let again = [DeletedTable { deleted: Ticks::MAX, ..table(1) }, table(2)];
        assert_eq!((sizes.unmeasured(&again), sizes.bytes()), (vec![&again[0]], 100));
    }
}
