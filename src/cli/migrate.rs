//! `rowhouse migrate`: migrates the schema before servers start.

use clap::Args;
use serde_json::json;

use super::output::{Done, OutputForm, Problem, block_on};
use crate::server::config::{Mistakes, StorageSettings};
use crate::server::database;

/// The arguments of `rowhouse migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    storage: StorageSettings,
    #[command(flatten)]
    form: OutputForm,
}

/// Migrates the schema. Does nothing if it is already up to date.
///
/// # Errors
/// [`Problem`], to be shown.
pub(crate) fn run(arguments: &MigrateArguments) -> Done {
    let mut mistakes = Mistakes::default();
    let database = arguments.storage.read(&mut mistakes);
    let database = mistakes.unless(database)?;
    if database.is_in_memory() {
        return Err(Problem(
            "--database-url: a schema in memory would be lost when this command ends".into(),
        ));
    }
    let found = block_on(async {
        drop(database::open_primary(&database).await?);
        Ok(database::inspect_primary(&database).await?)
    })?;
    let (shown, schema) = (database.shown(), found.schema.unwrap_or_default());
    arguments.form.print(
        &format!("The schema of {shown} is version {schema}."),
        &json!({ "database": shown, "schema": schema }),
    )
}
