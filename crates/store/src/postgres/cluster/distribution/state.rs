//! Reads the Citus catalogue, without changing anything.

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection, Row};

use crate::contract::cluster::{
    COLOCATED, COORDINATOR, Cluster, ClusterNode, DISTRIBUTION_COLUMN, NodeFacts, PlacedTable, REFERENCE,
    TablePlacement,
};
use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::options::{PgOptions, StartError};
use crate::postgres::connections::schema;

pub(crate) const KEY: [&str; 3] = [DISTRIBUTION_COLUMN, "pk", "rk"];

/// Timeout for connecting to a node.
const NODE_TIMEOUT: &str = "SET citus.node_connection_timeout = '5s'";
const VERSION: &str = "SELECT extversion FROM pg_extension WHERE extname = 'citus'";
const GROUP: &str = "SELECT groupid FROM pg_dist_local_group";
const ADDRESS: &str = "SELECT nodename || ':' || nodeport AS address FROM pg_dist_node \
     WHERE groupid = $1 AND noderole = 'primary'";
const NODES: &str = "SELECT nodeid, nodename || ':' || nodeport AS address, groupid, shouldhaveshards AS holds_shards, \
     isactive AND noderole = 'primary' AS is_used FROM pg_dist_node ORDER BY groupid, nodeid";
const TABLES: &str = "SELECT t.name, c.oid IS NOT NULL AS is_there, p.partmethod::text AS method, \
     p.repmodel::text AS replication, p.colocationid AS colocation, \
     coalesce(pg_relation_size(c.oid), 0) AS bytes, \
     column_to_column_name(p.logicalrelid, p.partkey) AS distribution_column \
     FROM unnest($1::text[]) WITH ORDINALITY AS t (name, n) LEFT JOIN pg_class AS c ON c.oid = to_regclass(t.name) \
     LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = c.oid ORDER BY t.n";
const STATISTICS: &str = "SELECT attname::text AS name FROM pg_attribute WHERE attrelid = to_regclass($1) \
     AND attname = ANY($2) AND coalesce(attstattarget, -1) <> 0 ORDER BY attnum";
/// $1 a table; $2 [`STATISTICS_OF_A_SHARD`], $3 its columns. Citus allows this setting only on the shards of a
/// distributed table, so the shards are checked.
const STATISTICS_OF_SHARDS: &str = "SELECT DISTINCT unnest(string_to_array(result, ',')) AS name \
     FROM run_command_on_shards($1::text::regclass, format($2, $3::text[])) WHERE success AND result <> '' ORDER BY 1";
const STATISTICS_OF_A_SHARD: &str = "SELECT string_agg(attname, ',') FROM pg_attribute \
     WHERE attrelid = '%%s'::regclass AND attname = ANY(%L) AND coalesce(attstattarget, -1) <> 0";
/// Counts sessions of servers and commands in a node's database, regardless of role. Every role may read these
/// columns.
const SESSIONS: &str = "SELECT count(*)::text AS result FROM pg_stat_activity \
     WHERE application_name = 'rowhouse' AND datname = current_database()";
/// $1 [`SESSIONS`].
const SESSIONS_OF_WORKERS: &str =
    "SELECT nodename || ':' || nodeport AS address, result FROM run_command_on_workers($1)";
/// Schemas with views over the relation $1, except its own.
const VIEW_SCHEMAS: &str = "SELECT DISTINCT n.nspname::text AS name FROM pg_depend AS d \
     JOIN pg_rewrite AS r ON r.oid = d.objid JOIN pg_class AS c ON c.oid = r.ev_class \
     JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass \
     AND d.refobjid = to_regclass($1) AND n.nspname <> current_schema() ORDER BY 1";
/// $1 [`FACTS`], $2 the role of the servers.
const FACTS_OF_NODES: &str =
    "SELECT nodeid, success, result FROM run_command_on_all_nodes(format($1, $2::text))";
