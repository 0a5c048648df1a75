//! The text of every statement, so that one test can check them all.
//!
//! Rules: values are parameters. Every statement on `entities` has a condition on `bucket`. Statements avoid features
//! that a sharded database refuses (now(), ctid, MERGE, …). Statements check the cached number of a table: after a
//! deletion, even if the table was created again, no row of `tables` has this number.

mod chosen;
pub(crate) mod view;

pub(crate) use chosen::EntityStatements;

use std::borrow::Cow;

use crate::protocol::model::PageOrder;
use crate::protocol::plan::Projection;

/// Defines statements and the list `ALL`.
macro_rules! statements {
    ($($(#[$attribute:meta])* $visibility:vis const $name:ident: &str = $text:expr;)*) => {
        $($(#[$attribute])* $visibility const $name: &str = $text;)*

        /// All statements above.
        pub(super) const ALL: &[&str] = &[$($name),*];
    };
}

macro_rules! table_exists {
    ($parameter:literal) => {
        concat!("EXISTS (SELECT 1 FROM tables WHERE table_no = ", $parameter, ")")
    };
}

/// The version after the version of `e`: the next tick, up to the maximum.
macro_rules! next_version {
    ($e:literal) => {
        concat!("least(", $e, "modified + 1, 3155378975999999999)")
    };
}

/// The version of a row that conflicts with a new row: the new row's version, if it is later.
macro_rules! later_version {
    () => {
        concat!("greatest(", next_version!("e."), ", excluded.modified)")
    };
}

/// The row of `buckets` for the bucket $1, if the table may insert into it under its number.
macro_rules! bucket_admits {
    ($table_no:literal) => {
        concat!("b.bucket = $1 AND (b.table_no IS NULL OR b.table_no = ", $table_no, "::bigint)")
    };
}

/// Whether concatenating the new properties to those of `e` has the result of `plan::decide`: no annotation of a
/// former type remains, and the union keeps every limit. $9: maximum bytes of stored text; $10: the path of all
/// members.
macro_rules! merges_for_certain {
    ($annotations:literal, $room:literal) => {
        concat!(
            "NOT jsonb_exists_any(e.properties, string_to_array(",
            $annotations,
            ", chr(44))) AND jsonb_array_length(jsonb_path_query_array(e.properties, $10::text::jsonpath)) <= ",
            $room,
            " AND octet_length(e.properties::text) <= $9"
        )
    };
}

/// A value if a condition holds; otherwise the whole statement fails. SQL has no expression for a deliberate failure,
/// so this one divides by zero: the statement changes nothing and reports `division_by_zero`, which becomes
/// [`StatementError::Undecided`](super::fault::StatementError). The zero depends on a column, because a constant
/// would fail before any row is read.
macro_rules! value_or_failure {
    ($condition:expr, $value:expr, $column:literal) => {
        concat!(
            "CASE WHEN ",
            $condition,
            " THEN ",
            $value,
            " ELSE ",
            $column,
            " / (",
            $column,
            " - ",
            $column,
            ") END"
        )
    };
}

mod entities;
pub mod indexes;
mod load;
pub(crate) mod operator;
mod pages;
pub mod respread;

pub use entities::*;
pub use load::*;
pub use operator::{COUNT_REST, DELETE_EXPIRED};
pub use pages::{
    WALK_STRIDE, columns, filtered, in_order, points, points_of_bucket, points_of_partition, range, walk,
    window,
};

/// The maximum connections of this role: all that are not reserved, up to the limits of the role and of the database
/// (-1 for no limit).
pub(crate) const ALLOWED_CONNECTIONS: &str = "SELECT least(\
     current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int \
         - coalesce(current_setting('reserved_connections', true)::int, 0), \
     (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user), \
     (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())) AS allowed";

pub(crate) const HAS_RELATION: &str = "SELECT to_regclass($1) IS NOT NULL AS found";
/// One row if Citus plans statements of the table $1. Requires [`CITUS_TABLES`].
pub(crate) const IS_DISTRIBUTED: &str =
    "SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass($1)";
/// The server of the rows of $1 whose bucket hashes are at most `last`. A shard of a table without hash distribution
/// has no limit.
pub(crate) const SHARDS: &str = "SELECT s.shardmaxvalue AS last, p.groupid AS server FROM pg_dist_shard AS s \
     JOIN pg_dist_placement AS p ON p.shardid = s.shardid \
     WHERE s.logicalrelid = to_regclass($1) AND s.shardmaxvalue IS NOT NULL";
/// The server's number and whether the server has all tables of $2, for each server of the role $1 that this server
/// knows.
pub(crate) const CLUSTER_VIEW: &str = "SELECT g.groupid AS server, n.groupid AS number, \
     n.nodename AS host, n.nodeport AS port, n.isactive AS is_active, n.shouldhaveshards AS holds_shards, \
     NOT EXISTS (SELECT 1 FROM unnest($2::text[]) AS t (name) WHERE to_regclass(t.name) IS NULL) AS is_complete \
     FROM pg_dist_local_group AS g \
     LEFT JOIN pg_dist_node AS n ON n.noderole::text = $1";
/// Whether the server is a standby that replays WAL.
pub(crate) const IS_STANDBY: &str = "SELECT pg_is_in_recovery() AS is_standby";
/// Ends the statement of the backend with this process id.
pub(crate) const CANCEL: &str = "SELECT pg_cancel_backend($1)";
/// The process id of this session's backend.
pub(crate) const BACKEND: &str = "SELECT pg_backend_pid() AS pid";
/// The properties of a new session, for host lists: whether the setting $1 is $2, and whether the server is a
/// standby.
pub(crate) const SESSION_KIND: &str =
    "SELECT pg_is_in_recovery() AS is_standby, setting = $2 AS is_read_only FROM pg_settings WHERE name = $1";
/// PostgreSQL's hashes of buckets, which determine their server.
pub(crate) const HASHES: &str = "SELECT hashint8(u.bucket) AS hash FROM unnest($1::bigint[]) WITH ORDINALITY AS u (bucket, n) ORDER BY u.n";
/// The schemas on the search path that have all relations of $1, in search order. Runs in one session before others
/// open.
pub(crate) const SCHEMAS_WITH: &str = "SELECT s.name::text FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, n) \
     WHERE NOT EXISTS (SELECT 1 FROM unnest($1::text[]) AS r (name) \
     WHERE to_regclass(format('%I.%I', s.name, r.name)) IS NULL) ORDER BY s.n";
/// The schema for new tables; NULL if the search path names no existing schema.
pub(crate) const CURRENT_SCHEMA: &str = "SELECT current_schema()::text AS name";
/// Reads one row of a table. The name is already quoted.
pub(crate) fn first_row(table: &str) -> String {
    format!("SELECT 1 FROM {table} LIMIT 1")
}
pub(crate) const ENCODING: &str = "SELECT pg_encoding_to_char(encoding)::text AS encoding FROM pg_database WHERE datname = current_database()";
/// The schema version of a migrated database.
pub(crate) const SCHEMA_VERSION: &str = "SELECT max(version) AS version FROM _sqlx_migrations WHERE success";
pub(crate) const CITUS_TABLES: &str = "pg_dist_partition";

// Tables.

pub(crate) const CREATE_TABLE: &str = "INSERT INTO tables (table_no, account, name_lower, name, spread, created) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, name_lower) DO NOTHING RETURNING table_no";
pub(crate) const DOOM_TABLE: &str =
    "INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES ($1, $2, $3, $3)";
pub(crate) const RESOLVE_TABLE: &str = "SELECT t.table_no, abs(t.spread) AS spread, \
     coalesce(r.source_no, t.table_no) AS layout_no, t.name, t.created \
     FROM tables AS t LEFT JOIN respreads AS r ON r.table_no = t.table_no \
     WHERE t.account = $1 AND t.name_lower = $2";
pub(crate) const DELETED_LAYOUT: &str = "SELECT d.table_no, abs(d.spread) AS spread, \
     coalesce(r.source_no, d.table_no) AS layout_no \
     FROM deleted_tables AS d LEFT JOIN respreads AS r ON r.table_no = d.table_no WHERE d.table_no = $1";
pub const ADD_BUCKET: &str = "INSERT INTO buckets (bucket) VALUES ($1) ON CONFLICT DO NOTHING";
pub const HAS_BUCKET: &str = "SELECT 1 FROM buckets WHERE bucket = $1";
pub(crate) const REMOVE_CHANGES: &str = "DELETE FROM respread_changes WHERE bucket = ANY($1::bigint[])";
pub(crate) const REMOVE_BUCKETS: &str = "DELETE FROM buckets WHERE bucket = ANY($1::bigint[])";
pub const CHECK_TABLE: &str = "SELECT 1 FROM tables WHERE table_no = $1";
pub(crate) const LIST_TABLES: &str = "SELECT name_lower, name, created FROM tables \
     WHERE account = $1 AND name_lower >= $2 ORDER BY name_lower LIMIT $3";
pub(crate) const LIST_TABLES_BELOW: &str = "SELECT name_lower, name, created FROM tables \
     WHERE account = $1 AND name_lower >= $2 AND name_lower < $4 ORDER BY name_lower LIMIT $3";

/// The time of the last commit that a replica has replayed, in microseconds since 1970.
pub(crate) const REPLAYED: &str = "SELECT pg_is_in_recovery() AS is_replica, \
     (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::int8 AS micros";

/// The time of the database's clock, in microseconds since 1970. It reads no table, so no sharding engine refuses it.
pub(crate) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS micros";

// Purging. $1 bucket, $2 and $3 the key to start at.

/// $1 now; $2 the latest valid due time. A clock that ran ahead may have recorded later times.
pub(crate) const DUE: &str = "SELECT table_no, spread, deleted_at, due FROM doomed \
     WHERE (due <= $1 OR due > $2) AND table_no <> ALL($3::bigint[]) ORDER BY due, table_no LIMIT 1";
pub(crate) const COUNT_DOOMED: &str = "SELECT count(*) AS n FROM doomed WHERE due = deleted_at";
pub(crate) const POSTPONE: &str = "UPDATE doomed SET due = $2 WHERE table_no = $1";
pub(crate) const FORGET: &str = "DELETE FROM doomed WHERE table_no = $1";
pub const PURGE_BOUND: &str = "SELECT pk, rk FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3) \
     ORDER BY pk, rk OFFSET $4 LIMIT 1";
pub const PURGE_RANGE: &str =
    "DELETE FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3) AND (pk, rk) <= ($4, $5)";
pub const PURGE_REST: &str = "DELETE FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";

// Operators' queries.

pub(crate) const PROBE: &str = "SELECT 1";
pub(crate) const SIZE: &str = "SELECT count(*) AS entities, \
     coalesce(sum(octet_length(pk) + octet_length(rk) + pg_column_size(properties)), 0)::int8 AS bytes \
     FROM (SELECT pk, rk, properties FROM entities WHERE bucket = $1 LIMIT $2) part";

const NODES: [&str; 9] =
    [HAS_RELATION, IS_DISTRIBUTED, SHARDS, CLUSTER_VIEW, IS_STANDBY, SESSION_KIND, HASHES, CANCEL, BACKEND];
const CATALOGUE: [&str; 12] = [
    ADD_BUCKET,
    HAS_BUCKET,
    REMOVE_BUCKETS,
    REMOVE_CHANGES,
    CREATE_TABLE,
    DOOM_TABLE,
    RESOLVE_TABLE,
    DELETED_LAYOUT,
    CHECK_TABLE,
    LIST_TABLES,
    LIST_TABLES_BELOW,
    REPLAYED,
];
const PURGE: [&str; 9] =
    [DUE, COUNT_DOOMED, PROBE, SIZE, POSTPONE, FORGET, PURGE_BOUND, PURGE_RANGE, PURGE_REST];

/// Every fixed text, and an example of each composed text.
pub fn all() -> Vec<Cow<'static, str>> {
    let fixed: [&[&'static str]; 8] =
        [&NODES, &CATALOGUE, &PURGE, entities::ALL, load::ALL, &indexes::ALL, operator::ALL, respread::ALL];
    let mut texts: Vec<Cow<'static, str>> = fixed.concat().into_iter().map(Cow::Borrowed).collect();
    for projection in [Projection::Full, Projection::SystemOnly] {
        texts.push(points_of_partition(projection).into());
        texts.push(points_of_bucket(projection).into());
        texts.push(points(projection).into());
        texts.push(filtered(points(Projection::Full), "true", projection, "$6", "$7").into());
        for bounded in [false, true] {
            texts.push(range(projection, bounded, 1));
            texts.push(range(projection, bounded, 3));
            texts.push(in_order(range(projection, bounded, 3), PageOrder::Descending));
            for buckets in [1, 3] {
                texts.push(walk(projection, bounded, buckets, "true").into());
                texts.push(window(projection, bounded, buckets, "true", ("$10", "$11")).into());
            }
        }
    }
    texts
}
