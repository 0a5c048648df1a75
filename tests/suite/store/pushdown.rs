//! A filter that a store evaluates keeps the rows that satisfy its [meaning](super::meaning).

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::model::{CaseFold, CompareOp, EdmValue, Key, TextTest};
use rowhouse_protocol::plan::{Field, Predicate, Projection};

use super::contract::{compare, everything, point, table};
use super::meaning::{fill_at_random, holds};
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
        all.extend(CompareOp::ALL.map(|op| compare("A", op, literal.clone())));
    }
    let test = text_test();
    all.extend((0..FILTERS).map(|_| test.new_tree(runner).unwrap().current()));
    all.extend((0..FILTERS).map(|_| tree.new_tree(runner).unwrap().current()));
    all
}

pub async fn sql_is_eval<B: AnyStore>(store: &B) {
    sql_is_eval_for(store, 1).await;
}

/// For stores that make the same statements as another one, over other buckets.
pub async fn sql_is_eval_for_some_filters<B: AnyStore>(store: &B) {
    sql_is_eval_for(store, 7).await;
}

/// Compares for one of so many filters.
async fn sql_is_eval_for<B: AnyStore>(store: &B, one_of: usize) {
    let table = table(store).await;
    let mut runner = TestRunner::deterministic();
    let all = fill_at_random(&table, &mut runner, ENTITIES, &NAMES[..3], value()).await;
    for (at, predicate) in predicates(&mut runner).into_iter().step_by(one_of).enumerate() {
        let expected: Vec<&Key> =
            all.iter().filter(|row| holds(&predicate, row)).map(|row| &row.stored.key).collect();
        let mut filtered = everything();
        if at % 3 == 0 {
            filtered.projection = Projection::SystemOnly;
        }
        if at % 7 == 0 {
            // The same rows by their keys.
            filtered.spans = all.iter().map(|row| point(&row.stored.key)).collect();
        }
        filtered.residual = Some(predicate.clone());
        let rows = table.walk(&filtered).await.concat();
        assert_eq!(rows.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{predicate:?}");
    }
}
