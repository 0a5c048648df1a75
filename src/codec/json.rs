//! JSON entities in and out (protocol §4.2 to §4.5).

pub mod read;
pub mod write;
