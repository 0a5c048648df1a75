//! Filters printed again, and entities to try them on.

use rowhouse_protocol::codec::stored;
use rowhouse_protocol::model::names::check_body_key;
use rowhouse_protocol::model::{EdmValue, Key, Stored, Ticks, lexical};
use rowhouse_protocol::odata::{Expr, Operand};

/// The text of an expression, with as few parentheses as it can have.
pub fn print(expr: &Expr) -> String {
    match expr {
        Expr::Or(parts) => join(parts, " or "),
        Expr::And(parts) => join(parts, " and "),
        Expr::Not(inner) => format!("not {}", inside(inner)),
        Expr::Compare { left, op, right } => {
            format!("{} {} {}", operand(left), op.word(), operand(right))
        }
        Expr::Bare(bare) => operand(bare),
        Expr::Call { test, operand: text, needle } => {
            format!("{}({},{})", test.word(), operand(text), literal(needle))
        }
        Expr::In { operand: text, values } => {
            let values: Vec<_> = values.iter().map(literal).collect();
            format!("{} in ({})", operand(text), values.join(","))
        }
    }
}

fn join(parts: &[Expr], word: &str) -> String {
    parts.iter().map(inside).collect::<Vec<_>>().join(word)
}

fn inside(expr: &Expr) -> String {
    match expr {
        Expr::Or(_) | Expr::And(_) => format!("({})", print(expr)),
        other => print(other),
    }
}

fn operand(operand: &Operand) -> String {
    match operand {
        Operand::Property(name) => name.clone(),
        Operand::Literal(value) => literal(value),
        Operand::Folded(fold, name) => format!("{}({name})", fold.word()),
        Operand::Null => "null".to_owned(),
    }
}

fn literal(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => format!("'{}'", text.replace('\'', "''")),
        EdmValue::Binary(bytes) => {
            format!("X'{}'", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
        }
        EdmValue::Boolean(value) => value.to_string(),
        EdmValue::DateTime(at) => format!("datetime'{}'", at.to_canonical()),
        EdmValue::Double(value) => lexical::format_double(*value).replace("Infinity", "INF"),
        EdmValue::Guid(value) => format!("guid'{value}'"),
        EdmValue::Int32(value) => value.to_string(),
        EdmValue::Int64(value) => format!("{value}L"),
    }
}

/// Comparisons and bare operands of an expression.
pub fn comparisons(expr: &Expr) -> usize {
    match expr {
        Expr::Or(parts) | Expr::And(parts) => parts.iter().map(comparisons).sum(),
        Expr::Not(inner) => comparisons(inner),
        Expr::Compare { .. } | Expr::Bare(_) | Expr::Call { .. } => 1,
        Expr::In { values, .. } => values.len(),
    }
}

/// What an expression names and compares with.
#[derive(Default)]
pub struct Mentioned {
    pub names: Vec<String>,
    pub literals: Vec<EdmValue>,
}

impl Mentioned {
    /// Everything that an expression mentions.
    pub fn by(expr: &Expr) -> Self {
        let mut mentioned = Self::default();
        mentioned.collect(expr);
        mentioned
    }

    fn collect(&mut self, expr: &Expr) {
        match expr {
            Expr::Or(parts) | Expr::And(parts) => parts.iter().for_each(|part| self.collect(part)),
            Expr::Not(inner) => self.collect(inner),
            Expr::Compare { left, right, .. } => {
                self.operand(left);
                self.operand(right);
            }
            Expr::Bare(operand) => self.operand(operand),
            Expr::Call { operand, needle, .. } => {
                self.operand(operand);
                self.literals.push(needle.clone());
            }
            Expr::In { operand, values } => {
                self.operand(operand);
                self.literals.extend_from_slice(values);
            }
        }
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Property(name) | Operand::Folded(_, name) => self.names.push(name.clone()),
            Operand::Literal(literal) => self.literals.push(literal.clone()),
            Operand::Null => {}
        }
    }

    /// Keys at and around the texts, in page order.
    pub fn keys(&self) -> Vec<Key> {
        const MAX_PARTS: usize = 12;
        let mut parts = vec![String::new(), "A".to_owned(), "\u{10ffff}".to_owned()];
        for literal in &self.literals {
            let EdmValue::String(text) = literal else { continue };
            parts.extend([text.clone(), format!("{text}!"), text.chars().take(1).collect()]);
        }
        parts.retain(|part| check_body_key("RowKey", part).is_ok());
        parts.truncate(MAX_PARTS);
        let mut keys: Vec<Key> =
            parts.iter().flat_map(|p| parts.iter().map(move |r| Key::new(p, r))).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Entities under these keys that have what is mentioned, and others.
    pub fn entities(&self, keys: &[Key], at: Ticks) -> Vec<Stored> {
        let values = [EdmValue::Boolean(true), EdmValue::Int32(0), EdmValue::String("\0".to_owned())];
        let values: Vec<&EdmValue> = values.iter().chain(&self.literals).collect();
        let mut names = self.names.clone();
        names.sort_unstable();
        names.dedup();
        let entity = |(turn, key): (usize, &Key)| {
            let properties: Vec<(String, EdmValue)> = names
                .iter()
                .enumerate()
                .filter(|(nth, _)| (turn + nth) % 5 != 4)
                .map(|(nth, name)| (name.clone(), values[(turn + nth) % values.len()].clone()))
                .collect();
            Stored { key: key.clone(), modified: at, properties: stored::encode(&properties) }
        };
        keys.iter().enumerate().map(entity).collect()
    }
}
