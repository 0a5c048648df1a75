//! The database and the account of a table.

use clap::Args;

use crate::app;
use crate::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::cli::output::{Done, OutputForm, Problem};
use crate::config::{Mistakes, StorageSettings};
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
        let mut mistakes = Mistakes::default();
        let database = self.storage.read(&mut mistakes);
        let database = mistakes.unless(database)?;
        if database.is_in_memory() {
            return Err(Problem("--database-url: a database in memory is only in its server".into()));
        }
        Ok(app::open_existing(&database).await?)
    }
}
