//! The semantics of all writes (protocol §3.9 to §3.11, §9).

use std::borrow::Cow;

use crate::codec::stored;
use crate::codec::validated::ValidatedProperties;
use crate::error::{Code, Result};
use crate::model::entity::{BorrowedEntity, StoredProperties, check_names, check_size, counted};
use crate::model::names::ordinal;
use crate::model::{IfMatch, Key, Stored, Ticks};

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// POST: the entity must not exist.
    Insert,
    /// PUT: replaces all properties. Without a condition, it is an upsert.
    Replace(IfMatch),
    /// MERGE, PATCH: replaces the listed properties. Without a condition, it is an upsert.
    Merge(IfMatch),
    /// DELETE. The parser requires a condition.
    Delete(IfMatch),
}

impl WriteKind {
    /// Returns whether the write stores a new entity if there is none.
    pub const fn may_insert(self) -> bool {
        matches!(
            self,
            WriteKind::Insert | WriteKind::Replace(IfMatch::Absent) | WriteKind::Merge(IfMatch::Absent)
        )
    }

    /// Returns the version that the stored entity must have, or `None` if every version is allowed.
    pub const fn version(self) -> Option<Ticks> {
        match self {
            WriteKind::Replace(IfMatch::Version(version))
            | WriteKind::Merge(IfMatch::Version(version))
            | WriteKind::Delete(IfMatch::Version(version)) => version,
            _ => None,
        }
    }
}

/// One write of one entity. The keys and properties have passed every check that can be made without the database.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    pub kind: WriteKind,
    pub key: Key,
    /// Custom properties; none for a delete.
    pub properties: ValidatedProperties,
}

impl Write {
    /// Returns the properties that an insert stores if the entity does not exist.
    pub fn as_insert(&self) -> Option<&StoredProperties> {
        (self.kind == WriteKind::Insert).then_some(self.properties.stored())
    }

    /// Returns the entity that an insert has stored under a version, for its response.
    pub fn as_stored(&self, modified: Ticks) -> BorrowedEntity<'_> {
        let properties = self.properties.stored();
        BorrowedEntity {
            partition: &self.key.partition,
            row: &self.key.row,
            modified,
            properties: properties.as_str(),
            order: properties.order(),
        }
    }

    /// Returns the version that a delete removes, or `Some(None)` for any version. Returns `None` for other
    /// writes, and for a version that no entity can have.
    pub const fn as_delete(&self) -> Option<Option<Ticks>> {
        match self.kind {
            WriteKind::Delete(IfMatch::Any) => Some(None),
            WriteKind::Delete(IfMatch::Version(Some(version))) => Some(Some(version)),
            _ => None,
        }
    }

    /// Returns the version that [`decide`] assigns, unless the stored version is at least as new.
    pub const fn expected_result(&self, now: Ticks) -> Written {
        match self.kind {
            WriteKind::Delete(_) => Written { modified: None },
            WriteKind::Insert | WriteKind::Replace(_) | WriteKind::Merge(_) => {
                Written { modified: Some(now) }
            }
        }
    }
}

/// The change to the stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<'w> {
    /// Stores these properties under this version, as a new row or over the old one.
    Put { properties: Cow<'w, StoredProperties>, modified: Ticks },
    /// Removes the row.
    Delete,
}

/// The result of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The new version; `None` for a delete.
    pub modified: Option<Ticks>,
}

/// Decides the effect of a write on the stored entity.
///
/// `now` becomes the version, unless the stored version is at least as new. In that case the version is the
/// tick after the stored version, so that an ETag never names two versions.
///
/// # Errors
/// [`Code::EntityAlreadyExists`], [`Code::ResourceNotFound`], [`Code::UpdateConditionNotSatisfied`], or
/// [`Code::ConditionNotMet`] for an ETag that no entity can have. A missing entity takes precedence over an
/// ETag that differs. For the result of a merge, [`Code::TooManyProperties`] and [`Code::EntityTooLarge`].
pub fn decide<'w>(write: &'w Write, found: Option<&Stored>, now: Ticks) -> Result<Change<'w>> {
    use WriteKind::{Delete, Insert, Merge, Replace};
    let properties = match (write.kind, found) {
        (kind, None) if kind.may_insert() => Cow::Borrowed(write.properties.stored()),
        (Insert, Some(_)) => return Err(Code::EntityAlreadyExists.into()),
        (_, None) => return Err(Code::ResourceNotFound.into()),
        (Replace(condition) | Merge(condition) | Delete(condition), Some(old))
            if !condition.admits(old.modified) =>
        {
            return Err(condition.refusal().into());
        }
        (Replace(_), Some(_)) => Cow::Borrowed(write.properties.stored()),
        (Merge(_), Some(old)) => Cow::Owned(merge(write, &old.properties)?),
        (Delete(_), Some(_)) => return Ok(Change::Delete),
    };
    Ok(Change::Put { properties, modified: found.map_or(now, |f| now.max(f.modified.next())) })
}

