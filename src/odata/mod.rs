//! `$filter` text to a tree; what the tree means is `plan`'s business
//! (protocol §6.2).

pub(crate) mod lexer;
pub(crate) mod parser;

pub use parser::{Expr, Operand, parse};
