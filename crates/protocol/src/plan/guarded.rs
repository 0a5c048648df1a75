//! Conditional writes: one SQL statement carries the condition, so no read precedes the write.
//!
//! A merge needs no read if it cannot exceed a limit of an entity. Two conditions ensure this. The number of members in
//! the stored object is limited: a property is one member, or two with its annotation. The size is limited by
//! reserving half of an entity's maximum size for the stored properties. The database measures the length of their
//! text, which has at least half as many bytes as the size of the properties.

use super::decide::{Change, Write, WriteKind};
use crate::codec::stored::absent_annotations;
use crate::model::entity::StoredProperties;
use crate::model::names::{MAX_ENTITY, MAX_PROPERTIES};
use crate::model::{IfMatch, Key, Stored};

/// Maximum size of the keys and properties in a merge that needs no read.
const MAX_SENT: usize = MAX_ENTITY / 2;
/// Maximum size of the stored text in bytes, as PostgreSQL prints jsonb, for a merge that has [`MergeLimits`].
pub const MAX_STORED_TEXT: i32 = ((MAX_ENTITY - MAX_SENT) / 2) as i32;

/// A write whose kind states the rows to which it applies. An insert applies if there is no row, an upsert in any case,
/// and every other write to a row with the version of its condition. [`super::decide()`] refuses the write in all other
/// cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedWrite {
    pub kind: WriteKind,
    pub key: Key,
    /// The properties to store, or to merge into those of an existing row.
    pub properties: StoredProperties,
    /// The limits of a merge, which apply to an existing row.
    pub limits: Option<MergeLimits>,
}

/// Limits on a stored row. A merge into a row that respects them and [`MAX_STORED_TEXT`] exceeds no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeLimits {
    /// Annotations that the stored row must not have, joined by commas, which names cannot contain.
    pub annotations: String,
    /// Maximum members of the stored row.
    pub max_members: i32,
}

impl MergeLimits {
    /// Returns the limits under which none of these merges needs a read, or `None` if one needs it anyway.
    pub fn of(writes: &[Write]) -> Option<Self> {
        let mut max_members = i32::MAX;
        let mut annotations = Vec::new();
        for write in writes {
            max_members = max_members.min(max_stored_members(write)?);
            annotations.extend(absent_annotations(write.properties.stored()).ok()?);
        }
        annotations.sort_unstable();
        annotations.dedup();
        Some(Self { annotations: annotations.join(","), max_members })
    }
}

impl Write {
    /// Returns the write with its own condition as the guard. Returns `None` for a merge that must be decided after a
    /// read, and for a version that no entity can have.
    pub fn guarded(&self) -> Option<GuardedWrite> {
        let limits = match self.kind {
            WriteKind::Replace(IfMatch::Version(None))
            | WriteKind::Merge(IfMatch::Version(None))
            | WriteKind::Delete(IfMatch::Version(None)) => return None,
            WriteKind::Merge(_) => Some(MergeLimits::of(std::slice::from_ref(self))?),
            WriteKind::Insert | WriteKind::Replace(_) | WriteKind::Delete(_) => None,
        };
        let properties = self.properties.stored().clone();
        Some(GuardedWrite { kind: self.kind, key: self.key.clone(), properties, limits })
    }

    /// Returns a decided change with a guard: it applies only to the row for which it was decided.
    pub fn guarded_by(&self, found: Option<&Stored>, change: Change<'_>) -> GuardedWrite {
        let version = found.map_or(IfMatch::Absent, |found| IfMatch::Version(Some(found.modified)));
        let (kind, properties) = match change {
            Change::Delete => (WriteKind::Delete(version), StoredProperties::default()),
            Change::Put { properties, .. } if found.is_some() => {
                (WriteKind::Replace(version), properties.into_owned())
            }
            Change::Put { properties, .. } => (WriteKind::Insert, properties.into_owned()),
        };
        GuardedWrite { kind, key: self.key.clone(), properties, limits: None }
    }
}