/// Facts that each node reports. The role replaces `%L`. Shards that have moved away remain for a time and are
/// excluded.
const FACTS: &str = "WITH own AS (SELECT unnest(s.setconfig) AS setting FROM pg_db_role_setting AS s \
     JOIN pg_roles AS r ON r.oid = s.setrole JOIN pg_database AS d ON d.oid = s.setdatabase \
     WHERE r.rolname = %L AND d.datname = current_database()) \
     SELECT json_build_object( \
     'connections', least(current_setting('max_connections')::int \
         - current_setting('superuser_reserved_connections')::int \
         - coalesce(current_setting('reserved_connections', true)::int, 0), \
         nullif(current_setting('citus.max_client_connections')::int, -1)), \
     'processes', current_setting('max_worker_processes')::int, \
     'databases', (SELECT count(*) FROM pg_database WHERE datallowconn AND NOT datistemplate), \
     'lock_timeout', (SELECT split_part(setting, '=', 2) FROM own WHERE starts_with(setting, 'lock_timeout=')), \
     'statement_timeout', \
         (SELECT split_part(setting, '=', 2) FROM own WHERE starts_with(setting, 'statement_timeout=')), \
     'addresses', (SELECT coalesce(json_object_agg(groupid, nodename || ':' || nodeport), '{}') \
         FROM pg_dist_node WHERE noderole = 'primary'), \
     'is_standby', pg_is_in_recovery(), 'standbys', (SELECT count(*) FROM pg_stat_replication), \
     'shards', shards.count, 'bytes', shards.bytes, 'entities', shards.entities)::text \
     FROM (SELECT count(*) AS count, coalesce(sum(pg_total_relation_size(c.oid)), 0) AS bytes, \
         coalesce(sum(pg_stat_get_live_tuples(c.oid)), 0) AS entities FROM pg_class AS c \
         JOIN pg_dist_placement AS p ON c.relname = 'entities_' || p.shardid \
         JOIN pg_dist_local_group AS g ON g.groupid = p.groupid WHERE c.relkind = 'r') AS shards";

pub(crate) async fn is_worker(db: &mut PgConnection) -> Result<bool, sqlx::Error> {
    if sqlx::query(VERSION).fetch_optional(&mut *db).await?.is_none() {
        return Ok(false);
    }
    Ok(sqlx::query_scalar::<_, i32>(GROUP).fetch_one(db).await? != COORDINATOR)
}

/// Reads the placement of tables from one node's catalogue; `None` without Citus. Other nodes are not queried.
pub(crate) async fn catalogue(db: &mut PgConnection) -> Result<Option<Cluster>, sqlx::Error> {
    let Some(version) = sqlx::query_scalar(VERSION).fetch_optional(&mut *db).await? else { return Ok(None) };
    let group = sqlx::query_scalar(GROUP).fetch_one(&mut *db).await?;
    let address = sqlx::query_scalar(ADDRESS).bind(group).fetch_optional(&mut *db).await?;
    Ok(Some(Cluster {
        version,
        is_coordinator: group == COORDINATOR,
        group,
        address,
        nodes: Vec::new(),
        unused: Vec::new(),
        tables: tables(db).await?,
        columns_with_statistics: Vec::new(),
        view_schemas: Vec::new(),
    }))
}

/// Reads the catalogue and queries every node; `None` without Citus. `role` is the servers' role.
pub(crate) async fn cluster(db: &mut PgConnection, role: &str) -> Result<Option<Cluster>, sqlx::Error> {
    let Some(mut cluster) = with_nodes(db, role).await? else { return Ok(None) };
    cluster.columns_with_statistics = statistics(db, cluster.is_distributed()).await?;
    cluster.view_schemas = view_schemas(db).await?;
    Ok(Some(cluster))
}

/// Same as [`cluster`], but does not query shards, because each shard query would wait for a node that does not
/// answer.
pub(crate) async fn with_nodes(db: &mut PgConnection, role: &str) -> Result<Option<Cluster>, sqlx::Error> {
    let Some(mut cluster) = catalogue(db).await? else { return Ok(None) };
    (cluster.nodes, cluster.unused) = nodes(db, role).await?;
    Ok(Some(cluster))
}

