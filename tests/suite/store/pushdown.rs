//! A filter that a store evaluates keeps the rows that satisfy its [meaning](super::meaning).

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse::protocol::model::entity::Properties;
use rowhouse::protocol::model::{CaseFold, CompareOp, EdmValue, Key, TextTest};
use rowhouse::protocol::plan::{Field, Predicate, Projection, Span, WriteKind};

use super::contract::{fill, scan, table, walk, write};
use super::meaning::holds;
use super::values::value;

const NAMES: [&str; 4] = ["A", "B", "é", "Missing"];
const ENTITIES: usize = 400;
const FILTERS: usize = 300;

fn comparison() -> impl Strategy<Value = Predicate> {
    let op = prop::sample::select(CompareOp::ALL.to_vec());
    (op, value(), 0..10_u8, prop::sample::select(NAMES.to_vec())).prop_map(|(op, literal, kind, name)| {
        let text = |literal: &EdmValue| matches!(literal, EdmValue::String(_));
        let field = match kind {
            0 if text(&literal) => Field::PartitionKey,
            1 if text(&literal) => Field::RowKey,
            2 if matches!(literal, EdmValue::DateTime(_)) => Field::Timestamp,
            3 => return Predicate::Flag(name.into()),
            4 => return Predicate::Always(op == CompareOp::Eq),
            _ => Field::Custom(name.into()),
        };
        Predicate::Compare { field, op, literal }
    })
}

fn text_test() -> impl Strategy<Value = Predicate> {
    let tests = [TextTest::StartsWith, TextTest::EndsWith, TextTest::Contains];
    let tests = tests.into_iter().chain(CompareOp::ALL.map(TextTest::Is)).collect::<Vec<_>>();
    let fold = prop::sample::select(vec![None, Some(CaseFold::Lower), Some(CaseFold::Upper)]);
    // Parts of the values, and of their escaped forms.
    let needle = prop_oneof!["[aé\u{0}\u{1}\u{2}]{0,2}", "[a-cA-C0-9]{0,2}", value().prop_map(text_of)];
    (prop::sample::select(tests), fold, needle, 0..6_u8, prop::sample::select(NAMES.to_vec())).prop_map(
        |(test, fold, needle, kind, name)| {
            let field = match kind {
                0 => Field::PartitionKey,
                1 => Field::RowKey,
                2 => return Predicate::Present(name.into()),
                _ => Field::Custom(name.into()),
            };
            Predicate::Text { field, fold, test, needle }
        },
    )
}

fn text_of(value: EdmValue) -> String {
    match value {
        EdmValue::String(text) => text,
        _ => String::new(),
    }
}

fn predicate() -> impl Strategy<Value = Predicate> {
    prop_oneof![2 => comparison(), 1 => text_test()].prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::All),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::Any),
            inner.prop_map(|p| Predicate::Not(Box::new(p))),
        ]
    })
}

/// Every operator with a literal of every type on each property, then random
/// trees.
fn predicates(runner: &mut TestRunner) -> Vec<Predicate> {
    let tree = predicate();
    let literal = value();
    let mut all = Vec::new();
    for _ in 0..30 {
        let literal = literal.new_tree(runner).unwrap().current();
        for op in CompareOp::ALL {
            let field = Field::Custom("A".into());
            all.push(Predicate::Compare { field, op, literal: literal.clone() });
        }
    }
    let test = text_test();
    all.extend((0..FILTERS).map(|_| test.new_tree(runner).unwrap().current()));
    all.extend((0..FILTERS).map(|_| tree.new_tree(runner).unwrap().current()));
    all
}

pub async fn sql_is_eval<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let mut runner = TestRunner::deterministic();
    let one = prop::collection::vec(prop::option::weighted(0.8, value()), 3);
    let writes = (0..ENTITIES).map(|i| {
        let values = one.new_tree(&mut runner).unwrap().current();
        let named = NAMES.iter().zip(values).filter_map(|(n, v)| Some(((*n).to_owned(), v?)));
        let partition = ["", "a", "é"][i % 3];
        write(WriteKind::Insert, partition, &format!("{i:03}"), named.collect::<Properties>())
    });
    let writes = writes.collect();
    fill(store, &account, &table, writes).await;
    let everything = walk(store, &account, &table, &scan(vec![Span::everything()])).await.concat();
    assert_eq!(everything.len(), ENTITIES);
    for (at, predicate) in predicates(&mut runner).into_iter().enumerate() {
        let expected: Vec<&Key> =
            everything.iter().filter(|row| holds(&predicate, row)).map(|row| &row.key).collect();
        let mut filtered = scan(vec![Span::everything()]);
        if at % 3 == 0 {
            filtered.projection = Projection::SystemOnly;
        }
        if at % 7 == 0 {
            // The same rows by their keys.
            let point = |key: &Key| Span {
                lower: key.clone(),
                upper: Some(Key::new(key.partition.as_str(), format!("{}\u{1}", key.row))),
            };
            filtered.spans = everything.iter().map(|row| point(&row.key)).collect();
        }
        filtered.residual = Some(predicate.clone());
        let rows = walk(store, &account, &table, &filtered).await.concat();
        assert_eq!(rows.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{predicate:?}");
    }
}
