//! The catalog, shared by both stores: tables, accounts, expiry rules, index records, copy marks and snapshots.
//!
//! A [`Backend`](session::Backend) runs single statements, and a [`SqlSession`](session::SqlSession) the statements
//! of a transaction. SQLite returns results synchronously, so the writer thread runs a whole transaction in its group
//! commit.

mod accounts;
mod deleted;
mod expiry;
mod indexes;
mod loads;
mod reset;
mod session;
mod tables;

pub fn texts() -> Vec<&'static str> {
    let subjects: [&[&str]; 7] =
        [&accounts::ALL, &deleted::ALL, &expiry::ALL, &indexes::ALL, &loads::ALL, &reset::ALL, &tables::ALL];
    [&subjects.concat()[..], &[session::LOCK_TABLE_SHARED.postgres]].concat()
}
