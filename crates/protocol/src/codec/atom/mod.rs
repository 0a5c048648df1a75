//! Atom entries and feeds, the format of clients before 2015-12-11 (protocol §4.6).

pub mod read;
pub mod write;
