//! Statements for changing the spread of a table while it is served.
//!
//! Clients use the entities in the buckets of the source, while the respread copies them to the buckets of the
//! target. The statements also work with Citus: each is for one bucket, and statements that insert rows select from
//! `buckets`, which has the rows of both layouts during a respread. Subqueries read the keys, because a join would
//! read the whole bucket while statistics do not cover it.

// Statements that the test of all statements leaves out.

/// The first SQL view over the relation $2 whose definition contains the number $1.
pub(crate) const VIEW_OF: &str = "SELECT r.ev_class::regclass::text AS name FROM pg_depend AS d \
     JOIN pg_rewrite AS r ON r.oid = d.objid \
     WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass \
     AND d.refobjid = to_regclass($2) AND position($1::bigint::text IN pg_get_viewdef(r.ev_class)) > 0 \
     ORDER BY 1 LIMIT 1";
/// The abandoned respreads: those recorded while no session holds [`LOCK`].
pub(crate) const ABANDONED: &str = "SELECT t.account, t.name FROM respreads AS r \
     JOIN tables AS t ON t.table_no = r.table_no WHERE NOT EXISTS (SELECT 1 FROM pg_locks \
     WHERE classid = 1380469080 AND objid = 25 AND granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) ORDER BY t.account, t.name";
/// The transactions of this server that have written, or are about to write, to the relation `%L`.
pub(crate) const WRITERS: &str = "SELECT coalesce(string_agg(DISTINCT w.name, ','), '') FROM ( \
     SELECT virtualtransaction AS name FROM pg_locks \
     WHERE locktype = 'relation' AND relation = %L::regclass AND mode = 'RowExclusiveLock' AND granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS w";
/// Prepared Citus transactions, which may be committed on other servers but not yet on this one. Until then,
/// statements on this server see the former number of a table, and their rows are invisible elsewhere.
pub(crate) const PREPARED: &str = "SELECT coalesce(string_agg(gid, ','), '') FROM pg_prepared_xacts \
     WHERE database = current_database() AND starts_with(gid, 'citus_')";
/// The results of the query $1 on all servers of a Citus cluster.
pub(crate) const ON_ALL_SERVERS: &str = "SELECT nodeid, success, result FROM run_command_on_all_nodes($1)";
/// Sets the session's statement timeout to $1 and returns the former timeout.
pub(crate) const LIMIT_STATEMENTS: &str = "WITH former AS MATERIALIZED \
     (SELECT current_setting('statement_timeout') AS timeout) \
     SELECT timeout, set_config('statement_timeout', $1, false) FROM former";
/// Blocks writers of tables with a respread in progress until the end of the transaction.
pub(crate) const STOP_WRITERS: &str = "LOCK TABLE respread_changes IN SHARE MODE";

