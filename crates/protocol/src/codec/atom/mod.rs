//! Atom entries and feeds, which clients before 2015-12-11 speak
//! (protocol §4.6).

pub mod read;
pub mod write;