/// Merges properties. Listed properties change their values and types, and all others stay (protocol §3.10).
/// The result is ordered by name, as recorded.
fn merge(write: &Write, old: &StoredProperties) -> Result<StoredProperties> {
    let mut merged = stored::decode(old)?;
    for (name, value) in stored::decode(write.properties.stored())? {
        match merged.iter_mut().find(|(n, _)| *n == name) {
            Some((_, slot)) => *slot = value,
            None => merged.push((name, value)),
        }
    }
    merged.sort_unstable_by(|(a, _), (b, _)| ordinal(a, b));
    check_names(&merged)?;
    check_size(write.key.counted_size(), counted(&merged))?;
    Ok(stored::encode(&merged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EdmValue;
    use crate::model::entity::Properties;

    const T1: i64 = 630_000_000_000_000_000;

    fn ticks(raw: i64) -> Ticks {
        Ticks::from_raw(raw).unwrap()
    }

    fn props(pairs: &[(&str, i32)]) -> Properties {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), EdmValue::Int32(*v))).collect()
    }

    fn sent(properties: &Properties) -> ValidatedProperties {
        ValidatedProperties::new(0, properties, None).unwrap()
    }

    fn write(kind: WriteKind) -> Write {
        Write { kind, key: Key::new("p", "r"), properties: sent(&props(&[("B", 2), ("C", 3)])) }
    }

    fn old() -> Stored {
        Stored {
            key: Key::new("p", "r"),
            modified: ticks(T1),
            properties: stored::encode(&props(&[("A", 1), ("B", 1)])),
        }
    }

    fn result(kind: WriteKind, found: Option<&Stored>) -> Result<Option<Properties>, Code> {
        match decide(&write(kind), found, ticks(T1 + 50)) {
            Ok(Change::Put { properties, .. }) => Ok(Some(stored::decode(&properties).unwrap())),
            Ok(Change::Delete) => Ok(None),
            Err(e) => Err(e.code),
        }
    }

    #[test]
    fn every_operation_meets_every_state_as_the_table_says() {
        use IfMatch::*;
        use WriteKind::*;
        let same = Version(Some(ticks(T1)));
        let other = Version(Some(ticks(T1 + 1)));
        let foreign = Version(None);
        let new = Ok(Some(props(&[("B", 2), ("C", 3)])));
        let merged = Ok(Some(props(&[("A", 1), ("B", 2), ("C", 3)])));
        let missing = Err(Code::ResourceNotFound);
        let differs = Err(Code::UpdateConditionNotSatisfied);
        let no_version = Err(Code::ConditionNotMet);
        for (kind, on_nothing, on_stored) in [
            (Insert, new.clone(), Err(Code::EntityAlreadyExists)),
            (Replace(Absent), new.clone(), new.clone()),
            (Replace(Any), missing.clone(), new.clone()),
            (Replace(same), missing.clone(), new.clone()),
            (Replace(other), missing.clone(), differs.clone()),
            (Replace(foreign), missing.clone(), no_version.clone()),
            (Merge(Absent), new.clone(), merged.clone()),
            (Merge(Any), missing.clone(), merged.clone()),
            (Merge(same), missing.clone(), merged.clone()),
            (Merge(other), missing.clone(), differs.clone()),
            (Merge(foreign), missing.clone(), no_version.clone()),
            (Delete(Any), missing.clone(), Ok(None)),
            (Delete(same), missing.clone(), Ok(None)),
            (Delete(other), missing.clone(), differs),
            (Delete(foreign), missing, no_version),
        ] {
            assert_eq!(result(kind, None), on_nothing, "{kind:?} on nothing");
            assert_eq!(result(kind, Some(&old())), on_stored, "{kind:?} on a stored entity");
        }
    }

    #[test]
    fn a_version_is_never_used_twice() {
        for (now, expected) in [(T1 + 50, T1 + 50), (T1, T1 + 1), (T1 - 50, T1 + 1)] {
            let replace = write(WriteKind::Replace(IfMatch::Any));
            let change = decide(&replace, Some(&old()), ticks(now));
            assert!(matches!(change, Ok(Change::Put { modified, .. }) if modified.raw() == expected));
        }
    }

    #[test]
    fn a_merge_changes_types_and_is_held_to_the_limits_of_the_union() {
        let mut w = write(WriteKind::Merge(IfMatch::Any));
        w.properties = sent(&vec![("A".into(), EdmValue::String("now text".into()))]);
        let Ok(Change::Put { properties, .. }) = decide(&w, Some(&old()), ticks(T1 + 9)) else {
            panic!("the merge was refused")
        };
        let merged = stored::decode(&properties).unwrap();
        assert_eq!(merged[0], ("A".into(), EdmValue::String("now text".into())));

        w.properties = sent(&(0..251).map(|i| (format!("P{i}"), EdmValue::Int32(1))).collect());
        let refused = decide(&w, Some(&old()), ticks(T1 + 9)).unwrap_err();
        assert_eq!(refused.code, Code::TooManyProperties);

        let big = |n: &str| (n.to_owned(), EdmValue::Binary(vec![0; 60 * 1024]));
        let mut heavy = old();
        heavy.properties = stored::encode(&(0..10).map(|i| big(&format!("O{i}"))).collect::<Properties>());
        w.properties = sent(&(0..10).map(|i| big(&format!("N{i}"))).collect());
        let refused = decide(&w, Some(&heavy), ticks(T1 + 9)).unwrap_err();
        assert_eq!(refused.code, Code::EntityTooLarge);
    }
}
