//! The database and the account of a table.

use clap::Args;

use crate::cli::output::{Done, OutputForm, Problem};
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::server::config::{Database, Mistakes, StorageSettings};
use crate::server::database;
use crate::store::Store;

/// The database and the account of a table.
#[derive(Debug, Args)]
pub(crate) struct TablesPlace {
    /// The account
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    pub account: String,
    #[command(flatten)]
    pub database: TablesDatabase,
}

/// The database of tables.
#[derive(Debug, Args)]
pub(crate) struct TablesDatabase {
    #[command(flatten)]
    storage: StorageSettings,
    #[command(flatten)]
    pub form: OutputForm,
}

impl TablesDatabase {
    /// Opens the database, which must exist.
    pub(super) async fn open(&self) -> Done<Store> {
        Ok(database::open_existing(&self.database()?).await?)
    }

    /// Opens the database to read what is there.
    pub(super) async fn open_to_read(&self) -> Done<Store> {
        Ok(database::open_to_read(&self.database()?).await?)
    }

    fn database(&self) -> Done<Database> {
        let mut mistakes = Mistakes::default();
        let database = self.storage.read(&mut mistakes);
        let database = mistakes.unless(database)?;
        if database.is_in_memory() {
            return Err(Problem("--database-url: a database in memory is only in its server".into()));
        }
        Ok(database)
    }
}
