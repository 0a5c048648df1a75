//! Progress of upkeep that could not be stored.
//!
//! The tables for it have a copy on each node of a cluster, and are written on all of them or on none. So while a
//! node is away, the process remembers how far its sweeps and counts have come, and goes on with the tables whose
//! nodes answer. What it forgets when it ends is done again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::protocol::model::Ticks;
use crate::store::{CountPosition, SweepState, TableExpiry, TotalPass};

/// Maximum tables of each kind.
const MAX_TABLES: usize = 10_000;

/// What this process has done since.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// By the number of the table, with the time when its rule was set.
    sweeps: BTreeMap<i64, (Ticks, SweepState)>,
    /// By the number of the table, with the time when the count began: where it goes on, and how many so far.
    counts: BTreeMap<i64, (Ticks, CountPosition, u64)>,
}

/// Sweeps as a statement takes them, side by side: tables, when their rules were set, when they are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DueSweeps {
    pub tables: Vec<i64>,
    pub made: Vec<i64>,
    pub due: Vec<i64>,
}

impl Unrecorded {
    fn with<T>(&self, work: impl FnOnce(&mut Progress) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers a sweep; `false` if there is no room.
    pub(crate) fn keep_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> bool {
        self.with(|progress| keep(&mut progress.sweeps, of.table_no, (of.made, sweep.clone())))
    }

    /// Forgets the sweep of a table, which was stored.
    pub(crate) fn forget_sweep(&self, table_no: i64) {
        self.with(|progress| progress.sweeps.remove(&table_no));
    }

    pub(crate) fn due_sweeps(&self) -> DueSweeps {
        self.with(|progress| {
            let mut all = DueSweeps::default();
            for (table_no, (made, sweep)) in &progress.sweeps {
                all.tables.push(*table_no);
                all.made.push(made.raw());
                all.due.push(sweep.due.raw());
            }
            all
        })
    }

    /// A rule as it was read, with what this process has done since.
    pub(crate) fn newest_sweep(&self, of: TableExpiry) -> TableExpiry {
        let kept = self.with(|progress| progress.sweeps.get(&of.table_no).cloned());
        match kept {
            Some((made, sweep)) if made == of.made => TableExpiry { sweep, ..of },
            _ => of,
        }
    }

    /// Remembers how far a count has come; `false` if there is no room.
    pub(crate) fn keep_count(&self, pass: &TotalPass, next: &CountPosition, so_far: u64) -> bool {
        self.with(|progress| keep(&mut progress.counts, pass.table_no, (pass.began, next.clone(), so_far)))
    }

    /// Forgets the count of a table, which was stored.
    pub(crate) fn forget_count(&self, table_no: i64) {
        self.with(|progress| progress.counts.remove(&table_no));
    }

    /// A count as it was read, with what this process has counted since.
    pub(crate) fn newest_count(&self, pass: TotalPass) -> TotalPass {
        let kept = self.with(|progress| progress.counts.get(&pass.table_no).cloned());
        match kept {
            Some((began, position, so_far)) if began == pass.began => TotalPass { position, so_far, ..pass },
            _ => pass,
        }
    }

    /// Forgets everything: another server works now.
    pub(crate) fn clear(&self) {
        self.with(|progress| *progress = Progress::default());
    }
}

fn keep<T>(all: &mut BTreeMap<i64, T>, table_no: i64, progress: T) -> bool {
    let has_room = all.len() < MAX_TABLES || all.contains_key(&table_no);
    if has_room {
        all.insert(table_no, progress);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::Key;
    use crate::store::ExpiryRule;

    fn at(raw: i64) -> Ticks {
        Ticks::from_raw(Ticks::MIN.raw() + raw).expect("in range")
    }

    fn expiry(table_no: i64, made: i64) -> TableExpiry {
        let sweep = SweepState { due: at(0), began: None, position: None, clean: None, expired: 0 };
        let rule = ExpiryRule { property: None, delay: 1, pause: 1 };
        let (account, table) = ("a".to_owned(), "T".to_owned());
        TableExpiry { table_no, spread: 1, account, table, rule, made: at(made), sweep }
    }

    fn count(table_no: i64, began: i64) -> TotalPass {
        let (account, table) = ("a".to_owned(), "T".to_owned());
        TotalPass { table_no, account, table, began: at(began), position: CountPosition::start(), so_far: 0 }
    }

    #[test]
    fn a_sweep_goes_on_until_it_is_stored_or_the_rule_is_another() {
        let unrecorded = Unrecorded::default();
        let later = SweepState { due: at(9), expired: 3, ..expiry(1, 5).sweep };
        assert!(unrecorded.keep_sweep(&expiry(1, 5), &later));
        assert_eq!(unrecorded.newest_sweep(expiry(1, 5)).sweep, later);
        assert_eq!(unrecorded.newest_sweep(expiry(1, 6)), expiry(1, 6), "another rule");
        assert_eq!(unrecorded.newest_sweep(expiry(2, 5)), expiry(2, 5), "another table");
        let due = DueSweeps { tables: vec![1], made: vec![at(5).raw()], due: vec![at(9).raw()] };
        assert_eq!(unrecorded.due_sweeps(), due);
        unrecorded.forget_sweep(1);
        assert_eq!(unrecorded.newest_sweep(expiry(1, 5)), expiry(1, 5));
    }

    #[test]
    fn a_count_goes_on_until_it_is_stored_or_another_one_begins() {
        let unrecorded = Unrecorded::default();
        let next = CountPosition { share: 2, key: Key::new("p", "r") };
        assert!(unrecorded.keep_count(&count(1, 5), &next, 7));
        let newest = unrecorded.newest_count(count(1, 5));
        assert_eq!((newest.position, newest.so_far), (next, 7));
        assert_eq!(unrecorded.newest_count(count(1, 6)), count(1, 6), "another count");
        unrecorded.clear();
        assert_eq!(unrecorded.newest_count(count(1, 5)), count(1, 5));
    }

    #[test]
    fn there_is_a_limit() {
        let unrecorded = Unrecorded::default();
        let sweep = expiry(0, 0).sweep;
        let kept = (0..=MAX_TABLES as i64).filter(|no| unrecorded.keep_sweep(&expiry(*no, 0), &sweep));
        assert_eq!(kept.count(), MAX_TABLES);
        assert!(unrecorded.keep_sweep(&expiry(0, 1), &sweep), "one that is there is replaced");
    }
}
