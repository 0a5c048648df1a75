//! Finds settings that have no effect in combination with the others, and variables that are not settings.

use std::path::PathBuf;

use clap::Args as _;

use super::{Config, DEFAULT_AUDIENCE, Settings};
use crate::server::admin::ConsoleMode;
use crate::store::database::{DEFAULT_MAX_CONNECTIONS, Database};
use crate::store::sqlite::MAX_MAP_MIB;

impl Settings {
    /// Returns one line for each setting that has no effect without another one, and for each environment
    /// variable that is named like a setting but is none. Such lines are not errors, because different kinds
    /// of servers and other commands may share a file of settings.
    pub(crate) fn idle(&self, config: &Config) -> Vec<String> {
        let on_sqlite = matches!(config.database, Database::Sqlite(_));
        let (storage, trust) = (&self.storage, &self.trust);
        let roles = !trust.oidc_roles.trim().is_empty();
        let audience = trust.oidc_audience != DEFAULT_AUDIENCE;
        let (no_admin, no_issuer) = (config.admin.is_none(), config.trust.is_none());
        let no_traces = config.traces.is_none();
        let sampled = self.trace_ratio < 1.0;
        let headers = !self.otlp_headers.trim().is_empty();
        let idle = [
            (
                no_admin && is_given(&self.admin_token, &self.admin_token_file),
                "--admin-token: does nothing without --admin-listen",
            ),
            (
                no_admin && self.console == ConsoleMode::ReadOnly,
                "--console: does nothing without --admin-listen",
            ),
            (
                on_sqlite && is_given(&storage.database.migrate_url, &storage.database.migrate_url_file),
                "--migrate-url: does nothing on SQLite",
            ),
            (
                on_sqlite && !storage.database.cluster_hosts.trim().is_empty(),
                "--cluster-hosts: does nothing on SQLite",
            ),
            (on_sqlite && storage.table_spread != 1, "--table-spread: does nothing on SQLite"),
            (
                on_sqlite && storage.max_connections != DEFAULT_MAX_CONNECTIONS,
                "--max-connections: does nothing on SQLite",
            ),
            (
                !on_sqlite && storage.sqlite_map_mib != MAX_MAP_MIB,
                "--sqlite-map-mib: does nothing on PostgreSQL",
            ),
            (no_issuer && roles, "--oidc-roles: does nothing without --oidc-issuer"),
            (no_issuer && audience, "--oidc-audience: does nothing without --oidc-issuer"),
            (no_issuer && trust.oidc_over_http, "--oidc-over-http: does nothing without --oidc-issuer"),
            (!no_issuer && !roles, "--oidc-issuer: without --oidc-roles, no token grants any access"),
            (no_traces && sampled, "--trace-ratio: does nothing without --otlp-endpoint"),
            (no_traces && headers, "--otlp-headers: does nothing without --otlp-endpoint"),
        ];
        let idle = idle.into_iter().filter(|(is_idle, _)| *is_idle).map(|(_, line)| line.to_owned());
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        idle.chain(unknown(variables)).collect()
    }
}

/// Returns one line for each variable with our prefix that is not a setting.
fn unknown(variables: impl Iterator<Item = String>) -> Vec<String> {
    let server = Settings::augment_args(clap::Command::new("serve"));
    let is_known = |name: &String| server.get_arguments().any(|known| known.get_env() == Some(name.as_ref()));
    let mut unknown: Vec<String> = variables
        .filter(|name| name.starts_with("ROWHOUSE_") && !is_of_orchestrator(name) && !is_known(name))
        .map(|name| {
            format!("{name}: not a setting of the server; `rowhouse serve --help` lists the settings")
        })
        .collect();
    unknown.sort_unstable();
    unknown
}

/// Returns whether an orchestrator sets this variable for a service whose name begins like the prefix.
fn is_of_orchestrator(name: &str) -> bool {
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
    fn misspelt_variables_are_named_and_those_of_orchestrators_are_not() {
        let of = |names: &[&str]| unknown(names.iter().map(|name| (*name).to_owned()));
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
