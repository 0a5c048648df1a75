//! `/indexes`: lists, makes and drops property indexes, like `rowhouse index`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::Outcome;
use super::{Call, Refusal, Reply};
use crate::observe::metrics::METRICS;
use crate::operator::indexes::{self, IndexError, IndexPlace};
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::IndexKind;
use crate::protocol::request::target::Accounts as _;
use crate::store::{Failure, Store, StoredIndex};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewIndex {
    account: String,
    table: String,
    property: String,
    /// If absent, the kind of the values of the first entities.
    kind: Option<String>,
}

/// Lists the indexes of the account and table that the query names, or all.
///
/// # Errors
/// Errors of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let (account, table) = (call.query("account")?, call.query("table")?);
    let found = indexes::list(store(call), account.as_deref(), table.as_deref()).await?;
    let shown: Vec<Value> = found.iter().map(|(stored, figures)| indexes::shown(stored, *figures)).collect();
    Ok(Reply::json(200, &shown))
}

/// Adds an index. A server on the database builds it within seconds, or for as long as that takes: the list
/// shows its state.
///
/// # Errors
/// 400 for an invalid body, name or kind; 404 for an unknown account or table; 409 for an index that exists,
/// and for too many; errors of the database.
pub(crate) async fn add(call: &Call<'_>) -> Outcome {
    let NewIndex { account, table, property, kind } =
        serde_json::from_slice(call.body).map_err(|error| Refusal::bad_request(format!("body: {error}")))?;
    tell_audit(call, &account, &table, &property);
    let service = &call.admin.service;
    if !service.follower.accounts().exists(&account) {
        return Err(Refusal::new(404, "AccountNotFound", "There is no such account."));
    }
    let kind = kind.map(|kind| kind.parse::<IndexKind>()).transpose();
    let kind = kind.map_err(|error| Refusal::bad_request(format!("kind: {error}")))?;
    let place = IndexPlace { account: &account, table: &table, property: &property, kind };
    let added = indexes::add(store(call), place, Ticks::now()).await?;
    service.follower.follow_own_change(store(call)).await;
    Ok(Reply::json(201, &indexes::shown(&added, Default::default())))
}

/// Drops an index, also one that is being built.
///
/// # Errors
/// 404 for an unknown index; errors of the database.
pub(crate) async fn remove(call: &Call<'_>) -> Outcome {
    let service = &call.admin.service;
    let index_no = call.parameter("id").parse().map_err(|_| IndexError::Unknown)?;
    let StoredIndex { account, table, index, .. } = indexes::find_by_number(store(call), index_no).await?;
    tell_audit(call, &account, &table, &index.property);
    indexes::drop(store(call), index_no, Ticks::now()).await?;
    service.follower.follow_own_change(store(call)).await;
    Ok(Reply::json(200, &json!({ "dropped": index_no })))
}

/// Says for the audit which index a call is about.
fn tell_audit(call: &Call<'_>, account: &str, table: &str, property: &str) {
    call.account.get_or_init(|| account.to_owned());
    call.subject.get_or_init(|| format!("{table}/{property}"));
}

/// Lists what filters without an index have cost this server, by property.
pub(crate) fn suggestions() -> Reply {
    let costs = METRICS.scan_costs.list();
    let shown: Vec<Value> = costs
        .iter()
        .map(|(scanned, cost)| {
            json!({
                "account": scanned.account,
                "table": scanned.table,
                "property": scanned.property,
                "kind": scanned.kind,
                "pages": cost.pages,
                "examined": cost.examined,
                "returned": cost.returned,
            })
        })
        .collect();
    Reply::json(200, &shown)
}

fn store<'a>(call: &'a Call<'_>) -> &'a Store {
    &call.admin.service.primary
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Self {
        let (status, code) = match error {
            IndexError::Store(fault) => return crate::error::Error::from(Failure::Fault(fault)).into(),
            IndexError::NoTable(..) => (404, "TableNotFound"),
            IndexError::Unknown => (404, "IndexNotFound"),
            IndexError::Exists => (409, "IndexAlreadyExists"),
            IndexError::TooMany => (409, "TooManyIndexes"),
            _ => (400, "BadRequest"),
        };
        Refusal::new(status, code, error.to_string())
    }
}
