//! Progress of background work that a store could not record.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::protocol::model::Ticks;

/// Maximum tables.
const MAX_TABLES: usize = 10_000;

/// How far this process has come with tables, by their numbers and the time since when. What it forgets when it ends
/// is done again.
#[derive(Debug)]
pub struct Unrecorded<T>(Mutex<BTreeMap<i64, (Ticks, T)>>);

impl<T> Default for Unrecorded<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Unrecorded<T> {
    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<i64, (Ticks, T)>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// After an attempt to record progress: forgets the table if that was done. Otherwise `progress` is kept, if
    /// there is any to keep and room for it, and the failure is none.
    pub(crate) fn settle<E>(
        &self,
        recorded: Result<(), E>,
        (table_no, since): (i64, Ticks),
        progress: impl FnOnce() -> Option<T>,
    ) -> Result<(), E> {
        if recorded.is_ok() {
            self.forget(table_no);
            return recorded;
        }
        let is_kept = progress().is_some_and(|progress| self.keep(table_no, since, progress));
        if is_kept { Ok(()) } else { recorded }
    }

    /// Remembers how far the work on a table has come; `false` if there is no room.
    fn keep(&self, table_no: i64, since: Ticks, progress: T) -> bool {
        self.with(|all| {
            let has_room = all.len() < MAX_TABLES || all.contains_key(&table_no);
            if has_room {
                all.insert(table_no, (since, progress));
            }
            has_room
        })
    }

    fn forget(&self, table_no: i64) {
        self.with(|all| all.remove(&table_no));
    }

    /// Forgets all: another process does the work now.
    pub(crate) fn clear(&self) {
        self.with(BTreeMap::clear);
    }

    /// The progress with a table, unless it is that of an earlier work.
    pub(crate) fn of(&self, table_no: i64, since: Ticks) -> Option<T> {
        let kept = self.with(|all| all.get(&table_no).cloned());
        kept.filter(|(kept_since, _)| *kept_since == since).map(|(_, progress)| progress)
    }

    /// All tables: their numbers, since when, and the progress.
    pub(crate) fn all(&self) -> Vec<(i64, Ticks, T)> {
        let copied = |(no, (since, progress)): (&i64, &(Ticks, T))| (*no, *since, progress.clone());
        self.with(|all| all.iter().map(copied).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(raw: i64) -> Ticks {
        Ticks::from_raw(Ticks::MIN.raw() + raw).expect("in range")
    }

    #[test]
    fn progress_is_kept_until_it_is_recorded_or_other_work_begins() {
        let unrecorded = Unrecorded::default();
        assert!(unrecorded.keep(1, at(5), "half"));
        assert_eq!(unrecorded.of(1, at(5)), Some("half"));
        assert_eq!(unrecorded.of(1, at(6)), None, "other work");
        assert_eq!(unrecorded.of(2, at(5)), None, "another table");
        assert_eq!(unrecorded.all(), [(1, at(5), "half")]);
        assert!(unrecorded.keep(1, at(6), "begun"));
        assert_eq!(unrecorded.of(1, at(6)), Some("begun"));
        unrecorded.forget(1);
        assert_eq!(unrecorded.of(1, at(6)), None);
        assert!(unrecorded.keep(2, at(5), "half"));
        unrecorded.clear();
        assert_eq!(unrecorded.all(), []);
    }

    #[test]
    fn only_what_was_not_recorded_is_kept_and_only_what_is_kept_is_no_failure() {
        let (unrecorded, table) = (Unrecorded::default(), (1, at(5)));
        assert_eq!(unrecorded.settle(Err("away"), table, || None), Err("away"));
        assert_eq!(unrecorded.settle(Err("away"), table, || Some("half")), Ok(()));
        assert_eq!(unrecorded.of(1, at(5)), Some("half"));
        assert_eq!(unrecorded.settle(Ok::<_, &str>(()), table, || Some("more")), Ok(()));
        assert_eq!(unrecorded.of(1, at(5)), None);
    }

    #[test]
    fn there_is_a_limit() {
        let unrecorded = Unrecorded::default();
        let kept = (0..=MAX_TABLES as i64).filter(|no| unrecorded.keep(*no, at(0), ()));
        assert_eq!(kept.count(), MAX_TABLES);
        assert!(unrecorded.keep(0, at(1), ()), "one that is there is replaced");
    }
}
