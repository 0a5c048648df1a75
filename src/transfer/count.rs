//! Counting and deleting the entities of a place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::board::{Board, Task};
use super::checkpoint::Counts;
use super::copy::run_workers;
use super::endpoint::{TransferError, TransferResult, TransferSource, TransferTarget};
use super::progress::Progress;
use super::selection::Selection;
use crate::model::Key;

/// Minimum rows of a full page.
const FULL_PAGE: usize = 250;

/// Counts the entities of the selected tables.
///
/// # Errors
/// [`TransferError`] if the place cannot be read.
pub(crate) fn count(
    source: &dyn TransferSource,
    selection: &Selection,
    concurrency: usize,
    progress: &Progress,
    stop: &AtomicBool,
) -> TransferResult<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for table in source.tables()?.into_iter().filter(|name| selection.has_table(name)) {
        progress.expect(&table, None);
        let counted = source.count(&table, &mut |entities| {
            progress.add(&table, Counts { written: entities, ..Counts::default() });
            if stop.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
        })?;
        match counted {
            Some(entities) => sums.insert(table, entities),
            None => {
                let count = &|_: &str, keys: &[Key]| Ok(keys.len() as u64);
                return for_each_page(source, selection, concurrency, progress, stop, count);
            }
        };
    }
    Ok(sums)
}

/// Deletes the entities that the source of the place selects; returns how many were deleted.
///
/// # Errors
/// [`TransferError`] if the place cannot be read or written. Earlier deletions are not undone.
pub(crate) fn delete_where(
    source: &dyn TransferSource,
    target: &dyn TransferTarget,
    selection: &Selection,
    concurrency: usize,
    progress: &Progress,
    stop: &AtomicBool,
) -> TransferResult<BTreeMap<String, u64>> {
    for_each_page(source, selection, concurrency, progress, stop, &|table, keys| target.delete(table, keys))
}

/// Sums what `work` returns for the keys of each page.
fn for_each_page(
    source: &dyn TransferSource,
    selection: &Selection,
    concurrency: usize,
    progress: &Progress,
    stop: &AtomicBool,
    work: &(dyn Fn(&str, &[Key]) -> TransferResult<u64> + Sync),
) -> TransferResult<BTreeMap<String, u64>> {
    let board = Board::default();
    let mut sums = BTreeMap::new();
    let mut id = 0;
    for table in source.tables()?.into_iter().filter(|name| selection.has_table(name)) {
        for range in source.ranges(&table)? {
            id += 1;
            board.add(Task { id, table: table.clone(), range, repeats: false });
        }
        progress.expect(&table, None);
        sums.insert(table, 0);
    }
    let sums = Mutex::new(sums);
    let splits = source.is_ordered().then_some(source);
    run_workers(concurrency, &board, || {
        while let Some(task) = board.take(splits, &|_| Ok(()))? {
            let mut reader = source.open(&task.table, &task.range, true)?;
            while let Some(page) = reader.next()? {
                if stop.load(Ordering::Relaxed) {
                    return Err(TransferError::Interrupted);
                }
                let mut keys: Vec<Key> = page.rows.into_iter().map(|row| row.key).collect();
                let last = keys.last().cloned();
                let upper = board.claim(task.id, last.as_ref(), keys.len() >= FULL_PAGE);
                if source.is_ordered() {
                    keys.retain(|key| upper.as_ref().is_none_or(|upper| key < upper));
                }
                let sum = work(&task.table, &keys)?;
                progress.add(&task.table, Counts { written: sum, ..Counts::default() });
                let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                *sums.entry(task.table.clone()).or_default() += sum;
                if last.is_some_and(|last| source.is_ordered() && upper.is_some_and(|upper| last >= upper)) {
                    break;
                }
            }
            board.finish(task.id);
        }
        Ok(())
    })?;
    Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
}
