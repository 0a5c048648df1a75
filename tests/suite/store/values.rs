//! Values come back as they went in.

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::codec::stored;
use rowhouse_protocol::model::entity::Properties;
use rowhouse_protocol::model::{EdmValue, Ticks};
use rowhouse_protocol::plan::WriteKind;

use super::contract::{table, write};

/// Any value, with those that are hard to store or compare more often than
/// chance has them.
pub fn value() -> impl Strategy<Value = EdmValue> {
    let tick = |raw| EdmValue::DateTime(Ticks::from_raw(raw).expect("a time in range"));
    let start = 630_000_000_000_000_000_i64;
    let number = prop::sample::select(vec![
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        1e15,
        1e17,
        1e300,
        -1e-300,
        5e-324,
        f64::MAX,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        9_007_199_254_740_993.0,
    ]);
    prop_oneof![
        "[\u{1}-\u{2}aAé😀\"\\\\]{0,3}".prop_map(EdmValue::String),
        "[\u{0}-\u{2}a]{0,3}".prop_map(EdmValue::String),
        prop::sample::select(vec!["true", "1", "NaN", "", "Edm.Int64"])
            .prop_map(|s| EdmValue::String(s.into())),
        prop::collection::vec(0_u8..3, 0..3).prop_map(EdmValue::Binary),
        any::<bool>().prop_map(EdmValue::Boolean),
        prop::sample::select(vec![0, 1, 5, 10, 100, 9_999_999, 10_000_000])
            .prop_map(move |n| tick(start + n)),
        (Ticks::MIN.raw()..=Ticks::MAX.raw()).prop_map(tick),
        number.prop_map(EdmValue::Double),
        any::<f64>().prop_map(EdmValue::Double),
        (0_u128..4).prop_map(|bits| EdmValue::Guid(uuid::Uuid::from_u128(bits << 60))),
        (-2_i32..3).prop_map(EdmValue::Int32),
        any::<i32>().prop_map(EdmValue::Int32),
        (-2_i64..3).prop_map(EdmValue::Int64),
        prop::sample::select(vec![i64::MAX, i64::MIN, 9_007_199_254_740_993]).prop_map(EdmValue::Int64),
    ]
}

pub async fn stored_unaltered<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let mut runner = TestRunner::deterministic();
    let values = prop::collection::vec(value(), 0..12);
    let entities: Vec<Properties> = (0..200)
        .map(|_| values.new_tree(&mut runner).unwrap().current())
        .map(|values| values.into_iter().enumerate().map(|(i, v)| (format!("P{i:02}"), v)).collect())
        .collect();
    let writes = entities
        .iter()
        .enumerate()
        .map(|(i, properties)| write(WriteKind::Insert, "p", &format!("{i:03}"), properties.clone()));
    table.fill(writes).await;
    let rows = table.all().await;
    assert_eq!(rows.len(), entities.len());
    for (row, sent) in rows.iter().zip(&entities) {
        let mut back = stored::decode(&row.properties).unwrap();
        back.sort_by(|a, b| a.0.cmp(&b.0));
        // Debug text tells the zeros apart and takes NaN for itself.
        assert_eq!(format!("{back:?}"), format!("{sent:?}"));
    }
}
