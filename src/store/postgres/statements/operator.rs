//! Texts for expiry, totals and the records of views.

// Expiry.

/// For a table whose row is locked by [`TABLE_NO`], as all that is recorded of a table by its name: otherwise a
/// respread could give it another number while this waits.
pub(crate) const SET_EXPIRY: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     VALUES ($1, $2, $3, $4, $5, $5, 0) ON CONFLICT (table_no) DO UPDATE SET property = excluded.property, delay = excluded.delay, \
     pause = excluded.pause, made = excluded.made, due = excluded.due, began = NULL, pk = NULL, rk = NULL, \
     clean = NULL, expired = 0 RETURNING table_no";
/// For a table whose row is locked.
pub(crate) const CLEAR_EXPIRY: &str = "DELETE FROM expiry WHERE table_no = $1 RETURNING table_no";

macro_rules! expiries {
    ($rest:literal) => {
        concat!(
            "SELECT e.table_no, abs(t.spread) AS spread, t.account, t.name, e.property, e.delay, e.pause, e.made, e.due, \
             e.began, e.pk, e.rk, e.clean, e.expired FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no ",
            $rest
        )
    };
}

pub(crate) const LIST_EXPIRIES: &str =
    expiries!("WHERE t.account = coalesce($1, t.account) ORDER BY t.account, t.name_lower");
/// $1 now, $2 the longest pause besides that of the rule. What a clock ahead has recorded comes first. Sweeps that
/// could not be stored, side by side: $3 tables, $4 when their rules were set, $5 when they are due.
pub(crate) const DUE_EXPIRY: &str = expiries!(
    "LEFT JOIN unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS u (table_no, made, due) \
     ON u.table_no = e.table_no AND u.made = e.made \
     WHERE (coalesce(u.due, e.due) <= $1 OR coalesce(u.due, e.due) > $1 + greatest(e.pause, $2)) AND t.spread > 0 \
     ORDER BY coalesce(u.due, e.due) <= $1, coalesce(u.due, e.due), e.table_no LIMIT 1"
);
/// $1 now.
pub(crate) const SUMMARIZE_EXPIRIES: &str = "SELECT count(*) AS rules, \
     min(CASE WHEN e.clean <= $1 THEN e.clean ELSE e.made END + e.pause) AS behind \
     FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no";
/// $1 bucket, $2 pks, $3 rks, $4 versions, side by side; $5 the table, $6 when its rule was set.
/// A row that another transaction has changed is read again, and then has another version.
pub const DELETE_EXPIRED: &str = "DELETE FROM entities AS e USING \
     unnest($2::text[], $3::text[], $4::bigint[]) AS u (pk, rk, modified) \
     WHERE e.bucket = $1 AND e.pk = u.pk AND e.rk = u.rk AND e.modified = u.modified \
     AND EXISTS (SELECT 1 FROM tables WHERE table_no = $5) \
     AND EXISTS (SELECT 1 FROM expiry WHERE table_no = $5 AND made = $6)";
/// $2 when the rule was set.
pub(crate) const RECORD_SWEEP: &str = "UPDATE expiry SET due = $3, began = $4, pk = $5, rk = $6, clean = $7, \
     expired = $8 WHERE table_no = $1 AND made = $2";

/// What belongs to tables that no longer exist. Views are dropped first.
pub(crate) const FORGET_DELETED: [&str; 2] = [
    "DELETE FROM expiry AS e WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = e.table_no)",
    "DELETE FROM table_totals AS e WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = e.table_no)",
];
/// $1 holder, $2 now, $3 the end of its time. A clock ahead has recorded an end that is later still; the
/// clocks of two servers may differ by that time.
pub(crate) const LEAD_UPKEEP: &str = "INSERT INTO upkeep_lease AS l (id, holder, until) VALUES (1, $1, $3) \
     ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until \
     WHERE l.holder = excluded.holder OR l.until <= $2 OR l.until > $3 + ($3 - $2) RETURNING id";
/// Whether the time of another holder than $1 runs. $2 and $3 as above.
pub(crate) const IS_LED_BY_ANOTHER: &str = "SELECT holder FROM upkeep_lease \
     WHERE holder <> $1 AND until > $2 AND until <= $3 + ($3 - $2)";

// Totals.

pub const COUNT_REST: &str = "SELECT count(*) AS n FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";
pub(crate) const STORED_TOTAL: &str = "SELECT c.entities, c.started, c.ended FROM table_totals AS c \
     JOIN tables AS t ON t.table_no = c.table_no WHERE t.account = $1 AND t.name_lower = $2 AND c.ended IS NOT NULL";
/// For a table whose row is locked.
pub(crate) const WANT_TOTAL: &str = "INSERT INTO table_totals AS c (table_no, began, share, pk, rk, so_far) \
     VALUES ($1, $2, 0, $3, $3, 0) ON CONFLICT (table_no) DO UPDATE SET began = excluded.began, share = 0, pk = excluded.pk, rk = excluded.rk, \
     so_far = 0 WHERE c.began IS NULL RETURNING table_no";
/// $1 tables that are left out.
pub(crate) const DUE_TOTAL: &str = "SELECT c.table_no, t.account, t.name, c.began, c.share, c.pk, c.rk, c.so_far \
     FROM table_totals AS c JOIN tables AS t ON t.table_no = c.table_no \
     WHERE c.began IS NOT NULL AND c.table_no <> ALL($1::bigint[]) ORDER BY c.began, c.table_no LIMIT 1";
