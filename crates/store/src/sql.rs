//! Statements that both databases run, with their values and rows.

use rusqlite::types::{FromSql, ToSql, ToSqlOutput, Value as Cell, ValueRef};
use rusqlite::{Connection, Row};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Decode, Postgres, Row as _, Type};

use crate::protocol::model::{Key, Ticks};
use crate::{Fault, StoreResult};

/// The text of a statement for each database, with the parameters `$1` to `$10`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SqlText {
    pub postgres: &'static str,
    pub sqlite: &'static str,
    /// Statements that SQLite runs after a change, with the same values. PostgreSQL's text includes them.
    pub then: &'static [&'static str],
}

/// SQLite's names of the parameters.
const PARAMETERS: [&str; 10] = ["$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10"];

/// A change that also increments a counter in a table.
macro_rules! counted_change {
    ($counter:literal, $change:literal) => {
        $crate::sql::counted_change!($counter, $change, $change)
    };
    ($counter:literal, $postgres:literal, $sqlite:literal) => {
        $crate::sql::SqlText {
            postgres: concat!(
                "WITH counted AS (INSERT INTO ",
                $counter,
                " AS c (id, changes) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1) ",
                $postgres
            ),
            sqlite: $sqlite,
            then: &[concat!(
                "INSERT INTO ",
                $counter,
                " (id, changes) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET changes = changes + 1"
            )],
        }
    };
}
pub(crate) use counted_change;

impl SqlText {
    pub(crate) const fn each(postgres: &'static str, sqlite: &'static str) -> Self {
        Self { postgres, sqlite, then: &[] }
    }
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    text: SqlText,
    values: Vec<SqlValue>,
}

impl From<SqlText> for Sql {
    fn from(text: SqlText) -> Self {
        Self { text, values: Vec::new() }
    }
}

/// A text that both databases understand.
impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        SqlText::each(text, text).into()
    }
}

/// Returns a statement without values.
pub(crate) fn sql(text: impl Into<Sql>) -> Sql {
    text.into()
}

impl Sql {
    pub(crate) fn bind(mut self, value: impl Into<SqlValue>) -> Self {
        self.values.push(value.into());
        self
    }

    /// The statement for PostgreSQL.
    pub(crate) fn for_postgres(&self) -> Query<'_, Postgres, PgArguments> {
        self.values.iter().fold(sqlx::query(self.text.postgres), |query, value| match value {
            SqlValue::Integer(value) => query.bind(value),
            SqlValue::Boolean(value) => query.bind(value),
            SqlValue::Text(value) => query.bind(value.as_deref()),
            SqlValue::Blob(value) => query.bind(value),
            SqlValue::Integers(values) => query.bind(values),
            SqlValue::Texts(values) => query.bind(values),
            SqlValue::Blobs(values) => query.bind(values),
        })
    }

    /// Runs the statement on a SQLite database.
    pub(crate) fn run(&self, db: &Connection) -> rusqlite::Result<Vec<SqlRow>> {
        let rows = self.run_text(db, self.text.sqlite)?;
        if !self.text.then.is_empty() && db.changes() > 0 {
            self.text.then.iter().try_for_each(|text| self.run_text(db, text).map(drop))?;
        }
        Ok(rows)
    }

    fn run_text(&self, db: &Connection, text: &str) -> rusqlite::Result<Vec<SqlRow>> {
        let mut statement = db.prepare_cached(text)?;
        for (name, value) in PARAMETERS.iter().zip(&self.values) {
            // The text for SQLite may omit a parameter.
            if let Some(parameter) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(parameter, value)?;
            }
        }
        let columns = statement.column_count();
        let read = |row: &Row<'_>| (0..columns).map(|at| row.get(at)).collect::<rusqlite::Result<_>>();
        statement.raw_query().mapped(|row| read(row).map(SqlRow::Sqlite)).collect()
    }
}

/// A value of a statement.
#[derive(Debug, Clone)]
pub(crate) enum SqlValue {
    Integer(Option<i64>),
    Boolean(bool),
    Text(Option<String>),
    Blob(Vec<u8>),
    Integers(Vec<i64>),
    /// Only texts for PostgreSQL have parameters of this type and of `Blobs`.
    Texts(Vec<String>),
    Blobs(Vec<Vec<u8>>),
}

