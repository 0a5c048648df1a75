//! Parses `$filter` to a tree; `plan` gives it its meaning (protocol §6.2).

pub(crate) mod lexer;
pub(crate) mod parser;

pub use parser::{Expr, Grammar, Operand, parse};
