//! The database that a command uses.

use clap::Args;
use serde::Serialize;

use super::output::{Done, OutputForm, Problem, aligned, block_on};
use crate::operator::OperatorError;
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

/// A table, and the database.
#[derive(Debug, Args)]
pub(crate) struct TableDatabase {
    /// The table
    pub table: String,
    /// The account of the table
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    pub account: String,
    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// The account whose tables are listed, and the database.
#[derive(Debug, Args)]
pub(crate) struct ListDatabase {
    /// List only the tables of this account
    #[arg(long)]
    pub account: Option<String>,
    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// How a command opens its database.
#[derive(Clone, Copy)]
pub(super) enum Opening {
    /// For reading only.
    Read,
    /// The database must already exist.
    Change,
    /// The database is created if it does not exist yet.
    Create,
}

/// Why a command on tables refuses a database in memory.
pub(super) const NO_TABLES_IN_MEMORY: &str =
    "a database in memory exists only in its server process; give a SQLite file or PostgreSQL";

impl DatabaseArguments {
    /// Runs a command on the database, and prints its answer. `in_memory` is the reason to refuse a database in memory.
    pub(super) fn run<T: Serialize>(
        &self,
        opening: Opening,
        in_memory: &str,
        work: impl AsyncFnOnce(&Store) -> Result<T, OperatorError>,
        text: impl FnOnce(&T) -> String,
    ) -> Done {
        let answer = self.ask(opening, in_memory, work)?;
        self.form.print(&text(&answer), &answer)
    }

    /// Runs a command on the database, and returns its answer.
    pub(super) fn ask<T>(
        &self,
        opening: Opening,
        in_memory: &str,
        work: impl AsyncFnOnce(&Store) -> Result<T, OperatorError>,
    ) -> Done<T> {
        block_on(async { Ok(work(&self.open(opening, in_memory).await?).await?) })
    }

    pub(super) async fn open(&self, opening: Opening, in_memory: &str) -> Done<Store> {
        let settings = read_lasting(&self.storage, in_memory)?;
        let opened = match opening {
            Opening::Read => database::open_to_read(&settings).await,
            Opening::Change => database::open_existing(&settings).await,
            Opening::Create => database::open_primary(&settings).await,
        };
        Ok(opened?)
    }
}

/// Aligns the lines of a list, or returns the text for an empty list.
pub(super) fn list_or<const N: usize>(empty: &str, lines: Vec<[String; N]>) -> String {
    if lines.is_empty() { empty.to_owned() } else { aligned(&lines) }
}

pub(super) fn read(settings: &DatabaseSettings) -> Done<Database> {
    let mut mistakes = Mistakes::default();
    let database = settings.read(&mut mistakes);
    Ok(mistakes.into_result(database)?)
}

/// Reads the settings like [`read`], and refuses a database in memory. `in_memory` is the reason for the refusal.
pub(super) fn read_lasting(storage: &DatabaseSettings, in_memory: &str) -> Done<Database> {
    let database = read(storage)?;
    if database.is_in_memory() {
        return Err(Problem(format!("--database-url: {in_memory}")));
    }
    Ok(database)
}