macro_rules! values {
    ($($kind:ty: $value:ident => $made:expr;)+) => {
        $(impl From<$kind> for SqlValue {
            fn from($value: $kind) -> Self {
                $made
            }
        })+
    };
}

values! {
    i64: value => SqlValue::Integer(Some(value));
    Option<i64>: value => SqlValue::Integer(value);
    Ticks: value => SqlValue::Integer(Some(value.raw()));
    Option<Ticks>: value => SqlValue::Integer(value.map(Ticks::raw));
    bool: value => SqlValue::Boolean(value);
    &str: value => SqlValue::Text(Some(value.to_owned()));
    &String: value => SqlValue::Text(Some(value.clone()));
    Option<&str>: value => SqlValue::Text(value.map(str::to_owned));
    &Vec<u8>: value => SqlValue::Blob(value.clone());
    Vec<i64>: values => SqlValue::Integers(values);
    Vec<String>: values => SqlValue::Texts(values);
    Vec<Vec<u8>>: values => SqlValue::Blobs(values);
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            // SQLite has no arrays: its texts read JSON.
            SqlValue::Integers(values) => return Ok(format!("{values:?}").into()),
            SqlValue::Integer(Some(value)) => ValueRef::Integer(*value),
            SqlValue::Boolean(value) => ValueRef::Integer((*value).into()),
            SqlValue::Text(Some(value)) => ValueRef::Text(value.as_bytes()),
            SqlValue::Blob(value) => ValueRef::Blob(value),
            SqlValue::Integer(None) | SqlValue::Text(None) => ValueRef::Null,
            SqlValue::Texts(_) | SqlValue::Blobs(_) => ValueRef::Null,
        }))
    }
}

/// A row of either database.
#[derive(Debug)]
pub(crate) enum SqlRow {
    Postgres(PgRow),
    Sqlite(Vec<Cell>),
}

/// The type of a column in both databases.
pub(crate) trait ColumnValue: FromSql + for<'r> Decode<'r, Postgres> + Type<Postgres> {}

impl<T: FromSql + for<'r> Decode<'r, Postgres> + Type<Postgres>> ColumnValue for T {}

impl SqlRow {
    /// The value of a column.
    ///
    /// # Errors
    /// [`Fault::Other`] if the column has another type.
    pub(crate) fn get<T: ColumnValue>(&self, column: usize) -> StoreResult<T> {
        let value: Result<T, Box<dyn std::error::Error>> = match self {
            SqlRow::Postgres(row) => row.try_get(column).map_err(Into::into),
            SqlRow::Sqlite(cells) => {
                let cell = cells.get(column).map_or(ValueRef::Null, ValueRef::from);
                T::column_result(cell).map_err(Into::into)
            }
        };
        value.map_err(|error| {
            tracing::error!(%error, column, "a row has an unexpected shape");
            Fault::Other.into()
        })
    }

    /// A stored time.
    pub(crate) fn ticks(&self, column: usize) -> StoreResult<Ticks> {
        Ok(self.time(column)?.ok_or(Fault::Other)?)
    }

    /// A stored time that may be missing.
    pub(crate) fn time(&self, column: usize) -> StoreResult<Option<Ticks>> {
        let raw: Option<i64> = self.get(column)?;
        raw.map(|raw| Ok(Ticks::stored(raw).ok_or(Fault::Other)?)).transpose()
    }

    /// A count, which is never negative.
    pub(crate) fn count(&self, column: usize) -> StoreResult<u64> {
        Ok(self.get::<i64>(column)?.cast_unsigned())
    }

    /// The key in two columns that may be null.
    pub(crate) fn key(&self, column: usize) -> StoreResult<Option<Key>> {
        let partition: Option<String> = self.get(column)?;
        let row: Option<String> = self.get(column + 1)?;
        Ok(partition.zip(row).map(|(partition, row)| Key { partition, row }))
    }
}
