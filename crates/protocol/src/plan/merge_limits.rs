//! Conditions under which a merge certainly respects every limit of an entity, so that a database can merge
//! without reading first.
//!
//! A property is one member of the stored object, or two with its annotation, so the number of members bounds
//! the number of properties. Half of an entity's maximum size is reserved for the stored properties. The
//! database can measure the length of their text, which has at least half as many bytes as the size of the
//! properties.

use super::decide::Write;
use crate::model::names::{MAX_ENTITY, MAX_PROPERTIES};

/// Maximum size of the properties in a merge, with the keys, that skips the check.
const MAX_SENT: usize = MAX_ENTITY / 2;
/// Maximum size of the stored text in bytes, as PostgreSQL prints jsonb, for a merge that has
/// [`max_stored_members`].
pub const MAX_STORED_TEXT: i32 = ((MAX_ENTITY - MAX_SENT) / 2) as i32;

/// Returns the maximum number of stored members with which this merge respects every limit, together with
/// [`MAX_STORED_TEXT`]. Returns `None` if the merge must be decided after a read.
pub fn max_stored_members(write: &Write) -> Option<i32> {
    if write.key.counted_size() + write.properties.size() > MAX_SENT {
        return None;
    }
    MAX_PROPERTIES.checked_sub(write.properties.count())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::stored::{encode, fields, tests::any_value};
    use crate::codec::validated::ValidatedProperties;
    use crate::model::entity::{Entity, Properties, StoredProperties, counted};
    use crate::model::names::{MAX_KEY, MAX_STRING, check_property_name};
    use crate::model::{EdmValue, IfMatch, Key, Stored, Ticks};
    use crate::plan::{WriteKind, decide};
    use proptest::prelude::*;

    /// Returns the size of an object in bytes as jsonb prints it: with a space after each colon and comma.
    fn printed(stored: &StoredProperties) -> usize {
        let properties: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(stored.as_str()).unwrap();
        assert!(properties.len() >= fields(stored.as_str()).unwrap().len());
        stored.as_str().len() + (2 * properties.len()).saturating_sub(1)
    }

    fn text(name: String, letters: usize) -> (String, EdmValue) {
        (name, EdmValue::String("x".repeat(letters)))
    }

    /// Returns properties of the kind whose size is largest for its text, up to `size`.
    fn heaviest(prefix: &str, mut size: usize) -> Properties {
        let mut properties = Properties::new();
        for n in 0.. {
            let name = format!("{prefix}{n}");
            let without_letters = 8 + 2 * name.len() + 4;
            let letters = (size.saturating_sub(without_letters) / 2).min(MAX_STRING);
            if letters == 0 {
                break;
            }
            size -= without_letters + 2 * letters;
            properties.push(text(name, letters));
        }
        properties
    }

    fn merge(properties: &Properties) -> Write {
        let key = Key::new("p".repeat(MAX_KEY), "r".repeat(MAX_KEY));
        let properties = ValidatedProperties::new(0, properties, None).unwrap();
        Write { kind: WriteKind::Merge(IfMatch::Any), key, properties }
    }

    #[test]
    fn the_largest_merge_into_the_largest_entity_keeps_the_limit() {
        let keys = merge(&vec![]).key.counted_size();
        let mut sent = heaviest("N", MAX_SENT - keys);
        let write = merge(&sent);
        assert!(MAX_SENT - keys - counted(&sent) < 40);
        assert!(max_stored_members(&write).is_some());
        // The last and smallest property gets one letter too many.
        let last = sent.last_mut().unwrap();
        *last = text(last.0.clone(), MAX_STRING);
        assert_eq!(max_stored_members(&merge(&sent)), None);

        let limit = MAX_STORED_TEXT as usize;
        let fits = |size: &usize| printed(&encode(&heaviest("O", *size))) <= limit;
        let size = (limit..=2 * limit).rev().step_by(2).find(fits).unwrap();
        let properties = encode(&heaviest("O", size));
        assert!(limit - printed(&properties) < 16);
        let stored = Stored { key: write.key.clone(), modified: Ticks::MIN, properties };
        assert!(decide(&write, Some(&stored), Ticks::MIN).is_ok());
    }

    #[test]
    fn as_many_members_as_there_is_room_for_keep_the_limit() {
        let numbers = |prefix: &str, n: usize| -> Properties {
            (0..n).map(|i| (format!("{prefix}{i}"), EdmValue::Int32(1))).collect()
        };
        for sent in [0, 1, 100, MAX_PROPERTIES] {
            let write = merge(&numbers("N", sent));
            let room = max_stored_members(&write).unwrap() as usize;
            let stored = |n: usize| {
                let properties = encode(&numbers("O", n));
                Stored { key: write.key.clone(), modified: Ticks::MIN, properties }
            };
            assert!(decide(&write, Some(&stored(room)), Ticks::MIN).is_ok(), "{sent}");
            assert!(decide(&write, Some(&stored(room + 1)), Ticks::MIN).is_err(), "{sent}");
        }
    }

    /// Generates any value, but values with few letters more often than by chance.
    fn lean_value() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            any_value(),
            (-1_i32..10).prop_map(EdmValue::Int32),
            prop::sample::select(vec!["", "a", "é", "\u{0}"]).prop_map(|s| EdmValue::String(s.into())),
        ]
    }

    proptest! {
        #[test]
        fn the_text_has_at_least_half_of_what_its_properties_count(
            values in prop::collection::btree_map("[A-Z_a-zé中𝐀][a-z0-9é中𝐀]{0,3}", lean_value(), 0..12),
        ) {
            let properties: Properties = values.into_iter().collect();
            for (name, _) in &properties {
                prop_assert!(check_property_name(name).is_ok(), "{}", name);
            }
            let entity = Entity { key: Key::new("", ""), properties: properties.clone() };
            let counted = entity.counted_size() - entity.key.counted_size();
            let text = printed(&encode(&properties));
            prop_assert!(counted <= 2 * text, "{} bytes count {}: {:?}", text, counted, properties);
        }
    }
}
