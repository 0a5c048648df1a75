//! The parameters of a statement.

use serde_json::{Map, Value};
use sqlx::postgres::PgArguments;
use sqlx::types::Json;
use sqlx::{Arguments, Encode, Postgres, Type};

use crate::Fault;
use crate::postgres::fault::StatementError;

/// The parameters of a statement, numbered in the order in which they are added.
#[derive(Default)]
pub(crate) struct Binds(PgArguments);

impl Binds {
    /// Adds a value and returns its placeholder.
    pub(crate) fn add<'t, T>(&mut self, value: T) -> Result<String, StatementError>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.0.add(value).map_err(|_| Fault::Other)?;
        Ok(format!("${}", self.0.len()))
    }

    /// Adds the empty JSON object.
    pub(crate) fn empty_object(&mut self) -> Result<String, StatementError> {
        self.add(Json(Map::<String, Value>::new()))
    }

    /// Returns the parameters.
    pub(crate) fn into_inner(self) -> PgArguments {
        self.0
    }
}
