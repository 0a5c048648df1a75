//! One file per operation: its request to the store, and the printing of its outcome.

mod below_table;
mod create_table;
mod delete_table;
mod get_entity;
mod get_policies;
mod get_properties;
mod get_stats;
mod get_table;
mod printer;
mod query_entities;
mod query_tables;
mod set_policies;
mod set_properties;
mod write;

pub(crate) use printer::Printer;
pub(crate) use write::print as print_write;

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
        Plan::QueryTables { scan, select } => query_tables::run(store, scan, select.as_ref(), &printer).await,
        Plan::GetTable(table) => get_table::run(store, table, &printer).await,
        Plan::CreateTable(table) => create_table::run(store, table, &printer).await,
        Plan::DeleteTable(table) => delete_table::run(store, table, keep_deleted, &printer).await,
        Plan::QueryEntities { table, scan, select } => {
            query_entities::run(store, table, scan, select.as_ref(), &printer).await
        }
        Plan::GetEntity { table, read } => get_entity::run(store, table, read, &printer).await,
        Plan::Write { table, write } => write::run(store, table, write, &printer).await,
        Plan::GetPolicies(table) => get_policies::run(store, table, &printer).await,
        Plan::SetPolicies { table, policies } => set_policies::run(store, table, policies, &printer).await,
        Plan::GetProperties(layout) => get_properties::run(store, *layout, &printer).await,
        Plan::SetProperties(members) => set_properties::run(store, members, &printer).await,
        Plan::GetStats => get_stats::run(store, &printer).await,
        Plan::BelowTable { table, is_query } => below_table::run(store, table, *is_query, &printer).await,
    }
}
