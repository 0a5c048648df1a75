//! `/console/api/session`: the information that the page needs before it can display anything.

use schemars::JsonSchema;
use serde::Serialize;

use crate::server::admin::about::DatabaseKind;
use crate::server::admin::call::Call;
use crate::server::admin::reply::Answer;
use crate::server::admin::route::{Route, json, token};
use crate::server::admin::state::ConsoleMode;

/// Maximum number of accounts to list.
const MAX_ACCOUNTS: usize = 1000;

pub(crate) const ROUTES: &[Route] =
    &[token("GET", "/console/api/session", |call| json(async { session(call) }))
        .of_console()
        .about("session", "The state of the server that the console shows")
        .answers::<SessionReport>("The state of the server and the accounts that it serves.")];

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct SessionReport {
    version: &'static str,
    database: DatabaseKind,
    /// Whether nothing can be changed from a browser.
    read_only: bool,
    test_mode: bool,
    /// Scheme, host and port by which this machine reaches the Tables port.
    tables_endpoint: String,
    /// The first 1000 accounts.
    accounts: Vec<AccountSummary>,
    more_accounts: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AccountSummary {
    name: String,
    origin: AccountOrigin,
    disabled: bool,
    extended_queries: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum AccountOrigin {
    Settings,
    Database,
}

fn session(call: &Call<'_>) -> Answer<SessionReport> {
    let admin = call.admin;
    admin.service.recent.as_ref().inspect(|recent| recent.watch());
    let follower = &admin.service.follower;
    let served = follower.accounts();
    let accounts = served.names();
    let listed = accounts.iter().take(MAX_ACCOUNTS).map(|name| {
        let is_given = follower.is_given(name);
        AccountSummary {
            name: name.to_string(),
            origin: if is_given { AccountOrigin::Settings } else { AccountOrigin::Database },
            disabled: served.is_disabled(name),
            extended_queries: served.has_extended_queries(name),
        }
    });
    Ok(SessionReport {
        version: env!("CARGO_PKG_VERSION"),
        database: DatabaseKind::of(&admin.service.primary),
        read_only: admin.settings.console == ConsoleMode::ReadOnly,
        test_mode: admin.settings.test_mode,
        tables_endpoint: admin.settings.tables_endpoint.clone(),
        accounts: listed.collect(),
        more_accounts: accounts.len() > MAX_ACCOUNTS,
    })
}
