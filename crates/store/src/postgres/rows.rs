//! Converts rows to entities, and stored properties to and from jsonb without building a tree.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Encode, Postgres, Row, Type, ValueRef};

use crate::Fault;
use crate::postgres::fault::StatementError;
use crate::protocol::codec::json_object::push_sorted;
use crate::protocol::model::entity::{BorrowedEntity, PropertyOrder, StoredProperties};
use crate::protocol::model::{Key, Stored, Ticks};

/// Returns the entity of a row; `None` if its columns are null.
pub(crate) fn found(row: &PgRow, key: Key) -> Result<Option<Stored>, StatementError> {
    let missing = row.try_get_raw("modified").map_err(broken_row)?.is_null();
    if missing { Ok(None) } else { version(row, key).map(Some) }
}

pub(crate) fn version(row: &PgRow, key: Key) -> Result<Stored, StatementError> {
    let modified = ticks(row.try_get("modified").map_err(broken_row)?)?;
    let StoredColumn(properties) = row.try_get("properties").map_err(broken_row)?;
    Ok(Stored { key, modified, properties: StoredProperties::from_jsonb(properties.to_owned()) })
}

/// Returns the entity of a page's row: pk, rk, modified and optionally properties, in this order. The statement fixes
/// the types, so this function does not check them.
pub(crate) fn entity(row: &PgRow, with_properties: bool) -> Result<BorrowedEntity<'_>, sqlx::Error> {
    let modified =
        Ticks::stored(row.try_get_unchecked(2)?).ok_or_else(|| sqlx::Error::Decode("ticks".into()))?;
    let properties = if with_properties { row.try_get_unchecked::<StoredColumn<'_>, _>(3)?.0 } else { "{}" };
    Ok(BorrowedEntity {
        partition: row.try_get_unchecked(0)?,
        row: row.try_get_unchecked(1)?,
        modified,
        properties,
        order: PropertyOrder::Ordinal,
    })
}

pub(crate) fn key(row: &PgRow) -> Result<Key, sqlx::Error> {
    Ok(Key { partition: row.try_get_unchecked(0)?, row: row.try_get_unchecked(1)? })
}

/// Returns the size of a row's values in bytes.
pub(crate) fn weight(row: &PgRow) -> Result<usize, sqlx::Error> {
    let mut sum = 0;
    for column in 0..row.len() {
        let value = row.try_get_raw(column)?;
        if !value.is_null() {
            sum += value.as_bytes().map_err(sqlx::Error::Decode)?.len();
        }
    }
    Ok(sum)
}

pub(crate) fn ticks(raw: i64) -> Result<Ticks, StatementError> {
    Ticks::stored(raw).ok_or_else(|| {
        tracing::error!("a stored time is out of range");
        Fault::Other.into()
    })
}

/// The failure if a row does not have its statement's columns, which is a bug.
pub(crate) fn broken_row(error: sqlx::Error) -> StatementError {
    tracing::error!(%error, "a row has an unexpected shape");
    Fault::Other.into()
}

/// The only version of jsonb's binary format that PostgreSQL defines.
const VERSION: u8 = 1;

/// JSON text to bind as jsonb.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonText<'a>(pub &'a str);

impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        <Json<()> as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for JsonText<'_> {
    fn array_type_info() -> PgTypeInfo {
        <Json<()> as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.push(VERSION);
        push_sorted(buffer, self.0);
        Ok(IsNull::No)
    }
}

#[derive(Debug)]
pub(crate) struct StoredColumn<'r>(pub &'r str);

impl Type<Postgres> for StoredColumn<'_> {
    fn type_info() -> PgTypeInfo {
        <Json<()> as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for StoredColumn<'r> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let format = value.format();
        let bytes = value.as_bytes()?;
        let text = match (format, bytes.split_first()) {
            (PgValueFormat::Text, _) => bytes,
            (PgValueFormat::Binary, Some((&VERSION, text))) => text,
            (PgValueFormat::Binary, _) => return Err("unknown version of jsonb".into()),
        };
        Ok(StoredColumn(std::str::from_utf8(text)?))
    }
}
