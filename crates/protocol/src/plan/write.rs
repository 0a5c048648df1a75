//! Validates writes (protocol §3.9 to §3.11, §5, §8.1).

use std::collections::HashSet;
use std::sync::Arc;

use super::Plan;
use super::decide::{Write, WriteKind};
use crate::codec::validated::ValidatedProperties;
use crate::error::{Code, Error, Result};
use crate::model::names::{check_body_key, check_key_length, check_written_key};
use crate::model::{Key, TableName};

/// A write of one entity, as sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EntityWrite<'a> {
    pub table: &'a str,
    pub kind: WriteKind,
    /// The key in the URL; `None` for an insert, which has its key in the body.
    pub key: Option<Key>,
    /// Absent in a delete.
    pub body: Option<ValidatedEntity>,
}

/// An entity in a body. Keys may be missing, because an update takes them from its URL.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedEntity {
    pub partition: Option<String>,
    pub row: Option<String>,
    /// An error is kept here, because errors in keys are reported first.
    pub properties: Result<ValidatedProperties>,
}

/// The writes of a change set, shared with the thread that performs them.
pub type WriteSet = Arc<[Write]>;

/// At least one write, all to one partition of one table and applied atomically.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeSet {
    pub table: TableName,
    pub writes: WriteSet,
    /// The table's name as each write spells it, for the Location header of inserted entities.
    pub spellings: Vec<TableName>,
}

/// Plans one write.
///
/// # Errors
/// In the order of protocol §5.9: [`Code::PropertiesNeedValue`] for an insert without keys, then the errors
/// of keys, of the number and names of properties, of their values, of the entity's size, of the values'
/// sizes, and of the table's name.
pub fn plan_write(entity: EntityWrite<'_>) -> Result<(TableName, Write)> {
    let EntityWrite { table, kind, key, body } = entity;
    let (key, properties) = match (key, body) {
        (None, body) => key_and_properties(body)?,
        (Some(key), body) => {
            check_url_keys(&key, body.is_some())?;
            (key, body.map_or_else(|| Ok(ValidatedProperties::default()), |body| body.properties))
        }
    };
    let properties = properties?;
    Ok((TableName::parse(table)?, Write { kind, key, properties }))
}

/// Checks the key in the body of an insert, and returns the key with the properties.
fn key_and_properties(body: Option<ValidatedEntity>) -> Result<(Key, Result<ValidatedProperties>)> {
    let Some(ValidatedEntity { partition: Some(partition), row: Some(row), properties }) = body else {
        return Err(Code::PropertiesNeedValue.into());
    };
    check_body_key("PartitionKey", &partition)?;
    check_body_key("RowKey", &row)?;
    Ok((Key { partition, row }, properties))
}

/// Checks the key of an update. Keys in the body are ignored even if they differ, as recorded from Azure.
fn check_url_keys(key: &Key, has_body: bool) -> Result<()> {
    check_written_key(&key.partition)?;
    check_written_key(&key.row)?;
    if has_body {
        // A delete of a key that cannot exist finds nothing, so only writes with a body are checked for the
        // key length.
        check_key_length(&key.partition)?;
        check_key_length(&key.row)?;
    }
    Ok(())
}

/// Plans a change set. Its operations must write to one partition of one table, and to each row once. Returns `None`
/// without operations; such a change set succeeds without the store.
///
/// # Errors
/// The error of the first invalid operation, with its index: [`Code::CommandsInBatchActOnDifferentPartitions`],
/// [`Code::InvalidDuplicateRow`], and those of [`plan_write`]. Then `failure`, the error of the first operation that
/// could not be parsed.
pub fn change_set(plans: Vec<Result<Plan>>, failure: Option<&Error>) -> Result<Option<ChangeSet>> {
    let mut writes: Vec<Write> = Vec::with_capacity(plans.len());
    let mut spellings: Vec<TableName> = Vec::with_capacity(plans.len());
    let collected = plans.into_iter().enumerate().try_for_each(|(index, plan)| {
        let Plan::Write { table, write } = plan.map_err(|error| error.at(index))? else {
            return Err(Error::from(Code::InvalidInput).at(index));
        };
        if let (Some(first_table), Some(first)) = (spellings.first(), writes.first())
            && (first_table.lower() != table.lower() || first.key.partition != write.key.partition)
        {
            return Err(Error::from(Code::CommandsInBatchActOnDifferentPartitions).at(index));
        }
        writes.push(write);
        spellings.push(table);
        Ok(())
    });
    if let Some(index) = find_repeated_row(&writes) {
        return Err(Error::from(Code::InvalidDuplicateRow).at(index));
    }
    collected?;
    if let Some(error) = failure {
        return Err(error.clone());
    }
    Ok(spellings.first().cloned().map(|table| ChangeSet { table, writes: writes.into(), spellings }))
}

