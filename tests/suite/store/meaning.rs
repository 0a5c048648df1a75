//! What a filter means (protocol §6.4), written once more for the tests. It shares no code with the evaluation in the
//! program or in SQL, and works on decoded values alone.

use std::cmp::Ordering;
use std::ops::Deref;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::codec::stored;
use rowhouse_protocol::model::entity::Properties;
use rowhouse_protocol::model::{CaseFold, CompareOp, EdmValue, Stored, TextTest};
use rowhouse_protocol::plan::{Field, Predicate, WriteKind};

use super::contract::{TestTable, write};
use crate::support::store::AnyStore;

/// An entity, decoded once for all filters that it is compared with.
pub struct Decoded {
    pub stored: Stored,
    partition: EdmValue,
    row: EdmValue,
    modified: EdmValue,
    properties: Properties,
}

impl Decoded {
    pub fn new(stored: Stored) -> Self {
        Self {
            partition: EdmValue::String(stored.key.partition.clone()),
            row: EdmValue::String(stored.key.row.clone()),
            modified: EdmValue::DateTime(stored.modified),
            properties: stored::decode(&stored.properties).expect("stored properties"),
            stored,
        }
    }

    pub fn property(&self, name: &str) -> Option<&EdmValue> {
        self.properties.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    fn value(&self, field: &Field) -> Option<&EdmValue> {
        match field {
            Field::PartitionKey => Some(&self.partition),
            Field::RowKey => Some(&self.row),
            Field::Timestamp => Some(&self.modified),
            Field::Custom(name) => self.property(name),
        }
    }
}

/// Inserts entities of random values, some of them absent, and returns all that are stored.
pub async fn fill_at_random<S: Deref<Target: AnyStore>>(
    table: &TestTable<S>,
    runner: &mut TestRunner,
    count: usize,
    names: &[&str],
    value: impl Strategy<Value = EdmValue>,
) -> Vec<Decoded> {
    let values = prop::collection::vec(prop::option::weighted(0.8, value), names.len());
    let writes = (0..count).map(|i| {
        let values = values.new_tree(runner).unwrap().current();
        let named = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        let partition = ["", "a", "é"][i % 3];
        write(WriteKind::Insert, partition, &format!("{i:03}"), named.collect())
    });
    table.fill(writes).await;
    let all: Vec<Decoded> = table.all().await.into_iter().map(Decoded::new).collect();
    assert_eq!(all.len(), count);
    all
}

/// Whether an entity satisfies a predicate.
pub fn holds(predicate: &Predicate, entity: &Decoded) -> bool {
    match predicate {
        Predicate::All(parts) => !parts.iter().any(|part| !holds(part, entity)),
        Predicate::Any(parts) => parts.iter().any(|part| holds(part, entity)),
        Predicate::Not(inner) => !holds(inner, entity),
        Predicate::Always(is_true) => *is_true,
        Predicate::Flag(name) => entity.property(name) == Some(&EdmValue::Boolean(true)),
        Predicate::Present(name) => entity.property(name).is_some(),
        Predicate::Compare { field, op, literal } => match entity.value(field) {
            Some(value) => satisfies(*op, order(value, literal)),
            None => false,
        },
        Predicate::Text { field, fold, test, needle } => match entity.value(field) {
            Some(EdmValue::String(text)) => passes(*test, &folded(text, *fold), needle),
            _ => false,
        },
    }
}

/// Changes the case of ASCII letters alone.
fn folded(text: &str, fold: Option<CaseFold>) -> String {
    let change = |c: char| match fold {
        Some(CaseFold::Lower) if c.is_ascii_uppercase() => char::from(c as u8 + 32),
        Some(CaseFold::Upper) if c.is_ascii_lowercase() => char::from(c as u8 - 32),
        _ => c,
    };
    text.chars().map(change).collect()
}

fn passes(test: TextTest, text: &str, needle: &str) -> bool {
    let (text, needle): (Vec<char>, Vec<char>) = (text.chars().collect(), needle.chars().collect());
    match test {
        TextTest::StartsWith => text.len() >= needle.len() && text[..needle.len()] == needle,
        TextTest::EndsWith => text.len() >= needle.len() && text[text.len() - needle.len()..] == needle,
        TextTest::Contains => needle.is_empty() || text.windows(needle.len()).any(|part| part == needle),
        TextTest::Is(op) => satisfies(op, Some(text.cmp(&needle))),
    }
}

/// `None` if one of the values is NaN.
fn order(stored: &EdmValue, literal: &EdmValue) -> Option<Ordering> {
    match (stored, literal) {
        (EdmValue::String(a), EdmValue::String(b)) => Some(a.chars().cmp(b.chars())),
        (EdmValue::Binary(a), EdmValue::Binary(b)) => Some(a.iter().cmp(b)),
        (EdmValue::Boolean(a), EdmValue::Boolean(b)) => Some(u8::from(*a).cmp(&u8::from(*b))),
        (EdmValue::DateTime(a), EdmValue::DateTime(b)) => Some(a.raw().cmp(&b.raw())),
        (EdmValue::Guid(a), EdmValue::Guid(b)) => Some(a.to_string().cmp(&b.to_string())),
        (EdmValue::Int32(a), EdmValue::Int32(b)) => Some(a.cmp(b)),
        (EdmValue::Int64(a), EdmValue::Int64(b)) => Some(a.cmp(b)),
        (EdmValue::Int64(a), EdmValue::Int32(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (EdmValue::Double(a), EdmValue::Double(b)) => doubles(*a, *b),
        (EdmValue::Double(a), EdmValue::Int32(b)) => doubles(*a, f64::from(*b)),
        (EdmValue::Double(a), EdmValue::Int64(b)) => doubles(*a, *b as f64),
        // A value of another type sorts below the literal.
        _ => Some(Ordering::Less),
    }
}

fn doubles(a: f64, b: f64) -> Option<Ordering> {
    if a.is_nan() || b.is_nan() {
        return None;
    }
    Some(if a < b {
        Ordering::Less
    } else if a > b {
        Ordering::Greater
    } else {
        Ordering::Equal
    })
}

fn satisfies(op: CompareOp, order: Option<Ordering>) -> bool {
    let Some(order) = order else { return op == CompareOp::Ne };
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::Ne => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::Le => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::Ge => order.is_ge(),
    }
}
