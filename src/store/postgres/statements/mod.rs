//! Every statement text, so that one test can read them all.
//!
//! Rules: values by parameters only; whatever touches `entities` names
//! `bucket`; nothing that a sharding engine refuses (now(), ctid, MERGE, …).
//! What a process remembers about a table is checked by the statement that uses
//! it: a table that was dropped, or dropped and created again, has no row in
//! `tables` under the remembered number.

pub mod rewind;

use std::borrow::Cow;

use crate::plan::Projection;

macro_rules! table_exists {
    ($parameter:literal) => {
        concat!("EXISTS (SELECT 1 FROM tables WHERE table_no = ", $parameter, ")")
    };
}

/// Whether laying new properties over those of `e` does what `plan::decide`
/// does: no annotation of another type stays behind, and the union keeps every
/// limit. $9 bytes of stored text at most, $10 the path of all members.
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

/// A value where a condition holds; anywhere else, the end of the whole statement.
/// SQL has no expression that fails on purpose, so this one divides by zero: the
/// statement changes nothing and reports `division_by_zero`, which
/// [`Trouble::Undecided`](super::fault::Trouble) stands for. The zero is made of a
/// column, or it would be divided by before any row is read.
macro_rules! value_or_failure {
    ($condition:expr, $value:literal, $column:literal) => {
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

mod pages;

pub use pages::{WALK_STRIDE, columns, filtered, points, points_of_partition, range, walk, window};

/// Connections that the database allows the role: those of the server that are not
/// reserved, and no more than the limits of the role and of the database (-1 is none).
pub const ALLOWED_CONNECTIONS: &str = "SELECT least(\
     current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int \
         - coalesce(current_setting('reserved_connections', true)::int, 0), \
     (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user), \
     (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())) AS allowed";

pub const HAS_EXTENSION: &str = "SELECT 1 FROM pg_extension WHERE extname = $1";

// Tables.

pub const CREATE_TABLE: &str = "INSERT INTO tables (table_no, account, name_lower, name, spread, created) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, name_lower) DO NOTHING RETURNING table_no";
pub const DROP_TABLE: &str =
    "DELETE FROM tables WHERE account = $1 AND name_lower = $2 RETURNING table_no, spread";
pub const DOOM_TABLE: &str = "INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES ($1, $2, $3, $3)";
pub const RESOLVE_TABLE: &str =
    "SELECT table_no, spread, name, created FROM tables WHERE account = $1 AND name_lower = $2";
pub const CHECK_TABLE: &str = "SELECT 1 FROM tables WHERE table_no = $1";
pub const LIST_TABLES: &str = "SELECT name_lower, name, created FROM tables \
     WHERE account = $1 AND name_lower >= $2 ORDER BY name_lower LIMIT $3";
pub const LIST_TABLES_BELOW: &str = "SELECT name_lower, name, created FROM tables \
     WHERE account = $1 AND name_lower >= $2 AND name_lower < $4 ORDER BY name_lower LIMIT $3";

pub const READ_POLICIES: &str = "SELECT policies FROM tables WHERE account = $1 AND name_lower = $2";
pub const WRITE_POLICIES: &str =
    "UPDATE tables SET policies = $3 WHERE account = $1 AND name_lower = $2 RETURNING table_no";

// Service properties.

pub const READ_PROPERTIES: &str = "SELECT properties FROM service_properties WHERE account = $1";
/// Replaces the members that are given and keeps the others.
pub const MERGE_PROPERTIES: &str = "INSERT INTO service_properties AS p (account, properties) VALUES ($1, $2) \
     ON CONFLICT (account) DO UPDATE SET properties = p.properties || excluded.properties RETURNING account";

// Accounts. Each change counts itself in the same statement.

macro_rules! counted {
    ($change:literal) => {
        concat!(
            "WITH counted AS (INSERT INTO account_changes AS c (id, changes) VALUES (1, 1) \
             ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1) ",
            $change,
            " RETURNING name"
        )
    };
}

pub const ACCOUNT_CHANGES: &str = "SELECT changes FROM account_changes";
pub const LIST_ACCOUNTS: &str =
    "SELECT name, key1, key2, disabled, created, rotated1, rotated2 FROM accounts ORDER BY name";
pub const ADD_ACCOUNT: &str = counted!(
    "INSERT INTO accounts (name, key1, key2, disabled, created, rotated1, rotated2) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING"
);
/// $2: the key that must be stored; $3 the new one, $4 the time.
pub const ROTATE_KEY1: &str =
    counted!("UPDATE accounts SET key1 = $3, rotated1 = $4 WHERE name = $1 AND key1 = $2");
pub const ROTATE_KEY2: &str =
    counted!("UPDATE accounts SET key2 = $3, rotated2 = $4 WHERE name = $1 AND key2 = $2");
pub const DISABLE_ACCOUNT: &str = counted!("UPDATE accounts SET disabled = $2 WHERE name = $1");
pub const REMOVE_ACCOUNT: &str = counted!("DELETE FROM accounts WHERE name = $1");
/// $1: the count of changes that there must be; $2 names, $3 and $4 their keys.
pub const RESEAL_ACCOUNTS: &str = "WITH counted AS (UPDATE account_changes SET changes = changes + 1 \
     WHERE id = 1 AND changes = $1 RETURNING changes), \
     resealed AS (UPDATE accounts AS a SET key1 = n.key1, key2 = n.key2 \
     FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS n (name, key1, key2) \
     WHERE a.name = n.name AND EXISTS (SELECT FROM counted)) SELECT changes FROM counted";

/// How far a replica has come, in microseconds since 1970.
pub const REPLAYED: &str = "SELECT pg_is_in_recovery() AS is_replica, \
     (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::int8 AS micros";

// One entity. $1 bucket, $2 pk, $3 rk, $4 table number.

/// One row if the table exists; its entity columns are null where there is no
/// entity.
pub const READ: &str = "SELECT e.modified, e.properties FROM tables t \
     LEFT JOIN entities e ON e.bucket = $1 AND e.pk = $2 AND e.rk = $3 WHERE t.table_no = $4";
pub const LOCK_ONE: &str = concat!(
    "SELECT modified, properties FROM entities WHERE bucket = $1 AND pk = $2 AND rk = $3 AND ",
    table_exists!("$4"),
    " FOR UPDATE"
);
pub const INSERT: &str = concat!(
    "INSERT INTO entities (bucket, pk, rk, modified, properties) SELECT $1, $2, $3, $5, $6 WHERE ",
    table_exists!("$4"),
    " ON CONFLICT DO NOTHING RETURNING modified"
);
pub const UPSERT: &str = concat!(
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) SELECT $1, $2, $3, $5, $6 WHERE ",
    table_exists!("$4"),
    " ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = excluded.properties, \
     modified = greatest(e.modified + 1, excluded.modified) RETURNING modified"
);
/// $7: the version that must be stored; null for any.
pub const UPDATE: &str = concat!(
    "UPDATE entities SET properties = $6, modified = greatest(modified + 1, $5) \
     WHERE bucket = $1 AND pk = $2 AND rk = $3 AND modified = coalesce($7, modified) AND ",
    table_exists!("$4"),
    " RETURNING modified"
);
/// $7: annotations that must not be stored, joined by commas; $8: members that
/// may be stored at most; $11: the version that must be stored; null for any.
pub const MERGE: &str = concat!(
    "UPDATE entities AS e SET properties = e.properties || $6, modified = greatest(e.modified + 1, $5) \
     WHERE e.bucket = $1 AND e.pk = $2 AND e.rk = $3 AND e.modified = coalesce($11, e.modified) AND ",
    merges_for_certain!("$7::text", "$8::int"),
    " AND ",
    table_exists!("$4"),
    " RETURNING e.modified"
);
/// As [`MERGE`], without $11.
pub const INSERT_OR_MERGE: &str = concat!(
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) SELECT $1, $2, $3, $5, $6 WHERE ",
    table_exists!("$4"),
    " ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = e.properties || excluded.properties, \
     modified = greatest(e.modified + 1, excluded.modified) WHERE ",
    merges_for_certain!("$7::text", "$8::int"),
    " RETURNING modified"
);
/// $5: the version that must be stored; null for any.
pub const DELETE: &str = concat!(
    "DELETE FROM entities WHERE bucket = $1 AND pk = $2 AND rk = $3 AND modified = coalesce($5, modified) AND ",
    table_exists!("$4"),
    " RETURNING modified"
);

