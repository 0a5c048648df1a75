//! Settings that have no effect in combination with the others.

use std::path::PathBuf;

use super::storage::DEFAULT_MAX_CONNECTIONS;
use super::trust::DEFAULT_AUDIENCE;
use super::{Config, Database, Settings};
use crate::admin::ConsoleMode;
use crate::store::sqlite::MAX_MAP_MIB;

impl Settings {
    /// Returns one line for each setting that has no effect without another one. That is not an
    /// error: servers of several kinds may share a file of settings.
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
            (no_admin && self.console != ConsoleMode::On, "--console: does nothing without --admin-listen"),
            (
                on_sqlite && is_given(&storage.migrate_url, &storage.migrate_url_file),
                "--migrate-url: does nothing on SQLite",
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
        idle.into_iter().filter(|(is_idle, _)| *is_idle).map(|(_, line)| line.to_owned()).collect()
    }
}

fn is_given(value: &Option<String>, file: &Option<PathBuf>) -> bool {
    value.as_ref().is_some_and(|text| !text.trim().is_empty())
        || file.as_ref().is_some_and(|path| !path.as_os_str().is_empty())
}
