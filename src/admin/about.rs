//! `/version` and `/openapi.json`.

use serde_json::json;

use super::call::Outcome;
use super::{Call, Reply};
use crate::metrics::process;
use crate::store::Store;

/// The OpenAPI description of all routes, maintained by hand.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Answers with name, version, database and uptime.
pub(crate) async fn version(call: &Call<'_>) -> Outcome {
    let database = match &call.admin.service.primary {
        Store::Postgres(_) => "postgres",
        Store::Sqlite(_) => "sqlite",
    };
    Ok(Reply::json(
        200,
        &json!({
            "name": "rowhouse",
            "version": env!("CARGO_PKG_VERSION"),
            "database": database,
            "uptimeSeconds": process::uptime(),
        }),
    ))
}

/// Answers with the OpenAPI description.
pub(crate) async fn openapi(_: &Call<'_>) -> Outcome {
    Ok(Reply::text("application/json", OPENAPI))
}
