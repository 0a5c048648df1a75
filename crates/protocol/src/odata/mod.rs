//! Parses `$filter` into a tree, which `plan` interprets (protocol §6.2).

pub(crate) mod lexer;
pub(crate) mod parser;

pub use parser::{Expr, Grammar, Operand, parse};
