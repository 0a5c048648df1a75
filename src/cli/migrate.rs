//! `rowhouse migrate`: migrates the schema before servers start.

use clap::Args;
use serde_json::json;

use super::database::read_lasting;
use super::output::{Done, OutputForm, Problem, block_on};
use crate::server::config::DatabaseSettings;
use crate::store::database;

/// The arguments of `rowhouse migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    storage: DatabaseSettings,
    #[command(flatten)]
    form: OutputForm,
}

/// Migrates the schema. Does nothing if it is already up to date.
pub(crate) fn run(arguments: &MigrateArguments) -> Done {
    let database =
        read_lasting(&arguments.storage, "a schema in memory would be lost when this command ends")?;
    let found = block_on(async {
        drop(database::open_primary(&database).await?);
        Ok(database::inspect_primary(&database).await?)
    })?;
    let name = database.display();
    let schema = found.schema.ok_or_else(|| {
        Problem(format!(
            "the schema of {name} is current, but its version may not be read by this role; GRANT SELECT on \
             _sqlx_migrations to the role"
        ))
    })?;
    arguments.form.print(
        &format!("The schema of {name} is version {schema}."),
        &json!({ "database": name, "schema": schema }),
    )
}
