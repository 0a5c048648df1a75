//! `/expiry`: lists, sets and clears expiry rules, like `rowhouse expire`.

use super::call::{Call, within};
use super::reply::CallResult;
use super::route::{
    NO_ACCOUNT, NO_ANSWER, OF_ACCOUNT, PARAMETER, Route, TIMED_OUT, UNKNOWN, guarded, json, token,
};
use crate::operator::expiry::{self, ExpiryReport, NamedTable, NewRule};
use crate::protocol::model::Ticks;

pub(super) const ROUTES: &[Route] = &[
    guarded("GET", "/expiry", |call| json(list(call)))
        .about("listExpiry", "The tables whose entities expire, with the progress of the deletion")
        .query(&[OF_ACCOUNT])
        .answers::<Vec<ExpiryReport>>("The rules, by account and table.")
        .others(&[PARAMETER, NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("PUT", "/accounts/{name}/tables/{table}/expiry", |call| json(set(call)))
        .about("setExpiry", "Set when the entities of a table expire")
        .details(
            "Servers delete expired entities in small steps, beginning within seconds. Clients see an expired entity \
             until it is deleted.",
        )
        .body::<NewRule>()
        .answers::<ExpiryReport>("The rule.")
        .others(&[
            (404, "AccountNotFound, or TableNotFound."),
            (409, "OtherRule: another rule was set at the same time."),
            UNKNOWN,
            NO_ANSWER,
        ]),
    token("DELETE", "/accounts/{name}/tables/{table}/expiry", |call| json(clear(call)))
        .about("clearExpiry", "Remove the rule of a table, so that its entities no longer expire")
        .answers::<NamedTable>("The table.")
        .others(&[
            (400, "BadRequest: the name is invalid."),
            (404, "AccountNotFound. NotSet: the table has no rule."),
            UNKNOWN,
            NO_ANSWER,
        ]),
];

async fn list(call: &Call<'_>) -> CallResult<Vec<ExpiryReport>> {
    let account = call.queried_account()?;
    within(expiry::list(call.store(), account.as_deref(), Ticks::now())).await
}

async fn set(call: &Call<'_>) -> CallResult<ExpiryReport> {
    let rule: NewRule = call.document()?;
    let (account, table) = call.table()?;
    within(expiry::set(call.store(), account, table, &rule, Ticks::now())).await
}

async fn clear(call: &Call<'_>) -> CallResult<NamedTable> {
    let (account, table) = call.table()?;
    within(expiry::clear(call.store(), account, table)).await
}
