//! The data model: plain data, and the rules that always apply to it.

pub mod edm;
pub mod entity;
pub mod lexical;
pub mod names;
pub mod ticks;
pub mod version;

pub use edm::{CaseFold, CompareOp, EdmType, EdmValue, TextTest};
pub use entity::{Entity, Key, PageOrder, Stored};
pub use names::{TableName, TableRef};
pub use ticks::Ticks;
pub use version::{IfMatch, IfNoneMatch};
