//! Plans to store calls, outcomes to answers.

use super::answer::Answer;
use super::print::Printer;
use crate::codec::properties::{Layout, Replication, ServiceProperties};
use crate::codec::{policies, properties};
use crate::error::{Code, Error, Result};
use crate::model::TableName;
use crate::plan::{PageEnd, Plan, Scan, TablePage, TableScan};
use crate::request::operation::WriteVerb;
use crate::request::target::key_count_mismatch;
use crate::request::{EntityWrite, Operation, Prefer};
use crate::store::{Backend, Collect, Failure};

/// Runs a plan and prints what came of it.
///
/// # Errors
/// Whatever the store refuses or fails at.
pub(crate) async fn execute<'a>(
    store: &impl Backend,
    plan: &'a Plan,
    operation: &'a Operation,
    printer: Printer<'a>,
) -> Result<Answer> {
    // Whoever wants a body that cannot be printed must not change anything.
    if needs_body(operation, printer.prefer) {
        printer.format.for_body()?;
    }
    let (account, now) = (printer.target.account.as_str(), printer.now);
    match plan {
        Plan::ListTables(scan) => printer.tables(&list(store, account, scan).await?, select(operation)),
        Plan::GetTable(table) => match store.get_table(account, table).await? {
            Some(entry) => printer.table(&entry.name),
            None => Err(Code::ResourceNotFound.into()),
        },
        Plan::CreateTable(table) => {
            store.create_table(account, table, now).await?;
            printer.created_table(table)
        }
        Plan::DeleteTable(table) => {
            store.delete_table(account, table, now).await?;
            Ok(Answer::empty(204))
        }
        Plan::Query { table, scan } => {
            let feed = Box::new(printer.feed(table.as_given(), scan.rows, select(operation))?);
            let (feed, end) = query(store, account, table, scan, feed).await?;
            printer.entities(*feed, end)
        }
        Plan::Get { table, key } => match store.get(account, table, key).await? {
            Some(entity) => printer.entity(table.as_given(), &entity, select(operation)),
            None => Err(Code::ResourceNotFound.into()),
        },
        Plan::Write { table, write } => {
            let written = store.write(account, table, write, now).await?;
            printer.written(table.as_given(), write, written)
        }
        Plan::GetPolicies(table) => get_policies(store, account, table).await,
        Plan::SetPolicies { table, policies } => set_policies(store, account, table, policies).await,
        Plan::GetProperties(layout) => get_properties(store, account, *layout).await,
        Plan::SetProperties(new) => set_properties(store, account, new).await,
        Plan::GetStats => stats(store, printer).await,
        Plan::BelowTable { table, is_query } => Err(below_table(store, account, table, *is_query).await?),
    }
}

/// A page of no rows promises no next page: a client that follows it would
/// never end.
async fn list(store: &impl Backend, account: &str, scan: &TableScan) -> Result<TablePage, Failure> {
    match scan.rows {
        0 => Ok(TablePage::default()),
        _ => store.list_tables(account, scan).await,
    }
}

async fn get_policies(store: &impl Backend, account: &str, table: &TableName) -> Result<Answer> {
    let stored = store.policies(account, table).await?;
    let found = stored.map(|text| policies::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml(200, policies::write(&found)))
}

async fn set_policies(
    store: &impl Backend,
    account: &str,
    table: &TableName,
    new: &[policies::Policy],
) -> Result<Answer> {
    let new = policies::to_stored(new)?;
    store.set_policies(account, table, &new).await?;
    Ok(Answer::bare(204))
}

async fn get_properties(store: &impl Backend, account: &str, layout: Layout) -> Result<Answer> {
    let stored = store.properties(account).await?;
    let found = stored.map(|text| properties::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml(200, properties::write(&found, layout)))
}

async fn set_properties(store: &impl Backend, account: &str, new: &ServiceProperties) -> Result<Answer> {
    store.set_properties(account, &properties::to_stored(new)?).await?;
    Ok(Answer::bare(202))
}

/// The primary has no stats to show (protocol §16). A secondary that cannot be
/// asked is what its stats are there to tell.
async fn stats(store: &impl Backend, printer: Printer<'_>) -> Result<Answer> {
    if !printer.target.secondary {
        return Err(Code::InvalidQueryParameterValue.into());
    }
    let replication = match store.current_until(printer.now).await {
        Ok(Some(until)) => Replication::Live(until),
        Ok(None) => Replication::Bootstrap,
        Err(_) => Replication::Unavailable,
    };
    Ok(Answer::xml(200, properties::write_stats(replication)))
}

/// The error that a path below a table is, as recorded.
async fn below_table(
    store: &impl Backend,
    account: &str,
    table: &TableName,
    is_query: bool,
) -> Result<Error> {
    Ok(match store.get_table(account, table).await? {
        None => Code::TableNotFound.into(),
        Some(_) if is_query => Code::NotImplemented.into(),
        Some(_) => key_count_mismatch(account, table.as_given()),
    })
}

/// A page of no rows still needs a table, and promises no next page: a client
/// that follows it would never end.
async fn query<C: Collect>(
    store: &impl Backend,
    account: &str,
    table: &TableName,
    scan: &Scan,
    into: C,
) -> Result<(C, PageEnd), Failure> {
    if scan.rows > 0 {
        return store.page(account, table, scan, into).await;
    }
    match store.get_table(account, table).await? {
        Some(_) => Ok((into, PageEnd::default())),
        None => Err(Code::TableNotFound.into()),
    }
}

const fn select(operation: &Operation) -> Option<&crate::codec::json::write::Select> {
    match operation {
        Operation::QueryTables(query) | Operation::QueryEntities { query, .. } => query.select.as_ref(),
        Operation::GetEntity { select, .. } => select.as_ref(),
        _ => None,
    }
}

/// Whether a success is answered with a document of the table layer.
const fn needs_body(operation: &Operation, prefer: Option<Prefer>) -> bool {
    match operation {
        Operation::CreateTable { .. } => wants_content(prefer),
        Operation::Write(write) => write_needs_body(write, prefer),
        Operation::DeleteTable { .. }
        | Operation::GetPolicies { .. }
        | Operation::SetPolicies { .. }
        | Operation::GetProperties(_)
        | Operation::SetProperties(_)
        | Operation::GetStats => false,
        Operation::QueryTables(_)
        | Operation::GetTable { .. }
        | Operation::QueryEntities { .. }
        | Operation::GetEntity { .. }
        | Operation::BelowTable { .. } => true,
    }
}

/// Whether a write that succeeds is answered with the entity.
pub(crate) const fn write_needs_body(write: &EntityWrite, prefer: Option<Prefer>) -> bool {
    matches!(write.verb, WriteVerb::Insert) && wants_content(prefer)
}

const fn wants_content(prefer: Option<Prefer>) -> bool {
    !matches!(prefer, Some(Prefer::NoContent))
}
