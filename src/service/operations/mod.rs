//! Runs operations on the store and prints their outcomes.

mod entities;
mod printer;
mod service;
mod tables;

pub(crate) use entities::print_write;
pub(crate) use printer::Printer;

use super::answer::Answer;
use crate::error::Result;
use crate::protocol::plan::Plan;
use crate::store::Store;

/// Runs a plan and prints its outcome. Deleted tables are kept for `keep_deleted` ticks.
pub(crate) async fn run(
    store: &Store,
    plan: &Plan,
    keep_deleted: i64,
    printer: Printer<'_>,
) -> Result<Answer> {
    // A request whose response cannot be printed must not change anything.
    if plan.needs_body(printer.prefer) {
        printer.format.for_body()?;
    }
    match plan {
        Plan::QueryTables { scan, select } => tables::query(store, scan, select.as_ref(), &printer).await,
        Plan::GetTable(table) => tables::get(store, table, &printer).await,
        Plan::CreateTable(table) => tables::create(store, table, &printer).await,
        Plan::DeleteTable(table) => tables::delete(store, table, keep_deleted, &printer).await,
        Plan::QueryEntities { table, scan, select } => {
            entities::query(store, table, scan, select.as_ref(), &printer).await
        }
        Plan::GetEntity { table, read } => entities::get(store, table, read, &printer).await,
        Plan::Write { table, write } => entities::write(store, table, write, &printer).await,
        Plan::GetPolicies(table) => tables::get_policies(store, table, &printer).await,
        Plan::SetPolicies { table, policies } => tables::set_policies(store, table, policies, &printer).await,
        Plan::GetProperties(layout) => service::get_properties(store, *layout, &printer).await,
        Plan::SetProperties(members) => service::set_properties(store, members, &printer).await,
        Plan::GetStats => service::get_stats(store, &printer).await,
        Plan::BelowTable { table, is_query } => tables::refuse_below(store, table, *is_query, &printer).await,
    }
}
