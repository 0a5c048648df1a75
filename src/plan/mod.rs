//! Meaning: what a well-formed request does to the data. Pure functions over
//! plain data; no I/O, no clock.

pub mod decide;
pub mod predicate;
pub mod scan;
pub mod span;

pub use decide::{Change, Write, WriteKind, Written, decide};
pub use predicate::{Field, Predicate};
pub use scan::{EntityPage, Projection, Scan, TableEntry, TablePage, TableScan};
pub use span::Span;
