//! Plans to store calls, outcomes to answers.

use super::answer::Answer;
use super::print::Printer;
use crate::codec::{policies, properties};
use crate::error::{Code, Error, Result};
use crate::plan::{EntityPage, Plan, Scan, TablePage};
use crate::request::Operation;
use crate::store::{Backend, Failure};

/// Runs a plan that is no change set and prints what came of it.
///
/// # Errors
/// Whatever the store refuses or fails at.
pub async fn execute<'a>(
    store: &impl Backend,
    plan: &'a Plan,
    operation: &'a Operation,
    printer: Printer<'a>,
) -> Result<Answer> {
    let now = printer.now;
    // Whoever wants a body that cannot be printed must not change anything.
    if !matches!(plan, Plan::DeleteTable(_)) && needs_body(operation, printer) {
        printer.format.for_body()?;
    }
    let account = printer.target.account.as_str();
    match plan {
        Plan::ListTables(scan) => {
            let page = match scan.rows {
                0 => TablePage::default(),
                _ => store.list_tables(account, scan).await?,
            };
            printer.tables(&page, select(operation))
        }
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
            let page = query(store, account, table, scan).await?;
            printer.entities(table.as_given(), &page, select(operation))
        }
        Plan::Get { table, key } => match store.get(account, table, key).await? {
            Some(entity) => printer.entity(table.as_given(), &entity, select(operation)),
            None => Err(Code::ResourceNotFound.into()),
        },
        Plan::Write { table, write } => {
            let written = store.write(account, table, write, now).await?;
            printer.written(table.as_given(), write, written)
        }
        Plan::GetPolicies(table) => {
            let stored = store.policies(account, table).await.map_err(no_such_resource)?;
            let found = stored.map(|text| policies::from_stored(&text)).transpose()?.unwrap_or_default();
            Ok(Answer::xml(200, policies::write(&found)))
        }
        Plan::SetPolicies { table, policies: new } => {
            let new = policies::to_stored(new)?;
            store.set_policies(account, table, &new).await.map_err(no_such_resource)?;
            Ok(Answer::bare(204))
        }
        Plan::GetProperties => {
            let stored = store.properties(account).await?;
            let found = stored.map(|text| properties::from_stored(&text)).transpose()?.unwrap_or_default();
            Ok(Answer::xml(200, properties::write(&found)))
        }
        Plan::SetProperties(new) => {
            store.set_properties(account, &properties::to_stored(new)?).await?;
            Ok(Answer::bare(202))
        }
        Plan::GetStats if printer.target.secondary => {
            Ok(Answer::xml(200, properties::write_stats(&now.to_http_date())))
        }
        Plan::GetStats => Err(Code::InvalidQueryParameterValue.into()),
        Plan::BelowTable(table) => match store.get_table(account, table).await? {
            Some(_) => Err(Error::with_message(
                Code::KeyCountMismatch,
                format!(
                    "The number of keys specified in the URI does not match number of key properties for the \
                     resource '{account}.{}'.",
                    table.as_given()
                ),
            )),
            None => Err(Code::TableNotFound.into()),
        },
        Plan::Transact { .. } | Plan::Nothing => Err(Code::InternalError.into()),
    }
}

/// As recorded: for policies a missing table is a missing resource.
fn no_such_resource(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(error) if error.code == Code::TableNotFound => Code::ResourceNotFound.into(),
        other => other,
    }
}

/// A page of no rows still needs a table, and promises no next page: a client
/// that follows it would never end.
async fn query(
    store: &impl Backend,
    account: &str,
    table: &crate::model::TableName,
    scan: &Scan,
) -> Result<EntityPage, Failure> {
    if scan.rows > 0 {
        return store.query(account, table, scan).await;
    }
    match store.get_table(account, table).await? {
        Some(_) => Ok(EntityPage::default()),
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

/// Whether a success is answered with a document.
pub fn needs_body(operation: &Operation, printer: Printer<'_>) -> bool {
    use crate::request::Prefer::NoContent;
    use crate::request::operation::WriteVerb::Insert;
    match operation {
        Operation::CreateTable { .. } => printer.prefer != Some(NoContent),
        Operation::Write(write) => write.verb == Insert && printer.prefer != Some(NoContent),
        Operation::DeleteTable { .. }
        | Operation::Batch(_)
        | Operation::GetPolicies { .. }
        | Operation::SetPolicies { .. }
        | Operation::GetProperties
        | Operation::SetProperties(_)
        | Operation::GetStats => false,
        Operation::QueryTables(_)
        | Operation::GetTable { .. }
        | Operation::QueryEntities { .. }
        | Operation::GetEntity { .. }
        | Operation::BelowTable { .. } => true,
    }
}