/// Returns the maximum number of stored members with which this merge respects every limit, or `None` if the merge must
/// be decided after a read.
fn max_stored_members(write: &Write) -> Option<i32> {
    if write.key.counted_size() + write.properties.size() > MAX_SENT {
        return None;
    }
    MAX_PROPERTIES.checked_sub(write.properties.count())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::stored::{decode, encode, fields, tests::any_value};
    use crate::codec::validated::ValidatedProperties;
    use crate::model::entity::{Entity, Properties, counted};
    use crate::model::names::{MAX_KEY, MAX_STRING, check_property_name};
    use crate::model::{EdmValue, Ticks};
    use crate::plan::decide;
    use proptest::prelude::*;

    /// Returns whether the rows to which a guarded write applies include this one.
    fn applies(guarded: &GuardedWrite, found: Option<&Stored>) -> bool {
        match (guarded.kind, found) {
            (WriteKind::Insert, found) => found.is_none(),
            (WriteKind::Replace(IfMatch::Absent) | WriteKind::Merge(IfMatch::Absent), _) => true,
            (_, None) => false,
            (WriteKind::Replace(guard) | WriteKind::Merge(guard) | WriteKind::Delete(guard), Some(row)) => {
                guard.admits(row.modified)
            }
        }
    }

    /// Returns what a guarded write stores, with a new version.
    fn performed(guarded: &GuardedWrite, found: Option<&Stored>) -> Option<StoredProperties> {
        let of_row = found.filter(|_| matches!(guarded.kind, WriteKind::Merge(_)));
        let mut properties = of_row.map_or_else(Vec::new, |row| decode(&row.properties).unwrap());
        for (name, value) in decode(&guarded.properties).unwrap() {
            properties.retain(|(known, _)| *known != name);
            properties.push((name, value));
        }
        properties.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        (!matches!(guarded.kind, WriteKind::Delete(_))).then(|| encode(&properties))
    }

    #[test]
    fn a_guard_holds_where_the_write_is_allowed_and_the_same_is_stored() {
        use IfMatch::{Absent, Any, Version};
        let [older, stored, newer] =
            [1, 2, 3].map(|ticks| Ticks::from_raw(Ticks::MIN.raw() + ticks).unwrap());
        let number = |name: &str, value| (name.to_owned(), EdmValue::Int32(value));
        let row = |modified| Stored {
            key: Key::new("p", "r"),
            modified,
            properties: encode(&[number("A", 1), number("B", 1)]),
        };
        let conditions = [Absent, Any, Version(None)].into_iter();
        let conditions = conditions.chain([older, stored, newer].map(|version| Version(Some(version))));
        let kinds = conditions.flat_map(|condition| {
            [WriteKind::Replace(condition), WriteKind::Merge(condition), WriteKind::Delete(condition)]
        });
        for kind in kinds.chain([WriteKind::Insert]) {
            let sent = if matches!(kind, WriteKind::Delete(_)) { vec![] } else { vec![number("B", 2)] };
            let write = Write { kind, ..merge(&sent) };
            let guarded = write.guarded();
            for found in [None, Some(row(older)), Some(row(stored)), Some(row(newer))] {
                let found = found.as_ref();
                let decided = decide(&write, found, stored).ok();
                let is_allowed = decided.is_some();
                assert_eq!(
                    guarded.as_ref().is_some_and(|guarded| applies(guarded, found)),
                    is_allowed,
                    "{kind:?}"
                );
                let Some(change) = decided else { continue };
                let by_row = write.guarded_by(found, change.clone());
                assert!(applies(&by_row, found), "{kind:?}");
                assert!(
                    [None, Some(&row(Ticks::MIN))]
                        .iter()
                        .all(|other| !applies(&by_row, *other) || *other == found)
                );
                let properties = match change {
                    Change::Put { properties, .. } => Some(properties.into_owned()),
                    Change::Delete => None,
                };
                assert_eq!(performed(&guarded.clone().unwrap(), found), properties, "{kind:?}");
                assert_eq!(performed(&by_row, found), properties, "{kind:?}");
            }
        }
    }

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
            let limit = max_stored_members(&write).unwrap() as usize;
            let stored = |n: usize| {
                let properties = encode(&numbers("O", n));
                Stored { key: write.key.clone(), modified: Ticks::MIN, properties }
            };
            assert!(decide(&write, Some(&stored(limit)), Ticks::MIN).is_ok(), "{sent}");
            assert!(decide(&write, Some(&stored(limit + 1)), Ticks::MIN).is_err(), "{sent}");
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
