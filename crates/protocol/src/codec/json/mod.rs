//! JSON entities: reading and printing (protocol §4.2 to §4.5).

pub mod property;
pub mod read;
pub mod write;
