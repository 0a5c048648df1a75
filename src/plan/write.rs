//! Writes as sent to writes that make sense (protocol §3.9 to §3.11, §5, §8.1).

use std::collections::HashSet;

use super::ChangeSet;
use super::decide::{Write, WriteKind};
use crate::codec::sent::ValidatedProperties;
use crate::error::{Code, Error, Result};
use crate::model::names::{KeyPart, check_body_key, check_key_length, check_url_key};
use crate::model::{Key, TableName};
use crate::request::operation::{EntityWrite, ValidatedEntity, WriteVerb};

/// Plans one write, which takes over the properties of the body: what is left of
/// the entity still says how to answer, and may not be planned again.
///
/// # Errors
/// In the order of protocol §5.9: [`Code::PropertiesNeedValue`] for an insert
/// without keys, then the errors of keys, of the number and names of properties,
/// of their values, of the entity's size, of the values' sizes, and of the table's
/// name.
pub fn single(entity: &mut EntityWrite) -> Result<(TableName, Write)> {
    let kind = match entity.verb {
        WriteVerb::Insert => WriteKind::Insert,
        WriteVerb::Replace => WriteKind::Replace(entity.if_match),
        WriteVerb::Merge => WriteKind::Merge(entity.if_match),
        WriteVerb::Delete => WriteKind::Delete(entity.if_match),
    };
    let key = match (&entity.key, &entity.body) {
        (None, body) => key_of_body(body.as_ref())?,
        (Some(key), body) => key_of_url(key, body.is_some())?,
    };
    let properties = match &mut entity.body {
        Some(body) => std::mem::replace(&mut body.properties, Ok(ValidatedProperties::default()))?,
        None => ValidatedProperties::default(),
    };
    Ok((TableName::parse(&entity.table)?, Write { kind, key, properties }))
}

fn key_of_body(body: Option<&ValidatedEntity>) -> Result<Key> {
    match body {
        Some(ValidatedEntity { partition: Some(partition), row: Some(row), .. }) => {
            check_body_key(KeyPart::PartitionKey, partition)?;
            check_body_key(KeyPart::RowKey, row)?;
            Ok(Key::new(partition, row))
        }
        _ => Err(Code::PropertiesNeedValue.into()),
    }
}

/// The key of an update. Whatever keys its body repeats do not matter: the
/// service is recorded to ignore them even where they differ.
fn key_of_url(key: &Key, has_body: bool) -> Result<Key> {
    check_url_key(&key.partition)?;
    check_url_key(&key.row)?;
    if has_body {
        // A delete of a key that cannot exist finds nothing, so only writes of
        // entities are held to the length.
        check_key_length(&key.partition)?;
        check_key_length(&key.row)?;
    }
    Ok(key.clone())
}

