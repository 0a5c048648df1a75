//! Texts for expiry, totals and the records of views.

// Expiry.

pub(crate) const SET_EXPIRY: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     SELECT table_no, $3, $4, $5, $6, $6, 0 FROM tables WHERE account = $1 AND name_lower = $2 \
     ON CONFLICT (table_no) DO UPDATE SET property = excluded.property, delay = excluded.delay, \
     pause = excluded.pause, made = excluded.made, due = excluded.due, began = NULL, pk = NULL, rk = NULL, \
     clean = NULL, expired = 0 RETURNING table_no";
pub(crate) const CLEAR_EXPIRY: &str = "DELETE FROM expiry WHERE table_no = \
     (SELECT table_no FROM tables WHERE account = $1 AND name_lower = $2) RETURNING table_no";

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
/// $1 now, $2 the longest pause besides that of the rule. What a clock ahead has recorded comes first.
pub(crate) const DUE_EXPIRY: &str = expiries!(
    "WHERE (e.due <= $1 OR e.due > $1 + greatest(e.pause, $2)) AND t.spread > 0 \
     ORDER BY e.due <= $1, e.due, e.table_no LIMIT 1"
);
/// $1 now.
pub(crate) const SUMMARIZE_EXPIRIES: &str = "SELECT count(*) AS rules, \
     min(CASE WHEN e.clean <= $1 THEN e.clean ELSE e.made END + e.pause) AS behind \
     FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no";
/// $1 bucket, $2 pks, $3 rks, $4 versions, side by side; $5 the table, $6 when its rule was set.
/// A row that another transaction has changed is looked at again, and then has another version.
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

// Totals.

pub const COUNT_REST: &str = "SELECT count(*) AS n FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";
pub(crate) const STORED_TOTAL: &str = "SELECT c.entities, c.started, c.ended FROM table_totals AS c \
     JOIN tables AS t ON t.table_no = c.table_no WHERE t.account = $1 AND t.name_lower = $2 AND c.ended IS NOT NULL";
pub(crate) const WANT_TOTAL: &str = "INSERT INTO table_totals AS c (table_no, began, share, pk, rk, so_far) \
     SELECT table_no, $3, 0, $4, $4, 0 FROM tables WHERE account = $1 AND name_lower = $2 \
     ON CONFLICT (table_no) DO UPDATE SET began = excluded.began, share = 0, pk = excluded.pk, rk = excluded.rk, \
     so_far = 0 WHERE c.began IS NULL RETURNING table_no";
pub(crate) const DUE_TOTAL: &str = "SELECT c.table_no, t.account, t.name, c.began, c.share, c.pk, c.rk, c.so_far \
     FROM table_totals AS c JOIN tables AS t ON t.table_no = c.table_no WHERE c.began IS NOT NULL \
     ORDER BY c.began, c.table_no LIMIT 1";
/// $2 when the count began; also of the next.
pub(crate) const RECORD_PART: &str = "UPDATE table_totals SET share = $3, pk = $4, rk = $5, so_far = $6 \
     WHERE table_no = $1 AND began = $2";
pub(crate) const RECORD_TOTAL: &str = "UPDATE table_totals SET entities = $3, started = began, ended = $4, \
     began = NULL, share = NULL, pk = NULL, rk = NULL, so_far = NULL WHERE table_no = $1 AND began = $2";

// Records of views.

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
pub(crate) const FORGET_VIEW: &str = "DELETE FROM sql_views WHERE table_no = $1";
pub(crate) const ORPHANED_VIEW: &str = "SELECT v.table_no, v.schema_name, v.name FROM sql_views AS v \
     WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = v.table_no) ORDER BY v.table_no LIMIT 1";

/// Every text here.
pub(crate) const ALL: [&str; 24] = [
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
    FORGET_VIEW,
    ORPHANED_VIEW,
];
