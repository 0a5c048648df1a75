//! All write semantics in one small table (protocol §3.9 to §3.11, §9).

use crate::codec::stored;
use crate::error::{Code, Result};
use crate::model::entity::{Properties, StoredProperties, check_properties, check_size};
use crate::model::{EdmValue, IfMatch, Key, Stored, Ticks};

/// What a write does to its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// POST: there must be nothing.
    Insert,
    /// PUT: all properties are replaced; without a condition, an upsert.
    Replace(IfMatch),
    /// MERGE, PATCH: listed properties are replaced; without a condition, an
    /// upsert.
    Merge(IfMatch),
    /// DELETE; the parser lets it through with a condition only.
    Delete(IfMatch),
}

/// One write of one entity. Its keys and properties have passed the checks
/// that need no stored state; the size as a whole is judged by [`decide`].
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    pub kind: WriteKind,
    pub key: Key,
    /// Custom properties; empty for a delete.
    pub properties: Properties,
}

/// What is to happen to the stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Store these properties under this version, as a new row or over the old.
    Put { properties: StoredProperties, modified: Ticks },
    /// Remove the row.
    Delete,
}

/// The acknowledgement of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The version that the write made; `None` for a delete.
    pub modified: Option<Ticks>,
}

/// Decides what a write does to what was found under its key.
///
/// `now` becomes the version, unless the stored one is as new: then the next
/// tick does, so one ETag names one version for ever.
///
/// # Errors
/// [`Code::EntityTooLarge`], [`Code::TooManyProperties`] (a merge's union),
/// [`Code::EntityAlreadyExists`], [`Code::ResourceNotFound`],
/// [`Code::UpdateConditionNotSatisfied`]; a missing entity wins over an ETag
/// that differs.
pub fn decide(write: &Write, found: Option<&Stored>, now: Ticks) -> Result<Change> {
    // The size of what was sent comes before the question what is stored.
    check_size(&write.key, &write.properties)?;
    carry_out(judge(write.kind, found)?, write, stored::encode, version_after(found, now))
}

/// A write of which all is done that does not depend on what is stored. It owns
/// what it needs, so that it can be decided on another thread.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Without properties, unless it is a merge.
    write: Write,
    /// What [`check_size`] says.
    size: Result<()>,
    /// The properties in stored form; empty for a delete.
    stored: StoredProperties,
}

impl Draft {
    /// Prepares a write.
    pub fn new(write: &Write) -> Self {
        let Write { kind, ref key, ref properties } = *write;
        let kept = if matches!(kind, WriteKind::Merge(_)) { properties.clone() } else { Properties::new() };
        Self {
            write: Write { kind, key: key.clone(), properties: kept },
            size: check_size(key, properties),
            stored: stored::encode(properties),
        }
    }

    /// The address of the entity.
    pub const fn key(&self) -> &Key {
        &self.write.key
    }

    /// What an insert that is not too large stores, if there is nothing yet.
    pub fn as_insert(&self) -> Option<&StoredProperties> {
        (self.write.kind == WriteKind::Insert && self.size.is_ok()).then_some(&self.stored)
    }

    /// The version that a delete removes, `Some(None)` for whatever is stored;
    /// `None` for other writes, and for a version that nothing can have.
    pub const fn as_delete(&self) -> Option<Option<Ticks>> {
        match self.write.kind {
            WriteKind::Delete(IfMatch::Any) => Some(None),
            WriteKind::Delete(IfMatch::Version(Some(version))) => Some(Some(version)),
            _ => None,
        }
    }

    /// Decides as [`decide`] does.
    ///
    /// # Errors
    /// As [`decide`].
    pub fn decide(&self, found: Option<&Stored>, now: Ticks) -> Result<Change> {
        self.size.clone()?;
        let encoded = |_: &[(String, EdmValue)]| self.stored.clone();
        carry_out(judge(self.write.kind, found)?, &self.write, encoded, version_after(found, now))
    }
}

fn version_after(found: Option<&Stored>, now: Ticks) -> Ticks {
    found.map_or(now, |f| now.max(f.modified.next()))
}

/// What is to be done with the row that was found.
enum Verdict<'a> {
    /// Store what was sent, whatever else there is.
    Put,
    /// Store what was sent over these.
    Merge(&'a StoredProperties),
    Delete,
}

fn carry_out(
    verdict: Verdict<'_>,
    write: &Write,
    encoded: impl FnOnce(&[(String, EdmValue)]) -> StoredProperties,
    modified: Ticks,
) -> Result<Change> {
    Ok(match verdict {
        Verdict::Put => Change::Put { properties: encoded(&write.properties), modified },
        Verdict::Merge(old) => {
            let merged = merge(stored::decode(old)?, &write.properties);
            check_properties(&merged)?;
            check_size(&write.key, &merged)?;
            Change::Put { properties: stored::encode(&merged), modified }
        }
        Verdict::Delete => Change::Delete,
    })
}

fn judge(kind: WriteKind, found: Option<&Stored>) -> Result<Verdict<'_>> {
    match (kind, found) {
        (WriteKind::Insert, None)
        | (WriteKind::Replace(IfMatch::Absent) | WriteKind::Merge(IfMatch::Absent), None) => Ok(Verdict::Put),
        (WriteKind::Insert, Some(_)) => Err(Code::EntityAlreadyExists.into()),
        (WriteKind::Replace(_) | WriteKind::Merge(_) | WriteKind::Delete(_), None) => {
            Err(Code::ResourceNotFound.into())
        }
        (
            WriteKind::Replace(condition) | WriteKind::Merge(condition) | WriteKind::Delete(condition),
            Some(old),
        ) if !condition.admits(old.modified) => Err(Code::UpdateConditionNotSatisfied.into()),
        (WriteKind::Replace(_), Some(_)) => Ok(Verdict::Put),
        (WriteKind::Merge(_), Some(old)) => Ok(Verdict::Merge(&old.properties)),
        (WriteKind::Delete(_), Some(_)) => Ok(Verdict::Delete),
    }
}

