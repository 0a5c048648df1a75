//! The catalog, written once for both databases: tables, accounts, expiry rules, records of indexes, marks of copies
//! and snapshots.
//!
//! Statements run by a [`Backend`](session::Backend), those of a transaction in a
//! [`SqlSession`](session::SqlSession). On SQLite a statement has its result at once, so the thread that writes runs a
//! whole transaction in its group commit.

mod accounts;
mod deleted;
mod expiry;
mod indexes;
mod loads;
mod reset;
mod session;
mod tables;

/// Every text for PostgreSQL.
pub fn texts() -> Vec<&'static str> {
    let subjects: [&[&str]; 7] =
        [&accounts::ALL, &deleted::ALL, &expiry::ALL, &indexes::ALL, &loads::ALL, &reset::ALL, &tables::ALL];
    [&subjects.concat()[..], &[session::LOCK_TABLE.postgres, session::DOOM]].concat()
}