/// Same as [`with_nodes`], through the server on which migrations run.
pub async fn status(options: &PgOptions) -> Result<Option<Cluster>, StartError> {
    let mut db = schema::connect(options).await?;
    let role = Hosts::of(options.first_url(), options.acquire_timeout)?.role().to_owned();
    Ok(with_nodes(&mut db, &role).await?)
}

/// Returns the nodes on which servers or commands have sessions, and the number of sessions. For a worker that does
/// not answer, the error message replaces the number.
pub(crate) async fn sessions(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let here: String = sqlx::query_scalar(SESSIONS).fetch_one(&mut *db).await?;
    let workers: Vec<(String, String)> =
        sqlx::query_as(SESSIONS_OF_WORKERS).bind(SESSIONS).fetch_all(db).await?;
    let counts = std::iter::once(("the coordinator".to_owned(), here)).chain(workers);
    let open = counts.filter(|(_, sessions)| sessions != "0");
    Ok(open.map(|(address, sessions)| format!("{address}: {sessions}")).collect())
}

/// Returns the nodes in use, each with its answer, and the addresses of the other nodes.
async fn nodes(db: &mut PgConnection, role: &str) -> Result<(Vec<ClusterNode>, Vec<String>), sqlx::Error> {
    let rows: Vec<(i32, String, i32, bool, bool)> = sqlx::query_as(NODES).fetch_all(&mut *db).await?;
    if rows.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    // Some roles may not set this.
    let _ = db.execute(sqlx::raw_sql(NODE_TIMEOUT)).await;
    let answers = sqlx::query_as(FACTS_OF_NODES).bind(FACTS).bind(role).fetch_all(db).await?;
    let mut answers: BTreeMap<i32, Result<NodeFacts, String>> = answers.into_iter().map(answer).collect();
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    for (id, address, group, holds_shards, is_used) in rows {
        if !is_used {
            unused.push(address);
            continue;
        }
        let answer = answers.remove(&id).unwrap_or_else(|| Err("it was not asked".into()));
        used.push(ClusterNode { address, group, holds_shards, answer });
    }
    Ok((used, unused))
}

fn answer((node, success, result): (i32, bool, String)) -> (i32, Result<NodeFacts, String>) {
    let facts = match success {
        true => serde_json::from_str(&result).map_err(|error| error.to_string()),
        false => Err(result.lines().next().unwrap_or("no reason given").to_owned()),
    };
    (node, facts)
}

async fn tables(db: &mut PgConnection) -> Result<Vec<PlacedTable>, sqlx::Error> {
    let names: Vec<&'static str> = REFERENCE.iter().chain(&COLOCATED).copied().collect();
    let rows = sqlx::query(TABLES).bind(&names[..]).fetch_all(db).await?;
    names.iter().zip(&rows).map(|(name, row)| table(name, row)).collect()
}

fn table(name: &'static str, row: &PgRow) -> Result<PlacedTable, sqlx::Error> {
    let (method, replication): (Option<String>, Option<String>) =
        (row.try_get("method")?, row.try_get("replication")?);
    let placement = match (method.as_deref(), replication.as_deref()) {
        (None, _) if row.try_get("is_there")? => TablePlacement::Local,
        (None, _) => TablePlacement::Missing,
        (Some("h"), _) => TablePlacement::ByHash {
            column: row.try_get("distribution_column")?,
            group: row.try_get("colocation")?,
        },
        (Some("n"), Some("t")) => TablePlacement::Reference,
        _ => TablePlacement::Other,
    };
    Ok(PlacedTable { name, placement, local_bytes: row.try_get("bytes")? })
}

async fn statistics(db: &mut PgConnection, is_distributed: bool) -> Result<Vec<String>, sqlx::Error> {
    let entities = COLOCATED[0];
    let query = match is_distributed {
        false => sqlx::query_scalar(STATISTICS).bind(entities),
        true => sqlx::query_scalar(STATISTICS_OF_SHARDS).bind(entities).bind(STATISTICS_OF_A_SHARD),
    };
    query.bind(&KEY[..]).fetch_all(db).await
}

async fn view_schemas(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(VIEW_SCHEMAS).bind(COLOCATED[0]).fetch_all(db).await
}