statements! {
    // State.

    pub(crate) const FIND: &str = "SELECT source_no, source_spread, target_no, target_spread, share, pk, rk \
         FROM respreads WHERE table_no = $1";
    pub(crate) const START: &str = "INSERT INTO respreads \
         (table_no, source_no, source_spread, target_no, target_spread, share, pk, rk) \
         VALUES ($1, $2, $3, $4, $5, 0, $6, $6)";
    pub(crate) const SAVE_POSITION: &str =
        "UPDATE respreads SET share = $2, pk = $3, rk = $4 WHERE table_no = $1";
    pub(crate) const FORGET: &str = "DELETE FROM respreads WHERE table_no = $1";
    /// Whether the table $1 has a property index, which cannot follow the table to other buckets.
    pub(crate) const HAS_INDEX: &str =
        "SELECT EXISTS (SELECT 1 FROM property_indexes WHERE table_no = $1 AND state <> 2) AS found";

    /// Gives the table $1 the number $2 and the spread $3.
    pub(crate) const RENUMBER_TABLE: &str = "UPDATE tables SET table_no = $2, spread = $3 WHERE table_no = $1";
    pub(crate) const RENUMBER_RESPREAD: &str = "UPDATE respreads SET table_no = $2 WHERE table_no = $1";
    /// Renumbers the table's expiry rule.
    pub(crate) const RENUMBER_EXPIRY: &str =
        "UPDATE expiry SET table_no = $2, began = NULL, pk = NULL, rk = NULL WHERE table_no = $1";
    /// Sets the only number under which rows may be inserted into the bucket $1; null for any number.
    pub(crate) const SET_BUCKET: &str = "INSERT INTO buckets (bucket, table_no) VALUES ($1, $2) \
         ON CONFLICT (bucket) DO UPDATE SET table_no = excluded.table_no";

    // Waiting for writers.

    /// Allows one respread at a time.
    pub(crate) const LOCK: &str = "SELECT pg_try_advisory_lock(1380469080, 25) AS locked";
    /// Inserts the name of the relation, $2, into [`WRITERS`], $1.
    pub(crate) const COMPLETE: &str = "SELECT format($1, $2) AS text";

    // Changes. $1 bucket.

    /// $2 the table's number, $3 and $4 keys.
    pub const RECORD: &str = "INSERT INTO respread_changes (bucket, table_no, pk, rk) \
         SELECT b.bucket, $2::bigint, u.pk, u.rk FROM buckets AS b, unnest($3::text[], $4::text[]) AS u (pk, rk) \
         WHERE b.bucket = $1 ON CONFLICT DO NOTHING";
    /// Changes recorded under other numbers than $2. No writer adds to them any more.
    pub const CHANGES: &str = "SELECT table_no, pk, rk FROM respread_changes WHERE bucket = $1 AND table_no <> $2 \
         ORDER BY table_no, pk, rk LIMIT $3";
    /// Removes [`CHANGES`] up to the last one, $3 to $5.
    pub const FORGET_CHANGES: &str = "DELETE FROM respread_changes WHERE bucket = $1 AND table_no <> $2 \
         AND (table_no, pk, rk) <= ($3, $4, $5)";
    /// Which of the keys $2 and $3 have changed since the last copy of changes.
    pub const IS_CHANGED: &str = "SELECT u.n, (SELECT true FROM respread_changes AS c \
         WHERE c.bucket = $1 AND c.table_no = $4 AND c.pk = u.pk AND c.rk = u.rk) AS is_changed \
         FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (pk, rk, n)";

    // Entities. $1 bucket, $2 and $3 keys.

    /// Reads at most $4 entities from a key on.
    pub const PAGE: &str = "SELECT pk, rk, modified, properties FROM entities \
         WHERE bucket = $1 AND (pk, rk) >= ($2, $3) ORDER BY pk, rk LIMIT $4";
    pub const BY_KEY: &str = "SELECT u.n, \
         (SELECT modified FROM entities WHERE bucket = $1 AND pk = u.pk AND rk = u.rk) AS modified, \
         (SELECT properties FROM entities WHERE bucket = $1 AND pk = u.pk AND rk = u.rk) AS properties \
         FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (pk, rk, n)";
    /// Stores entities unchanged. $4 versions, $5 properties.
    pub const PUT: &str = "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) \
         SELECT b.bucket, u.pk, u.rk, u.modified, u.properties FROM buckets AS b, \
         unnest($2::text[], $3::text[], $4::bigint[], $5::jsonb[]) AS u (pk, rk, modified, properties) \
         WHERE b.bucket = $1 ON CONFLICT (bucket, pk, rk) DO UPDATE SET modified = excluded.modified, \
         properties = excluded.properties WHERE e.modified <> excluded.modified OR e.properties <> excluded.properties";
    /// $2 a partition, $3 rows of it.
    pub const REMOVE: &str = "DELETE FROM entities WHERE bucket = $1 AND pk = $2 AND rk = ANY($3::text[])";
    /// Reads at most $4 keys with hashes of the entities, from a key on.
    pub const HASHES_FROM: &str = "SELECT pk, rk, \
         hashtextextended(properties::text, modified) AS hash FROM entities \
         WHERE bucket = $1 AND (pk, rk) >= ($2, $3) ORDER BY pk, rk LIMIT $4";
    /// Hashes of the entities with given keys; null where there is no entity.
    pub const HASHES_BY_KEY: &str = "SELECT u.n, \
         (SELECT hashtextextended(properties::text, modified) FROM entities \
         WHERE bucket = $1 AND pk = u.pk AND rk = u.rk) AS hash \
         FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (pk, rk, n)";
}