// Rows of several requests, which have nothing to do with each other. $1
// buckets, $2 pks, $3 rks, $4 table numbers, side by side and in key order, so
// that two statements never wait for each other in a circle.

/// A row for each request whose table exists, with its place; the entity
/// columns are null where there is no entity.
pub const READ_EACH: &str = "SELECT u.n, e.modified, e.properties \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS u (bucket, pk, rk, table_no, n) \
     JOIN tables AS t ON t.table_no = u.table_no \
     LEFT JOIN entities AS e ON e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk";
/// $5 versions, no two alike, by which the rows are told apart; $6 properties.
pub const INSERT_EACH: &str = "INSERT INTO entities (bucket, pk, rk, modified, properties) \
     SELECT u.bucket, u.pk, u.rk, u.modified, u.properties \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[]) \
     AS u (bucket, pk, rk, table_no, modified, properties) \
     JOIN tables AS t ON t.table_no = u.table_no \
     ON CONFLICT DO NOTHING RETURNING modified";
/// $5 versions, $6 properties.
pub const UPSERT_EACH: &str = "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) \
     SELECT u.bucket, u.pk, u.rk, u.modified, u.properties \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[]) \
     AS u (bucket, pk, rk, table_no, modified, properties) \
     JOIN tables AS t ON t.table_no = u.table_no \
     ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = excluded.properties, \
     modified = greatest(e.modified + 1, excluded.modified) RETURNING bucket, pk, rk, modified";
