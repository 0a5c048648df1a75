//! The database that a command uses.

use clap::Args;

use super::output::{Done, OutputForm, Problem};
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::server::config::{DatabaseSettings, Mistakes};
use crate::store::Store;
use crate::store::database::{self, Database};

/// The database, and how the result is printed.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArguments {
    #[command(flatten)]
    pub storage: DatabaseSettings,
    #[command(flatten)]
    pub form: OutputForm,
}

/// The account of a table, and the database.
#[derive(Debug, Args)]
pub(crate) struct TableDatabase {
    /// The account of the table
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    pub account: String,
    #[command(flatten)]
    pub database: DatabaseArguments,
}

impl DatabaseArguments {
    /// Opens the database, which must already exist.
    pub(super) async fn open(&self) -> Done<Store> {
        Ok(database::open_existing(&self.settings()?).await?)
    }

    /// Opens the database for reading only.
    pub(super) async fn open_to_read(&self) -> Done<Store> {
        Ok(database::open_to_read(&self.settings()?).await?)
    }

    fn settings(&self) -> Done<Database> {
        read_lasting(
            &self.storage,
            "a database in memory exists only in its server process; give a SQLite file or PostgreSQL",
        )
    }
}

/// Reads the settings of the database.
pub(super) fn read(settings: &DatabaseSettings) -> Done<Database> {
    let mut mistakes = Mistakes::default();
    let database = settings.read(&mut mistakes);
    Ok(mistakes.unless(database)?)
}

/// Reads the settings like [`read`], and refuses a database in memory. `in_memory` is the reason for the refusal.
pub(super) fn read_lasting(storage: &DatabaseSettings, in_memory: &str) -> Done<Database> {
    let database = read(storage)?;
    if database.is_in_memory() {
        return Err(Problem(format!("--database-url: {in_memory}")));
    }
    Ok(database)
}
