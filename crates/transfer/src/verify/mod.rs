//! Compares two places: range by range with a merge of ordered pages or, if a place has no order, with a temporary
//! file.

mod comparison;
mod merge;
mod reordered;

use crate::contract::{Counts, TransferSource};
use crate::copy::settings::{readable, same_policies, same_properties};
use crate::error::{TransferError, TransferResult, pause};
use crate::rows::range::RowRange;
use crate::rows::{Row, Version};
use crate::work::in_parallel;
use crate::work::work_queue::WorkQueue;
use comparison::ComparisonRun;
pub(crate) use comparison::Repair;
pub use comparison::{Compared, Comparison};
pub(crate) use comparison::{Difference, DifferenceKind, Tally};
use merge::Merge;
use reordered::{ReorderedRows, Side};

/// Returns the tables of a target, under their names in the source if it has them.
pub fn renamed_tables(
    target: &dyn TransferSource,
    renames: &[(String, String)],
) -> TransferResult<Vec<String>> {
    let case = target.name_case();
    let in_source = |name: String| {
        let renamed = renames.iter().find(|(_, target)| case.is_same(target, &name));
        // A table with the source name of a renamed table is not compared.
        let is_hidden = || renames.iter().any(|(source, _)| case.is_same(source, &name));
        match renamed {
            Some((source, _)) => Some(source.clone()),
            None => (!is_hidden()).then_some(name),
        }
    };
    Ok(target.tables()?.into_iter().filter_map(in_source).collect())
}

impl Comparison<'_> {
    pub fn run(&self) -> TransferResult<Compared> {
        let mut compared = Compared::default();
        let tables = self.tables(&mut compared)?;
        compared.tables.extend(tables.iter().map(|table| (table.clone(), Tally::default())));
        let run = ComparisonRun::new(self, compared);
        for place in [self.source, self.target] {
            place.each_rejected(&mut |table, rejected| {
                if self.selection.has_table(table) {
                    run.add_unreadable(table, vec![rejected]);
                }
                Ok(())
            })?;
        }
        if self.source.is_ordered() && self.target.is_ordered() {
            let queue = WorkQueue::for_tables(self.source, &tables, self.progress)?;
            // Each range has a page of both sides in flight.
            queue.each(self.source, self.concurrency.div_ceil(2), |task| Merge::run(&run, &queue, task))?;
        } else {
            for table in &tables {
                self.progress.expect(table, self.source.expected(table)?);
            }
            in_parallel(self.concurrency, tables.iter().collect(), |table| run.compare_unordered(table))?;
        }
        let mut compared = run.found.into_inner();
        self.recheck(&mut compared)?;
        if self.delete_extra.is_none() {
            self.compare_settings(&tables, &mut compared)?;
        }
        Ok(compared)
    }

    /// Returns the selected tables that only the target has.
    pub fn extra_tables(&self) -> TransferResult<Vec<String>> {
        let mut compared = Compared::default();
        self.tables(&mut compared)?;
        Ok(compared.extra_tables)
    }

    /// Returns the tables of both places, as the source spells them.
    fn tables(&self, compared: &mut Compared) -> TransferResult<Vec<String>> {
        let ours = self.source.selected_tables(self.selection);
        let mut ours = ours.map_err(|error| error.on("FROM"))?;
        let mut theirs = renamed_tables(self.target, self.renames).map_err(|error| error.on("TO"))?;
        theirs.retain(|name| self.selection.has_table(name));
        // The case rules of the target decide which of its tables a table is copied to.
        let case = self.target.name_case();
        let has = |all: &[String], name: &str| all.iter().any(|other| case.is_same(other, name));
        compared.extra_tables = theirs.iter().filter(|name| !has(&ours, name)).cloned().collect();
        compared.missing_tables = ours.iter().filter(|name| !has(&theirs, name)).cloned().collect();
        ours.retain(|name| has(&theirs, name));
        Ok(ours)
    }

    /// Checks the first differences again, because a writer or a different sort order may explain them.
    fn recheck(&self, compared: &mut Compared) -> TransferResult<()> {
        let mut candidates = std::mem::take(&mut compared.differences);
        candidates.sort_by(|a, b| (&a.table, &a.key).cmp(&(&b.table, &b.key)));
        if !candidates.is_empty() && (self.source.can_change() || self.target.can_change()) {
            pause(self.recheck_delay, self.stop)?;
        }
        for mut difference in candidates {
            self.check_stop()?;
            let Difference { table, key, .. } = &difference;
            if !self.is_as_found(&difference)? {
                let (ours, theirs) =
                    (self.source.get(table, key)?, self.target.get(self.in_target(table), key)?);
                difference.kind = match (&ours, &theirs) {
                    (None, None) => continue,
                    (Some(_), None) => DifferenceKind::Missing,
                    (None, Some(_)) => DifferenceKind::Extra,
                    (Some(a), Some(b)) if self.is_same(a, b) => {
                        compared.tally(table).equal += 1;
                        continue;
                    }
                    (Some(_), Some(_)) => DifferenceKind::Different,
                };
                let both = ours.zip(theirs);
                difference.properties = both.map(|(a, b)| self.differing(&a, &b)).unwrap_or_default();
            }
            *compared.tally(&difference.table).count_mut(difference.kind) += 1;
            compared.differences.push(difference);
        }
        Ok(())
    }

    /// Whether a difference is still as it was found. Only a place that can change is asked, because a lookup in a dump
    /// reads a whole part.
    fn is_as_found(&self, found: &Difference) -> TransferResult<bool> {
        let there = match (self.source.can_change(), self.target.can_change()) {
            (false, false) => return Ok(true),
            (true, true) => return Ok(false),
            (true, false) => self.source.get(&found.table, &found.key)?,
            (false, true) => self.target.get(self.in_target(&found.table), &found.key)?,
        };
        Ok(found.seen != Some(Version::Any) && there.as_ref().map(Row::version) == found.seen)
    }

    fn compare_settings(&self, tables: &[String], compared: &mut Compared) -> TransferResult<()> {
        let read = in_parallel(self.concurrency, tables.iter().collect(), |table| {
            self.check_stop()?;
            Ok((
                with_refusal(self.source.policies(table))?,
                with_refusal(self.target.policies(self.in_target(table)))?,
            ))
        })?;
        for (table, policies) in tables.iter().zip(read) {
            let policies = compared.settings_of_both("policies", policies)?;
            if policies.is_some_and(|(ours, theirs)| !same_policies(&ours, &theirs)) {
                compared.settings.push(format!("policies of {table}"));
            }
        }
        if self.selection.is_everything() {
            let properties = (self.source.properties(), self.target.properties());
            let properties = compared.settings_of_both("service properties", properties)?;
            if properties.is_some_and(|(ours, theirs)| !same_properties(&ours, &theirs)) {
                compared.settings.push("service properties".into());
            }
        }
        Ok(())
    }
}