/// $5 versions, $6 properties, $7 the versions that must be stored; null for
/// any.
pub const UPDATE_EACH: &str = "UPDATE entities AS e \
     SET properties = u.properties, modified = greatest(e.modified + 1, u.modified) \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[], $7::bigint[]) \
     WITH ORDINALITY AS u (bucket, pk, rk, table_no, modified, properties, wanted, n) \
     JOIN tables AS t ON t.table_no = u.table_no \
     WHERE e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk \
     AND e.modified = coalesce(u.wanted, e.modified) RETURNING u.n, e.modified";
/// $5 versions, $6 properties, $7 and $8 as in [`MERGE`] for each, $11 the
/// versions that must be stored; null for any.
pub const MERGE_EACH: &str = concat!(
    "UPDATE entities AS e \
     SET properties = e.properties || u.properties, modified = greatest(e.modified + 1, u.modified) \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[], $7::text[], \
     $8::int[], $11::bigint[]) \
     WITH ORDINALITY AS u (bucket, pk, rk, table_no, modified, properties, annotations, room, wanted, n) \
     JOIN tables AS t ON t.table_no = u.table_no \
     WHERE e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk \
     AND e.modified = coalesce(u.wanted, e.modified) AND ",
    merges_for_certain!("u.annotations", "u.room"),
    " RETURNING u.n, e.modified"
);
/// As [`MERGE_EACH`], without $11. The guard knows its write by the version,
/// since nothing else of it reaches `excluded`: no two are alike.
pub const INSERT_OR_MERGE_EACH: &str = concat!(
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) \
     SELECT u.bucket, u.pk, u.rk, u.modified, u.properties \
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[]) \
     AS u (bucket, pk, rk, table_no, modified, properties) \
     JOIN tables AS t ON t.table_no = u.table_no \
     ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = e.properties || excluded.properties, \
     modified = greatest(e.modified + 1, excluded.modified) WHERE ",
    merges_for_certain!(
        "($7::text[])[array_position($5::bigint[], excluded.modified)]",
        "($8::int[])[array_position($5::bigint[], excluded.modified)]"
    ),
    " RETURNING bucket, pk, rk, modified"
);
/// $5 the versions that must be stored; null for any.
pub const DELETE_EACH: &str = "DELETE FROM entities AS e \
     USING unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) \
     WITH ORDINALITY AS u (bucket, pk, rk, table_no, wanted, n) \
     JOIN tables AS t ON t.table_no = u.table_no \
     WHERE e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk \
     AND e.modified = coalesce(u.wanted, e.modified) RETURNING u.n, e.modified";

// Many rows of one partition, arrays ordered by rk. $1 bucket, $2 pk, $3 rks,
// $4 table number. Of most, how many rows have changed is all that is asked.

pub const LOCK_MANY: &str = "SELECT rk, modified, properties FROM entities \
     WHERE bucket = $1 AND pk = $2 AND rk = ANY($3) ORDER BY rk FOR UPDATE";
/// Fails as a whole where one of the rows exists. Arrays in `FROM` would be kept as
/// tuples before the first of them is read.
pub const INSERT_MANY: &str = concat!(
    "INSERT INTO entities (bucket, pk, rk, modified, properties) SELECT $1, $2, \
     unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) WHERE ",
    table_exists!("$4")
);
/// Leaves out rows that exist.
pub const INSERT_MISSING: &str = concat!(
    "INSERT INTO entities (bucket, pk, rk, modified, properties) SELECT $1, $2, \
     unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) WHERE ",
    table_exists!("$4"),
    " ON CONFLICT DO NOTHING"
);
/// Stores all of them, whatever is there.
pub const UPSERT_MANY: &str = concat!(
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) SELECT $1, $2, \
     unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) WHERE ",
    table_exists!("$4"),
    " ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = excluded.properties, \
     modified = greatest(e.modified + 1, excluded.modified) RETURNING rk, modified"
);
/// Merges into those that are there; $7 and $8 as in [`MERGE`], the same for all.
/// Fails as a whole where one of them has to be decided upon first.
pub const INSERT_OR_MERGE_MANY: &str = concat!(
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) SELECT $1, $2, \
     unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) WHERE ",
    table_exists!("$4"),
    " ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = e.properties || excluded.properties, \
     modified = ",
    value_or_failure!(
        merges_for_certain!("$7::text", "$8::int"),
        "greatest(e.modified + 1, excluded.modified)",
        "e.modified"
    ),
    " RETURNING rk, modified"
);
/// `rk = ANY` beside the join, or the whole partition is read.
pub const UPDATE_MANY: &str = concat!(
    "UPDATE entities AS e SET modified = u.modified, properties = u.properties \
     FROM unnest($3::text[], $5::bigint[], $6::jsonb[]) AS u (rk, modified, properties) \
     WHERE e.bucket = $1 AND e.pk = $2 AND e.rk = ANY($3) AND e.rk = u.rk AND ",
    table_exists!("$4")
);
pub const DELETE_MANY: &str =
    concat!("DELETE FROM entities WHERE bucket = $1 AND pk = $2 AND rk = ANY($3) AND ", table_exists!("$4"));