/// Plans a change set: one table, one partition, each row once. `None` for an
/// empty one.
///
/// # Errors
/// The first operation's error, with its index:
/// [`Code::CommandsInBatchActOnDifferentPartitions`],
/// [`Code::InvalidDuplicateRow`], and those of [`single`].
pub(crate) fn transaction<'a>(
    entities: impl Iterator<Item = &'a mut EntityWrite>,
) -> Result<Option<ChangeSet>> {
    let mut planned: Option<ChangeSet> = None;
    let (count, _) = entities.size_hint();
    let mut rows = HashSet::with_capacity(count);
    for (index, entity) in entities.enumerate() {
        let (table, write) = single(entity).map_err(|error| error.at(index))?;
        let fail = |code: Code| Err(Error::from(code).at(index));
        let fresh = rows.insert(write.key.row.clone());
        match &mut planned {
            None => {
                let mut writes = Vec::with_capacity(count);
                writes.push(write);
                planned = Some(ChangeSet { table, writes });
            }
            Some(ChangeSet { table: first_table, writes }) => {
                let same_group = first_table.lower() == table.lower()
                    && writes.first().is_none_or(|first| first.key.partition == write.key.partition);
                if !same_group {
                    return fail(Code::CommandsInBatchActOnDifferentPartitions);
                }
                if !fresh {
                    return fail(Code::InvalidDuplicateRow);
                }
                writes.push(write);
            }
        }
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EdmValue, IfMatch};

    fn insert(partition: Option<&str>, row: Option<&str>) -> EntityWrite {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let properties = Ok(ValidatedProperties::default());
        let body = ValidatedEntity { partition: own(partition), row: own(row), properties };
        EntityWrite {
            table: "Abc".into(),
            verb: WriteVerb::Insert,
            key: None,
            body: Some(body),
            if_match: IfMatch::Absent,
        }
    }
    fn replace(url: Key, partition: Option<&str>) -> EntityWrite {
        let row = partition.map(|_| url.row.clone());
        EntityWrite { verb: WriteVerb::Replace, key: Some(url), ..insert(partition, row.as_deref()) }
    }
    fn code(entity: &EntityWrite) -> Option<Code> {
        single(&mut entity.clone()).err().map(|e| e.code)
    }

    #[test]
    fn inserts_need_both_keys_in_the_body() {
        assert_eq!(code(&insert(Some(""), Some(""))), None);
        assert_eq!(code(&insert(None, Some("r"))), Some(Code::PropertiesNeedValue));
        assert_eq!(code(&insert(Some("p"), None)), Some(Code::PropertiesNeedValue));
        assert_eq!(code(&insert(Some("a/b"), Some("r"))), Some(Code::OutOfRangeInput));
        assert_eq!(code(&insert(Some(&"p".repeat(1025)), Some("r"))), Some(Code::PropertyValueTooLarge));
    }

    #[test]
    fn updates_take_their_keys_from_the_url_whatever_the_body_says() {
        assert_eq!(code(&replace(Key::new("p", "r"), None)), None);
        assert_eq!(code(&replace(Key::new("p", "r"), Some("p"))), None);
        let (_, write) = single(&mut replace(Key::new("p", "r"), Some("q"))).unwrap();
        assert_eq!(write.key, Key::new("p", "r"));
        assert_eq!(code(&replace(Key::new("a/b", "r"), None)), Some(Code::QuerySyntax));
        let long = Key::new("p".repeat(1025), "r");
        assert_eq!(code(&replace(long.clone(), None)), Some(Code::PropertyValueTooLarge));
        let delete = EntityWrite { verb: WriteVerb::Delete, body: None, ..replace(long, None) };
        assert_eq!(code(&delete), None);
    }

    #[test]
    fn keys_are_judged_before_properties_and_those_before_the_table() {
        let mut entity = insert(None, None);
        entity.table = "no".into();
        let bad = vec![("bad name".to_owned(), EdmValue::Int32(1))];
        entity.body.as_mut().unwrap().properties = ValidatedProperties::new(0, &bad, None);
        assert_eq!(code(&entity), Some(Code::PropertiesNeedValue));
        entity.body.as_mut().unwrap().partition = Some("p".into());
        entity.body.as_mut().unwrap().row = Some("r".into());
        assert_eq!(code(&entity), Some(Code::PropertyNameInvalid));
        entity.body.as_mut().unwrap().properties = Ok(ValidatedProperties::default());
        assert_eq!(code(&entity), Some(Code::NameLengthOutOfRange));
    }

    #[test]
    fn a_change_set_stays_in_one_partition_and_touches_each_row_once() {
        let failing = |entities: &[EntityWrite]| {
            let error = transaction(entities.to_vec().iter_mut()).unwrap_err();
            (error.code, error.index)
        };
        let row = |r: &str| insert(Some("p"), Some(r));
        assert_eq!(transaction([].iter_mut()).unwrap(), None);
        let lower = EntityWrite { table: "abc".into(), ..row("b") };
        assert_eq!(transaction([row("a"), lower].iter_mut()).unwrap().unwrap().writes.len(), 2);
        let other = insert(Some("q"), Some("b"));
        assert_eq!(failing(&[row("a"), other]), (Code::CommandsInBatchActOnDifferentPartitions, Some(1)));
        let table = EntityWrite { table: "Xyz".into(), ..row("b") };
        assert_eq!(failing(&[row("a"), table]), (Code::CommandsInBatchActOnDifferentPartitions, Some(1)));
        assert_eq!(failing(&[row("a"), row("b"), row("a")]), (Code::InvalidDuplicateRow, Some(2)));
        assert_eq!(failing(&[row("a"), insert(None, None)]), (Code::PropertiesNeedValue, Some(1)));
    }
}
