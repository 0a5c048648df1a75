//! `/version` and `/openapi.json`.

use serde_json::json;

use super::call::Outcome;
use super::{Call, Reply};
use crate::observe::metrics::process;
use crate::store::Store;

/// The OpenAPI description of all routes, maintained by hand.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Returns the kind of a database.
pub(crate) const fn database(store: &Store) -> &'static str {
    match store {
        Store::Postgres(_) => "postgres",
        Store::Sqlite(_) => "sqlite",
    }
}

/// Answers with name, version, database and uptime.
pub(crate) async fn version(call: &Call<'_>) -> Outcome {
    Ok(Reply::json(
        200,
        &json!({
            "name": "rowhouse",
            "version": env!("CARGO_PKG_VERSION"),
            "database": database(&call.admin.service.primary),
            "uptimeSeconds": process::uptime(),
        }),
    ))
}

/// Answers with the OpenAPI description.
pub(crate) async fn openapi(_: &Call<'_>) -> Outcome {
    Ok(Reply::text("application/json", OPENAPI))
}