// Purging. $1 bucket, $2 $3 the key to start at.

pub const DUE: &str =
    "SELECT table_no, spread, deleted_at, due FROM doomed WHERE due <= $1 ORDER BY due, table_no LIMIT 1";
pub const COUNT_DOOMED: &str = "SELECT count(*) AS n FROM doomed WHERE due = deleted_at";
pub const POSTPONE: &str = "UPDATE doomed SET due = $2 WHERE table_no = $1";
pub const FORGET: &str = "DELETE FROM doomed WHERE table_no = $1";
pub const PURGE_BOUND: &str = "SELECT pk, rk FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3) \
     ORDER BY pk, rk OFFSET $4 LIMIT 1";
pub const PURGE_RANGE: &str =
    "DELETE FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3) AND (pk, rk) <= ($4, $5)";
pub const PURGE_REST: &str = "DELETE FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";

// What operators ask.

pub const PROBE: &str = "SELECT 1";
pub const SIZE: &str = "SELECT count(*) AS entities, \
     coalesce(sum(octet_length(pk) + octet_length(rk) + pg_column_size(properties)), 0)::int8 AS bytes \
     FROM (SELECT pk, rk, properties FROM entities WHERE bucket = $1 LIMIT $2) part";

/// Every fixed text, and one of each shape of the composed ones.
pub fn all() -> Vec<Cow<'static, str>> {
    let mut texts: Vec<Cow<'static, str>> = [
        HAS_EXTENSION,
        CREATE_TABLE,
        DROP_TABLE,
        DOOM_TABLE,
        RESOLVE_TABLE,
        CHECK_TABLE,
        LIST_TABLES,
        LIST_TABLES_BELOW,
        READ_POLICIES,
        WRITE_POLICIES,
        READ_PROPERTIES,
        MERGE_PROPERTIES,
        REPLAYED,
        ACCOUNT_CHANGES,
        LIST_ACCOUNTS,
        ADD_ACCOUNT,
        ROTATE_KEY1,
        ROTATE_KEY2,
        DISABLE_ACCOUNT,
        REMOVE_ACCOUNT,
        RESEAL_ACCOUNTS,
        READ,
        LOCK_ONE,
        INSERT,
        UPSERT,
        UPDATE,
        MERGE,
        INSERT_OR_MERGE,
        DELETE,
        READ_EACH,
        INSERT_EACH,
        UPSERT_EACH,
        UPDATE_EACH,
        MERGE_EACH,
        INSERT_OR_MERGE_EACH,
        DELETE_EACH,
        LOCK_MANY,
        INSERT_MANY,
        INSERT_MISSING,
        UPSERT_MANY,
        INSERT_OR_MERGE_MANY,
        UPDATE_MANY,
        DELETE_MANY,
        DUE,
        COUNT_DOOMED,
        PROBE,
        SIZE,
        POSTPONE,
        FORGET,
        PURGE_BOUND,
        PURGE_RANGE,
        PURGE_REST,
    ]
    .map(Cow::Borrowed)
    .to_vec();
    texts.extend(rewind::ALL.map(Cow::Borrowed));
    for projection in [Projection::Full, Projection::SystemOnly] {
        texts.push(points_of_partition(projection).into());
        texts.push(points(projection).into());
        texts.push(filtered(points(Projection::Full), "true", projection, "$6", "$7").into());
        for bounded in [false, true] {
            texts.push(range(projection, bounded, 1));
            texts.push(range(projection, bounded, 3));
            for buckets in [1, 3] {
                texts.push(walk(projection, bounded, buckets, "true").into());
                texts.push(window(projection, bounded, buckets, "true", ("$10", "$11")).into());
            }
        }
    }
    texts
}
