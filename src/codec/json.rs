//! JSON entities in and out (protocol §4.2 to §4.5).

mod plain;
pub mod read;
pub mod write;
