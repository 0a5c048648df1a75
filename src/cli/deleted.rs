//! `rowhouse table deleted`, `undelete` and `purge`: list, restore and purge deleted tables.

use clap::Args;
use serde_json::json;

use super::database::{DatabaseArguments, TableDatabase};
use super::output::{aligned, block_on, interruption};
use super::transfer::{TransferEnd, confirmed};
use crate::operator::OperatorError;
use crate::operator::deleted::{self, DeletedChoice, MAX_LISTED, UndeletedTable};
use crate::operator::reports::{DeletedTableReport, UndeletedTableReport};
use crate::protocol::model::{TableName, Ticks};
use crate::store::{DeletedScan, DeletedTable, TableSize};

pub(super) const UNDELETE_EXAMPLES: &str = "Examples:
  rowhouse table undelete Orders
  rowhouse table undelete Orders --as OrdersOfMay --newest

Servers keep deleted tables for the time in ROWHOUSE_KEEP_DELETED. On PostgreSQL, --as works from ten minutes after
the deletion on, and all servers must run this version.";
pub(super) const PURGE_EXAMPLES: &str = "Example:
  rowhouse table purge Orders --number 81064793292668

Servers remove the entities of the table. A purge cannot be undone.";

/// Maximum number of entities to count in each listed table.
const SAMPLE: u32 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct DeletedArguments {
    /// List only the tables of this account
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    database: DatabaseArguments,
}

/// A deleted table.
#[derive(Debug, Args)]
pub(crate) struct DeletedName {
    /// The table
    table: String,
    /// Choose the table that was deleted last, if several deleted tables have this name
    #[arg(long)]
    newest: bool,
    /// Choose the table with this number, which `rowhouse table deleted` prints
    #[arg(long, conflicts_with = "newest")]
    number: Option<i64>,
    #[command(flatten)]
    of: TableDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct UndeleteArguments {
    #[command(flatten)]
    deleted: DeletedName,
    /// Restore the table under another name
    #[arg(long = "as", value_name = "NAME")]
    new_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    #[command(flatten)]
    deleted: DeletedName,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl DeletedName {
    fn choice(&self) -> DeletedChoice {
        match self.number {
            Some(number) => DeletedChoice::Number(number),
            None if self.newest => DeletedChoice::Newest,
            None => DeletedChoice::Only,
        }
    }
}

fn table_name(text: &str) -> Result<TableName, TransferEnd> {
    crate::operator::table_name(text).map_err(|error| TransferEnd::Usage(error.to_string()))
}

/// Lists deleted tables.
pub(super) fn list(arguments: &DeletedArguments) -> Result<(), TransferEnd> {
    let DeletedArguments { account, database } = arguments;
    let mut tables = block_on(async {
        let store = database.open_to_read().await?;
        let scan =
            DeletedScan { account: account.as_deref(), most: MAX_LISTED + 1, ..DeletedScan::default() };
        let mut tables = Vec::new();
        for table in store.deleted_tables(scan).await.map_err(OperatorError::from)? {
            let size = store.deleted_size(table.table_no, SAMPLE).await.map_err(OperatorError::from)?;
            tables.push((table, size));
        }
        Ok(tables)
    })?;
    let more = tables.len() > MAX_LISTED as usize;
    tables.truncate(MAX_LISTED as usize);
    let mut text = match tables.is_empty() {
        true => "No deleted table can be brought back.".to_owned(),
        false => aligned(&tables.iter().map(|(table, size)| columns(table, *size)).collect::<Vec<_>>()),
    };
    if more {
        text.push_str(&format!("\nThere are more than these {MAX_LISTED}."));
    }
    let report = |(table, size): &(DeletedTable, Option<TableSize>)| DeletedTableReport::new(table, *size);
    let listed: Vec<_> = tables.iter().map(report).collect();
    Ok(database.form.print(&text, &json!({ "tables": listed, "more": more }))?)
}

fn columns(table: &DeletedTable, size: Option<TableSize>) -> [String; 3] {
    let held = size.map_or_else(|| "gone meanwhile".into(), described);
    let (deleted, until) = (table.deleted.to_canonical(), table.kept_until.to_canonical());
    [
        table.table_no.to_string(),
        format!("{}/{}", table.account, table.name),
        format!("deleted {deleted}, kept until {until}: {held}"),
    ]
}

fn described(size: TableSize) -> String {
    let TableSize { entities, bytes, complete } = size;
    let more = if complete { "" } else { "more than " };
    let noun = if entities == 1 { "entity" } else { "entities" };
    format!("{more}{entities} {noun}, {bytes} bytes")
}

/// Restores a deleted table.
pub(super) fn undelete(arguments: &UndeleteArguments) -> Result<(), TransferEnd> {
    let UndeleteArguments { deleted: DeletedName { table, of, .. }, new_name } = arguments;
    let name = table_name(table)?;
    let new_name = new_name.as_deref().map(table_name).transpose()?;
    let undeleted = block_on(async {
        let store = of.database.open().await?;
        let found = deleted::find(&store, &of.account, &name, arguments.deleted.choice()).await?;
        Ok(deleted::undelete(&store, found, new_name, Ticks::now()).await?)
    })?;
    let report = UndeletedTableReport::new(&undeleted);
    let text = described_return(&undeleted, report.indexes);
    of.database.form.print(&text, &report)?;
    match warnings(&undeleted) {
        Some(text) => Err(TransferEnd::Failed(text)),
        None => Ok(()),
    }
}

fn described_return(undeleted: &UndeletedTable, indexes: usize) -> String {
    let mut text = format!("The table {} is back.", undeleted.name);
    if indexes > 0 {
        text.push_str(&format!(" Servers build its indexes again: {indexes}."));
    }
    if undeleted.records.expiry.is_some() {
        text.push_str(" Its entities expire as before.");
    }
    text
}

/// Warns of the parts of the table that were not restored.
fn warnings(undeleted: &UndeletedTable) -> Option<String> {
    let left_out = undeleted.left_out;
    (left_out > 0).then(|| {
        format!(
            "the table is back without {left_out} of its indexes: the table or the database has the maximum \
             number of indexes"
        )
    })
}

/// Purges a deleted table.
pub(super) fn purge(arguments: &PurgeArguments) -> Result<(), TransferEnd> {
    let PurgeArguments { deleted: named, yes } = arguments;
    let DeletedName { table, of, .. } = named;
    let name = table_name(table)?;
    let found = block_on(async {
        let store = of.database.open_to_read().await?;
        let found = deleted::find(&store, &of.account, &name, named.choice()).await?;
        let size = deleted::size_in_time(&store, &found).await?;
        Ok((found, size))
    })?;
    let (found, size) = found;
    let held = size.map_or_else(|| "an unknown number of entities".to_owned(), described);
    let question = format!(
        "this removes the table {}, deleted {}, with {}, for good",
        found.name,
        found.deleted.to_canonical(),
        held
    );
    confirmed(&question, *yes)?;
    let purged = block_on(async {
        let interrupted = interruption()?;
        let purge = async { Ok(deleted::purge(&of.database.open().await?, &found, Ticks::now()).await?) };
        tokio::select! {
            done = purge => done.map(Some),
            () = interrupted => Ok(None),
        }
    })?;
    if purged.is_none() {
        return Err(TransferEnd::Interrupted(
            "interrupted; if `rowhouse table deleted` no longer lists the table, it is being purged".into(),
        ));
    }
    let text = format!("The table {} is being purged, with {held}.", found.name);
    Ok(of.database.form.print(&text, &DeletedTableReport::new(&found, size))?)
}
