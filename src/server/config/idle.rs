//! Finds settings that have no effect in combination with the others, and unknown variables with the prefix
//! `ROWHOUSE_`.

use std::path::PathBuf;

use clap::Args as _;

use super::{Config, DEFAULT_AUDIENCE, Settings};
use crate::server::admin::ConsoleMode;
use crate::store::database::{DEFAULT_MAX_CONNECTIONS, Database};
use crate::store::sqlite::MAX_MAP_MIB;

impl Settings {
    /// Returns one line for each setting that has no effect in combination with the others, and for each environment
    /// variable that is named like a setting but is none. Such settings are not errors, because different kinds of
    /// servers and other commands may share a file of settings.
    pub(crate) fn list_idle(&self, config: &Config) -> Vec<String> {
        const NO_ADMIN: &str = "does nothing without --admin-listen";
        const NO_ISSUER: &str = "does nothing without --oidc-issuer";
        const NO_TRACES: &str = "does nothing without --otlp-endpoint";
        const ON_SQLITE: &str = "does nothing on SQLite";
        let on_sqlite = matches!(config.database, Database::Sqlite(_));
        let (storage, database, trust) = (&self.storage, &self.storage.database, &self.trust);
        let (no_admin, no_issuer) = (config.admin.is_none(), config.trust.is_none());
        let no_traces = config.traces.is_none();
        let has_roles = !trust.oidc_roles.trim().is_empty();
        let has_migrate_url = is_given(&database.migrate_url, &database.migrate_url_file);
        let has_own_connections = storage.max_connections != DEFAULT_MAX_CONNECTIONS;
        let idle = [
            ("--admin-token", NO_ADMIN, no_admin && is_given(&self.admin_token, &self.admin_token_file)),
            ("--console", NO_ADMIN, no_admin && self.console == ConsoleMode::ReadOnly),
            ("--migrate-url", ON_SQLITE, on_sqlite && has_migrate_url),
            ("--cluster-hosts", ON_SQLITE, on_sqlite && !database.cluster_hosts.trim().is_empty()),
            ("--table-spread", ON_SQLITE, on_sqlite && storage.table_spread != 1),
            ("--max-connections", ON_SQLITE, on_sqlite && has_own_connections),
            (
                "--sqlite-map-mib",
                "does nothing on PostgreSQL",
                !on_sqlite && storage.sqlite_map_mib != MAX_MAP_MIB,
            ),
            ("--oidc-roles", NO_ISSUER, no_issuer && has_roles),
            ("--oidc-audience", NO_ISSUER, no_issuer && trust.oidc_audience != DEFAULT_AUDIENCE),
            ("--oidc-over-http", NO_ISSUER, no_issuer && trust.oidc_over_http),
            ("--oidc-issuer", "without --oidc-roles, no token grants any access", !no_issuer && !has_roles),
            ("--trace-ratio", NO_TRACES, no_traces && self.trace_ratio < 1.0),
            ("--otlp-headers", NO_TRACES, no_traces && !self.otlp_headers.trim().is_empty()),
        ];
        let idle = idle.into_iter().filter(|(.., is_idle)| *is_idle);
        let idle = idle.map(|(flag, reason, _)| format!("{flag}: {reason}"));
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        idle.chain(list_unknown(variables)).collect()
    }
}

/// Returns one line for each variable with the prefix `ROWHOUSE_` that is not a setting.
fn list_unknown(variables: impl Iterator<Item = String>) -> Vec<String> {
    let server = Settings::augment_args(clap::Command::new("serve"));
    let is_known = |name: &String| server.get_arguments().any(|known| known.get_env() == Some(name.as_ref()));
    let mut unknown: Vec<String> = variables
        .filter(|name| name.starts_with("ROWHOUSE_") && !is_set_by_orchestrator(name) && !is_known(name))
        .map(|name| {
            format!("{name}: not a setting of the server; `rowhouse serve --help` lists the settings")
        })
        .collect();
    unknown.sort_unstable();
    unknown
}

/// Returns whether an orchestrator such as Kubernetes sets this variable, as for a service that is called `rowhouse`.
fn is_set_by_orchestrator(name: &str) -> bool {
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split("_PORT_").skip(1).any(is_number)
}

fn is_given(value: &Option<String>, file: &Option<PathBuf>) -> bool {
    value.as_ref().is_some_and(|text| !text.trim().is_empty())
        || file.as_ref().is_some_and(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_listed_but_those_of_orchestrators_are_not() {
        let of = |names: &[&str]| list_unknown(names.iter().map(|name| (*name).to_owned()));
        let known =
            ["ROWHOUSE_ACCOUNTS", "ROWHOUSE_LISTEN", "ROWHOUSE_ADMIN_TOKEN_FILE", "DATABASE_URL", "HOME"];
        assert_eq!(of(&known), Vec::<String>::new());
        let orchestrated = [
            "ROWHOUSE_SERVICE_HOST",
            "ROWHOUSE_SERVICE_PORT",
            "ROWHOUSE_SERVICE_PORT_HTTP",
            "ROWHOUSE_PORT",
            "ROWHOUSE_PORT_10002_TCP",
            "ROWHOUSE_PORT_10002_TCP_ADDR",
            "ROWHOUSE_ADMIN_SERVICE_HOST",
            "ROWHOUSE_ADMIN_PORT_10003_TCP_PROTO",
        ];
        assert_eq!(of(&orchestrated), Vec::<String>::new());
        let misspelt = ["ROWHOUSE_LISTEM", "ROWHOUSE_ACCOUNT", "ROWHOUSE_PORTS", "ROWHOUSE_PORT_NAME"];
        let named: Vec<String> =
            of(&misspelt).iter().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
        assert_eq!(named, ["ROWHOUSE_ACCOUNT", "ROWHOUSE_LISTEM", "ROWHOUSE_PORTS", "ROWHOUSE_PORT_NAME"]);
    }
}
