//! Converts stored properties to and from jsonb without building a tree.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Encode, Postgres, Type};

use crate::protocol::codec::sorted::push_sorted;

/// The only version of jsonb's binary form that PostgreSQL knows.
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

/// The properties column of a row.
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