/// Returns the index of the first write whose row an earlier write has.
fn find_repeated_row(writes: &[Write]) -> Option<usize> {
    if writes.is_sorted_by(|a, b| a.key.row < b.key.row) {
        return None;
    }
    let mut rows = HashSet::with_capacity(writes.len());
    writes.iter().position(|write| !rows.insert(write.key.row.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EdmValue, IfMatch};
    use crate::plan::Operation;

    fn insert(partition: Option<&str>, row: Option<&str>) -> EntityWrite<'static> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let properties = Ok(ValidatedProperties::default());
        let body = ValidatedEntity { partition: own(partition), row: own(row), properties };
        EntityWrite { table: "Abc", kind: WriteKind::Insert, key: None, body: Some(body) }
    }
    fn replace(url: Key, partition: Option<&str>) -> EntityWrite<'static> {
        let row = partition.map(|_| url.row.clone());
        EntityWrite {
            kind: WriteKind::Replace(IfMatch::Absent),
            key: Some(url),
            ..insert(partition, row.as_deref())
        }
    }
    fn code(entity: &EntityWrite<'_>) -> Option<Code> {
        plan_write(entity.clone()).err().map(|e| e.code)
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
        let (_, write) = plan_write(replace(Key::new("p", "r"), Some("q"))).unwrap();
        assert_eq!(write.key, Key::new("p", "r"));
        assert_eq!(code(&replace(Key::new("a/b", "r"), None)), Some(Code::QuerySyntax));
        let long = Key::new("p".repeat(1025), "r");
        assert_eq!(code(&replace(long.clone(), None)), Some(Code::PropertyValueTooLarge));
        let delete = EntityWrite { kind: WriteKind::Delete(IfMatch::Any), body: None, ..replace(long, None) };
        assert_eq!(code(&delete), None);
    }

    #[test]
    fn keys_are_judged_before_properties_and_those_before_the_table() {
        let mut entity = insert(None, None);
        entity.table = "no";
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
        let transaction = |entities: &[EntityWrite<'static>]| {
            let plans = entities.iter().map(|entity| Operation::of_write(entity.clone()).plan);
            change_set(plans.collect(), None)
        };
        let failing = |entities: &[EntityWrite<'static>]| {
            let error = transaction(entities).unwrap_err();
            (error.code, error.index)
        };
        let row = |r: &str| insert(Some("p"), Some(r));
        assert_eq!(transaction(&[]).unwrap(), None);
        let lower = EntityWrite { table: "abc", ..row("b") };
        assert_eq!(transaction(&[row("a"), lower]).unwrap().unwrap().writes.len(), 2);
        let other = insert(Some("q"), Some("b"));
        assert_eq!(failing(&[row("a"), other]), (Code::CommandsInBatchActOnDifferentPartitions, Some(1)));
        let table = EntityWrite { table: "Xyz", ..row("b") };
        assert_eq!(failing(&[row("a"), table]), (Code::CommandsInBatchActOnDifferentPartitions, Some(1)));
        assert_eq!(failing(&[row("a"), row("b"), row("a")]), (Code::InvalidDuplicateRow, Some(2)));
        assert_eq!(failing(&[row("a"), insert(None, None)]), (Code::PropertiesNeedValue, Some(1)));
    }
}