/// $2 when the count began; also of the next.
pub(crate) const RECORD_PART: &str = "UPDATE table_totals SET share = $3, pk = $4, rk = $5, so_far = $6 \
     WHERE table_no = $1 AND began = $2";
pub(crate) const RECORD_TOTAL: &str = "UPDATE table_totals SET entities = $3, started = began, ended = $4, \
     began = NULL, share = NULL, pk = NULL, rk = NULL, so_far = NULL WHERE table_no = $1 AND began = $2";

// Records of views.

/// Locks a table, so that it keeps its number until the end of the transaction.
pub(crate) const TABLE_NO: &str =
    "SELECT table_no, spread FROM tables WHERE account = $1 AND name_lower = $2 FOR SHARE";
pub(crate) const HAS_SCHEMA: &str = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
pub(crate) const HAS_ROLE: &str = "SELECT 1 FROM pg_roles WHERE rolname = $1";
pub(crate) const VIEW_OF: &str = "SELECT schema_name, name, grants FROM sql_views WHERE table_no = $1";
pub(crate) const LIST_VIEWS: &str = "SELECT t.account, t.name AS table_name, v.schema_name, v.name, v.columns, \
     v.grants, v.refreshed, v.seen, v.is_full FROM sql_views AS v JOIN tables AS t ON t.table_no = v.table_no \
     WHERE t.account = coalesce($1, t.account) ORDER BY t.account, t.name_lower";
pub(crate) const RECORD_VIEW: &str = "INSERT INTO sql_views (table_no, schema_name, name, columns, grants, \
     refreshed, seen, is_full) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (table_no) DO UPDATE SET \
     schema_name = excluded.schema_name, name = excluded.name, columns = excluded.columns, \
     grants = excluded.grants, refreshed = excluded.refreshed, seen = excluded.seen, is_full = excluded.is_full";
/// Keeps the record of a view from being changed by others.
pub(crate) const LOCK_VIEW: &str = "SELECT table_no FROM sql_views WHERE table_no = $1 FOR UPDATE";
pub(crate) const FORGET_VIEW: &str = "DELETE FROM sql_views WHERE table_no = $1";
/// The kind of views, and the option that makes one a security barrier.
pub(crate) const BARRED: (&str, &str) = ("v", "security_barrier");
/// Views whose table is deleted, and those without a security barrier: conditions of a query could run
/// before the bucket is compared, and see what the view does not show. $1 and $2: [`BARRED`].
pub(crate) const UNTIDY_VIEWS: &str = "SELECT v.table_no, v.schema_name, v.name, t.table_no IS NULL AS is_orphaned \
     FROM sql_views AS v LEFT JOIN tables AS t ON t.table_no = v.table_no WHERE t.table_no IS NULL \
     OR EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.relname = v.name AND n.nspname = v.schema_name AND c.relkind = $1 AND NOT EXISTS \
     (SELECT 1 FROM pg_options_to_table(c.reloptions) AS o \
     WHERE o.option_name = $2 AND o.option_value::boolean)) ORDER BY v.table_no";
// About the catalogue of one server, and none of our tables.

/// Whether the view $2 of the schema $1 is about the table with the number $3; no row without such a view.
pub(crate) const IS_VIEW_OF: &str = "SELECT position($3::bigint::text IN pg_get_viewdef(c.oid)) > 0 AS is_ours \
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'v'";
/// The privileges that others have on a view, and on its columns.
pub(crate) const VIEW_PRIVILEGES: &str = "SELECT p.privilege_type, p.is_grantable, a.name AS column_name, \
     CASE p.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(p.grantee)::text END AS role \
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     CROSS JOIN LATERAL (SELECT NULL::text AS name, c.relacl AS acl UNION ALL SELECT attname::text, attacl \
     FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped) AS a \
     CROSS JOIN LATERAL aclexplode(a.acl) AS p \
     WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'v' AND p.grantee <> c.relowner";
/// Whether the schema $1 stands before $2 in the search path.
pub(crate) const PRECEDES: &str = "SELECT coalesce(array_position(current_schemas(false)::text[], $1) \
     < array_position(current_schemas(false)::text[], $2), false) AS precedes";
/// The sessions that have locked the relation $2 of the schema $1.
pub(crate) const LOCKERS: &str = "SELECT DISTINCT a.pid, a.application_name FROM pg_locks AS l \
     JOIN pg_stat_activity AS a ON a.pid = l.pid JOIN pg_class AS c ON c.oid = l.relation \
     JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE l.granted AND l.pid <> pg_backend_pid() \
     AND n.nspname = $1 AND c.relname = $2 ORDER BY a.pid";

/// Every text here.
pub(crate) const ALL: [&str; 27] = [
    SET_EXPIRY,
    CLEAR_EXPIRY,
    LIST_EXPIRIES,
    DUE_EXPIRY,
    SUMMARIZE_EXPIRIES,
    DELETE_EXPIRED,
    RECORD_SWEEP,
    FORGET_DELETED[0],
    FORGET_DELETED[1],
    LEAD_UPKEEP,
    IS_LED_BY_ANOTHER,
    COUNT_REST,
    STORED_TOTAL,
    WANT_TOTAL,
    DUE_TOTAL,
    RECORD_PART,
    RECORD_TOTAL,
    TABLE_NO,
    HAS_SCHEMA,
    HAS_ROLE,
    VIEW_OF,
    LIST_VIEWS,
    RECORD_VIEW,
    LOCK_VIEW,
    FORGET_VIEW,
    UNTIDY_VIEWS,
    LOCKERS,
];
