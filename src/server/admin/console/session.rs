//! `/console/api/session`: what the page needs to know before it shows anything.

use serde_json::{Value, json};

use crate::server::admin::about::database;
use crate::server::admin::call::Call;
use crate::server::admin::reply::{Outcome, Reply};
use crate::server::admin::state::ConsoleMode;

/// Maximum number of accounts that are listed.
const MAX_ACCOUNTS: usize = 1000;

/// Answers with the state of the server and the accounts that it serves.
pub(crate) async fn session(call: &Call<'_>) -> Outcome {
    let admin = call.admin;
    admin.service.recent.as_ref().inspect(|recent| recent.watch());
    let follower = &admin.service.follower;
    let served = follower.accounts();
    let accounts = served.names();
    let listed = accounts.iter().take(MAX_ACCOUNTS).map(|name| {
        let origin = if follower.is_given(name) { "settings" } else { "database" };
        json!({
            "name": name,
            "origin": origin,
            "disabled": served.is_disabled(name),
            "extendedQueries": served.has_extended_queries(name),
        })
    });
    Ok(Reply::json(
        200,
        &json!({
            "version": env!("CARGO_PKG_VERSION"),
            "database": database(&admin.service.primary),
            "readOnly": admin.settings.console == ConsoleMode::ReadOnly,
            "testMode": admin.settings.test_mode,
            "tablesEndpoint": admin.settings.tables_endpoint,
            "accounts": listed.collect::<Vec<Value>>(),
            "moreAccounts": accounts.len() > MAX_ACCOUNTS,
        }),
    ))
}