/// The old properties with the new ones laid over them: values and types of
/// listed properties change, the rest stays (protocol §3.10).
fn merge(old: Properties, new: &[(String, EdmValue)]) -> Properties {
    let mut merged = old;
    for (name, value) in new {
        match merged.iter_mut().find(|(n, _)| n == name) {
            Some((_, slot)) => *slot = value.clone(),
            None => merged.push((name.clone(), value.clone())),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: i64 = 630_000_000_000_000_000;

    fn ticks(raw: i64) -> Ticks {
        Ticks::from_raw(raw).unwrap()
    }

    fn props(pairs: &[(&str, i32)]) -> Properties {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), EdmValue::Int32(*v))).collect()
    }

    fn write(kind: WriteKind) -> Write {
        Write { kind, key: Key::new("p", "r"), properties: props(&[("B", 2), ("C", 3)]) }
    }

    fn old() -> Stored {
        Stored {
            key: Key::new("p", "r"),
            modified: ticks(T1),
            properties: stored::encode(&props(&[("A", 1), ("B", 1)])),
        }
    }

    fn result(kind: WriteKind, found: Option<&Stored>) -> Result<Option<Properties>, Code> {
        let decided = decide(&write(kind), found, ticks(T1 + 50));
        assert_eq!(Draft::new(&write(kind)).decide(found, ticks(T1 + 50)), decided, "{kind:?} as a draft");
        match decided {
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
        for (kind, on_nothing, on_stored) in [
            (Insert, new.clone(), Err(Code::EntityAlreadyExists)),
            (Replace(Absent), new.clone(), new.clone()),
            (Replace(Any), missing.clone(), new.clone()),
            (Replace(same), missing.clone(), new.clone()),
            (Replace(other), missing.clone(), differs.clone()),
            (Replace(foreign), missing.clone(), differs.clone()),
            (Merge(Absent), new.clone(), merged.clone()),
            (Merge(Any), missing.clone(), merged.clone()),
            (Merge(same), missing.clone(), merged.clone()),
            (Merge(other), missing.clone(), differs.clone()),
            (Merge(foreign), missing.clone(), differs.clone()),
            (Delete(Any), missing.clone(), Ok(None)),
            (Delete(same), missing.clone(), Ok(None)),
            (Delete(other), missing.clone(), differs.clone()),
            (Delete(foreign), missing, differs),
        ] {
            assert_eq!(result(kind, None), on_nothing, "{kind:?} on nothing");
            assert_eq!(result(kind, Some(&old())), on_stored, "{kind:?} on a stored entity");
        }
    }

    #[test]
    fn a_draft_that_is_too_large_is_refused_before_what_is_stored_is_asked() {
        let text = |n: i32| (format!("P{n}"), EdmValue::String("x".repeat(32 * 1024)));
        let write = Write { properties: (0..17).map(text).collect(), ..write(WriteKind::Insert) };
        let draft = Draft::new(&write);
        assert_eq!(draft.as_insert(), None);
        for found in [None, Some(&old())] {
            let refused = draft.decide(found, ticks(T1)).unwrap_err();
            assert_eq!(refused.code, Code::EntityTooLarge);
            assert_eq!(decide(&write, found, ticks(T1)).unwrap_err(), refused);
        }
    }

    #[test]
    fn a_version_is_never_used_twice() {
        for (now, expected) in [(T1 + 50, T1 + 50), (T1, T1 + 1), (T1 - 50, T1 + 1)] {
            let change = decide(&write(WriteKind::Replace(IfMatch::Any)), Some(&old()), ticks(now));
            assert!(matches!(change, Ok(Change::Put { modified, .. }) if modified.raw() == expected));
        }
    }

    #[test]
    fn a_merge_changes_types_and_is_held_to_the_limits_of_the_union() {
        let mut w = write(WriteKind::Merge(IfMatch::Any));
        w.properties = vec![("A".into(), EdmValue::String("now text".into()))];
        let Ok(Change::Put { properties, .. }) = decide(&w, Some(&old()), ticks(T1 + 9)) else {
            panic!("the merge was refused")
        };
        let merged = stored::decode(&properties).unwrap();
        assert_eq!(merged[0], ("A".into(), EdmValue::String("now text".into())));

        w.properties = (0..251).map(|i| (format!("P{i}"), EdmValue::Int32(1))).collect();
        let refused = decide(&w, Some(&old()), ticks(T1 + 9)).unwrap_err();
        assert_eq!(refused.code, Code::TooManyProperties);

        let big = |n: &str| (n.to_owned(), EdmValue::Binary(vec![0; 60 * 1024]));
        let mut heavy = old();
        heavy.properties = stored::encode(&(0..10).map(|i| big(&format!("O{i}"))).collect::<Properties>());
        w.properties = (0..10).map(|i| big(&format!("N{i}"))).collect();
        let refused = decide(&w, Some(&heavy), ticks(T1 + 9)).unwrap_err();
        assert_eq!(refused.code, Code::EntityTooLarge);
    }
}