/// Returns a refusal of credentials as a result. Other errors end the comparison.
fn with_refusal<T>(read: TransferResult<T>) -> TransferResult<TransferResult<T>> {
    match read {
        Err(refused @ TransferError::NotAllowed(_)) => Ok(Err(refused)),
        read => read.map(Ok),
    }
}

impl Compared {
    /// Returns a setting of both places; `None` if it cannot be compared, after recording the reason.
    fn settings_of_both<T>(
        &mut self,
        what: &str,
        (ours, theirs): (TransferResult<Option<T>>, TransferResult<Option<T>>),
    ) -> TransferResult<Option<(T, T)>> {
        let mut read = |place: &str, read: TransferResult<Option<T>>| {
            if matches!(read, Ok(None)) {
                self.absent.insert(format!("{what}, because {place} does not have them"));
            }
            readable(read, &format!("the {what} of {place}"), &mut self.unread)
        };
        let (ours, theirs) = (read("FROM", ours)?, read("TO", theirs)?);
        Ok(ours.zip(theirs))
    }
}

impl ComparisonRun<'_> {
    /// Compares a table of which the source or the target has no key order. A temporary file keeps the source's
    /// entities, and the comparison searches the file for each entity of the target.
    fn compare_unordered(&self, table: &str) -> TransferResult<()> {
        let Comparison { source, target, progress, .. } = *self.options;
        let keys_only = self.options.delete_extra.is_some();
        let mut waiting = ReorderedRows::default();
        let ours = self.each_page(source, table, table, &mut |rows| {
            progress.add(table, Counts { written: rows.len() as u64, ..Counts::default() });
            rows.iter().try_for_each(|row| match keys_only {
                true => waiting.hold_key(Side::Source, &row.key),
                false => waiting.hold(Side::Source, row),
            })
        });
        ours.map_err(|error| error.on("FROM"))?;
        let theirs = self.each_page(target, self.options.in_target(table), table, &mut |rows| {
            let mut extra = Vec::new();
            for row in rows {
                let ours = waiting.take(Side::Source, &row.key)?;
                // A place without an order may send an entity twice.
                if !target.is_ordered() {
                    if ours.is_none() && waiting.has(Side::Target, &row.key)? {
                        continue;
                    }
                    waiting.hold_key(Side::Target, &row.key)?;
                }
                match ours {
                    Some(ours) => self.compare(table, &ours, &row),
                    None if keys_only => extra.push(row),
                    None => self.add_difference(table, None, Some(&row)),
                }
            }
            self.delete_extra(table, extra)
        });
        theirs.map_err(|error| error.on("TO"))?;
        if keys_only {
            return Ok(());
        }
        waiting.each(Side::Source, &mut |row| {
            self.add_difference(table, Some(&row), None);
            Ok(())
        })
    }

    /// Passes the pages of a table to `take`.
    fn each_page(
        &self,
        place: &dyn TransferSource,
        name: &str,
        table: &str,
        take: &mut dyn FnMut(Vec<Row>) -> TransferResult<()>,
    ) -> TransferResult<()> {
        let mut reader = place.open(name, &RowRange::everything(), self.options.delete_extra.is_some())?;
        while let Some(page) = reader.next()? {
            self.options.check_stop()?;
            self.add_unreadable(table, page.rejected);
            take(page.rows)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::contract::{TransferTarget, WritePage};
    use crate::protocol::codec::policies::Policy;
    use crate::protocol::codec::properties::ServiceProperties;
    use crate::protocol::model::{Key, Ticks};
    use crate::rows::selection::{NameCase, Selection};
    use crate::work::progress::Progress;
    use crate::work::progress::ProgressForm;
    use crate::work::sorted_source::{KeyOrder, SortedSource};
    use proptest::prelude::*;

    fn rows<'a>(keys: impl IntoIterator<Item = &'a (String, String)>) -> Vec<Row> {
        let row = |(partition, row): &(String, String)| {
            let entity = serde_json::json!({ "PartitionKey": partition, "RowKey": row, "Name": row });
            Row::from_json(&entity.to_string()).unwrap()
        };
        keys.into_iter().map(row).collect()
    }

    fn compared(source: &SortedSource, target: &SortedSource) -> Compared {
        compared_with(source, target, (None, None), &AtomicBool::new(false)).unwrap()
    }

    fn compared_with(
        source: &SortedSource,
        target: &SortedSource,
        (delete_extra, max_delete): (Option<&dyn TransferTarget>, Option<u64>),
        stop: &AtomicBool,
    ) -> TransferResult<Compared> {
        let comparison = Comparison {
            source,
            target,
            renames: &[],
            selection: &Selection::default(),
            with_timestamps: false,
            delete_extra,
            max_delete,
            repair: None,
            concurrency: 1,
            recheck_delay: Duration::ZERO,
            progress: &Progress::start(ProgressForm::Plain, "compared"),
            stop,
        };
        comparison.run()
    }

    fn orders() -> impl Strategy<Value = KeyOrder> {
        prop::sample::select(vec![KeyOrder::CodePoints, KeyOrder::Utf16Units])
    }

    fn keys() -> impl Strategy<Value = BTreeSet<(String, String)>> {
        let text = "[a\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,3}";
        prop::collection::btree_set((text, text), 0..60)
    }

    proptest! {
        #[test]
        fn a_comparison_finds_what_one_of_sets_finds(
            ours in keys(), theirs in keys(), from in orders(), to in orders(), rows_of_page in 1..9_usize,
            is_ordered in any::<[bool; 2]>(),
        ) {
            let place = |order, mut rows: Vec<Row>, is_ordered| {
                // A place without an order may send an entity twice.
                let again = if is_ordered { 0 } else { rows.len().min(3) };
                rows.extend_from_within(..again);
                SortedSource { is_ordered, ..SortedSource::new(order, rows, rows_of_page) }
            };
            let source = place(from, rows(&ours), is_ordered[0]);
            let in_target = rows(ours.iter().step_by(2).chain(theirs.difference(&ours)));
            let target = place(to, in_target, is_ordered[1]);
            let found = compared(&source, &target);
            let tally = found.tables["People"];
            let kept = ours.len().div_ceil(2);
            let expected = (kept, ours.len() - kept, theirs.difference(&ours).count());
            prop_assert_eq!((tally.equal, tally.missing, tally.extra), (expected.0 as u64, expected.1 as u64, expected.2 as u64));
            // Only the recheck reads single entities: those that were not found equal.
            prop_assert_eq!(source.gets.into_inner(), expected.1 + expected.2);
        }
    }

    /// The keys that a comparison has deleted.
    #[derive(Default)]
    struct Deleted(Mutex<Vec<Key>>);

    impl TransferTarget for Deleted {
        fn create(&self, _: &str) -> TransferResult<bool> {
            Ok(true)
        }

        fn write(&self, _: WritePage<'_>) -> TransferResult<Counts> {
            Ok(Counts::default())
        }

        fn delete(&self, _: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
            // Only compared versions are deleted, and nothing that was written since.
            assert!(
                entities.iter().all(|(_, version)| *version == Version::Time(Ticks::MIN)),
                "{entities:?}"
            );
            self.0.lock().extend(entities.iter().map(|(key, _)| key.clone()));
            Ok(entities.len() as u64)
        }

        fn set_policies(&self, _: &str, _: &[Policy]) -> TransferResult<()> {
            Ok(())
        }

        fn set_properties(&self, _: &ServiceProperties) -> TransferResult<()> {
            Ok(())
        }
    }

    /// Deletes what a target has besides the source; returns how it ended, and how many were deleted.
    fn delete_extra(
        source: &SortedSource,
        target: &SortedSource,
        most: Option<u64>,
    ) -> (TransferResult<u64>, usize) {
        let (deleted, no_stop) = (Deleted::default(), AtomicBool::new(false));
        let stop = source.stop_at_get.as_ref().unwrap_or(&no_stop);
        let ended = compared_with(source, target, (Some(&deleted), most), stop);
        let deleted = deleted.0.into_inner().len();
        (ended.map(|found| found.tables["People"].deleted), deleted)
    }

    fn numbered(numbers: std::ops::Range<u32>) -> Vec<Row> {
        let keys: Vec<_> = numbers.map(|n| ("p".to_owned(), format!("{n:05}"))).collect();
        rows(&keys).into_iter().map(|row| Row { modified: Some(Ticks::MIN), ..row }).collect()
    }

    #[test]
    fn extra_entities_are_deleted_without_a_second_look_at_a_source_that_cannot_change() {
        for can_change in [true, false] {
            let source =
                SortedSource { can_change, ..SortedSource::new(KeyOrder::CodePoints, numbered(0..10), 100) };
            let target = SortedSource::new(KeyOrder::CodePoints, numbered(0..2_000), 100);
            let (ended, deleted) = delete_extra(&source, &target, None);
            assert_eq!((ended.unwrap(), deleted), (1_990, 1_990));
            assert_eq!(source.gets.into_inner(), if can_change { 1_990 } else { 0 });
        }
    }

    #[test]
    fn extra_entities_are_deleted_in_a_place_without_an_order_too() {
        for (from, to, can_change) in
            [(true, false, false), (true, false, true), (false, true, true), (false, false, true)]
        {
            let source = SortedSource::new(KeyOrder::CodePoints, numbered(0..10), 100);
            let source = SortedSource { is_ordered: from, can_change, ..source };
            // Such a place may send an entity twice.
            let twice = [numbered(0..2_000), numbered(0..if to { 0 } else { 5 })].concat();
            let target =
                SortedSource { is_ordered: to, ..SortedSource::new(KeyOrder::CodePoints, twice, 100) };
            let (ended, deleted) = delete_extra(&source, &target, None);
            assert_eq!((ended.unwrap(), deleted), (1_990, 1_990));
            assert_eq!(source.gets.into_inner(), if can_change { 1_990 } else { 0 });
        }
    }

    #[test]
    fn tables_differ_by_the_case_of_their_names_if_they_do_in_their_place() {
        let place = |tables: &[&str], name_case| {
            let place = SortedSource::new(KeyOrder::CodePoints, numbered(0..10), 100);
            let tables = tables.iter().map(|name| (*name).to_owned()).collect();
            SortedSource { tables, name_case, ..place }
        };
        let (both, one) = (&["People", "people"][..], &["People"][..]);
        for (ours, theirs, case, found) in [
            (one, both, NameCase::Distinguished, (1, 0, 1)),
            (both, both, NameCase::Distinguished, (2, 0, 0)),
            (both, one, NameCase::Distinguished, (1, 1, 0)),
            (one, &["PEOPLE"][..], NameCase::Ignored, (1, 0, 0)),
        ] {
            let (source, target) = (place(ours, case), place(theirs, case));
            let compared = compared(&source, &target);
            let counts = (compared.tables.len(), compared.missing_tables.len(), compared.extra_tables.len());
            assert_eq!(counts, found, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn no_more_are_deleted_than_were_counted() {
        for is_ordered in [true, false] {
            let source = SortedSource::new(KeyOrder::CodePoints, numbered(0..10), 100);
            let place = || SortedSource::new(KeyOrder::CodePoints, numbered(0..2_000), 100);
            let target = || SortedSource { is_ordered, ..place() };
            let (ended, deleted) = delete_extra(&source, &target(), Some(1_000));
            assert!(
                ended.is_err_and(|error| error.to_string().contains("more than the 1000"))
                    && deleted <= 1_000
            );
            assert_eq!(delete_extra(&source, &target(), Some(1_990)).1, 1_990);
        }
    }

    #[test]
    fn a_stop_ends_the_second_look_before_the_next_entity() {
        let stop_at_get = Some(AtomicBool::new(false));
        let source = SortedSource { stop_at_get, ..SortedSource::new(KeyOrder::CodePoints, Vec::new(), 100) };
        let target = SortedSource::new(KeyOrder::CodePoints, numbered(0..300), 100);
        let (ended, deleted) = delete_extra(&source, &target, None);
        assert!(matches!(ended, Err(TransferError::Interrupted)) && deleted == 0);
        assert_eq!(source.gets.into_inner(), 1);
    }

    #[test]
    fn a_place_that_cannot_change_is_not_looked_at_again() {
        for (ours, theirs, expected) in [
            (true, true, (201, 201)),
            (true, false, (201, 0)),
            (false, true, (0, 201)),
            (false, false, (0, 0)),
        ] {
            let place = |can_change, rows| {
                let place = SortedSource::new(KeyOrder::CodePoints, rows, 100);
                SortedSource { can_change, ..place }
            };
            let mut there = numbered(100..400);
            let other = r#"{"PartitionKey":"p","RowKey":"00100","Name":"other"}"#;
            there[0] = Row { modified: Some(Ticks::MIN), ..Row::from_json(other).unwrap() };
            let (source, target) = (place(ours, numbered(0..300)), place(theirs, there));
            let found = compared(&source, &target);
            let tally = found.tables["People"];
            assert_eq!((tally.missing, tally.extra, tally.different, tally.equal), (100, 100, 1, 199));
            let different = found.differences.iter().find(|one| one.kind == DifferenceKind::Different);
            assert_eq!(different.unwrap().properties, ["Name"]);
            assert_eq!((source.gets.into_inner(), target.gets.into_inner()), expected);
        }
    }

    #[test]
    fn an_entity_without_a_version_may_have_changed() {
        let place = |can_change, name: &str| {
            let entity = format!(r#"{{"PartitionKey":"p","RowKey":"1","Name":"{name}"}}"#);
            let rows = vec![Row::from_json(&entity).unwrap()];
            SortedSource { can_change, ..SortedSource::new(KeyOrder::CodePoints, rows, 100) }
        };
        let (source, target) = (place(false, "ours"), place(true, "theirs"));
        assert_eq!(compared(&source, &target).tables["People"].different, 1);
        assert_eq!(source.gets.into_inner(), 1);
    }

    #[test]
    fn each_entity_is_read_once_whatever_the_orders() {
        let texts = ["\u{d7ff}", "\u{e000}", "\u{ffff}", "\u{10000}", "😀"];
        let keys: Vec<_> =
            (0..10_000).map(|n| ("p".to_owned(), format!("{}{n:05}", texts[n % texts.len()]))).collect();
        for from in [KeyOrder::CodePoints, KeyOrder::Utf16Units] {
            for to in [KeyOrder::CodePoints, KeyOrder::Utf16Units] {
                let source = SortedSource::new(from, rows(&keys), 100);
                let target = SortedSource::new(to, rows(&keys[1..]), 100);
                let found = compared(&source, &target);
                assert_eq!((found.tables["People"].equal, found.tables["People"].missing), (9_999, 1));
                for place in [source, target] {
                    assert_eq!(
                        (place.pages.into_inner(), place.gets.into_inner()),
                        (101, 1),
                        "{from:?} {to:?}"
                    );
                }
            }
        }
    }
}
