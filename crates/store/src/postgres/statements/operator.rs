//! Texts for expiry and counts.

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
/// Locks entities, without waiting for those that others have locked. $1 bucket; $2 pks, $3 rks, $4 versions, side by side.
pub(crate) const LOCK_EXPIRED: &str = "SELECT e.pk, e.rk, e.modified FROM entities AS e \
     JOIN unnest($2::text[], $3::text[], $4::bigint[]) AS u (pk, rk, modified) \
     ON e.pk = u.pk AND e.rk = u.rk AND e.modified = u.modified WHERE e.bucket = $1 FOR UPDATE OF e SKIP LOCKED";
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

/// The rules of tables that no longer exist.
pub(crate) const FORGET_DELETED: &str =
    "DELETE FROM expiry AS e WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = e.table_no)";
/// $1 holder, $2 now, $3 the end of its time. A clock ahead has recorded an end that is later still; the
/// clocks of two servers may differ by that time.
pub(crate) const LEAD_UPKEEP: &str = "INSERT INTO upkeep_lease AS l (id, holder, until) VALUES (1, $1, $3) \
     ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until \
     WHERE l.holder = excluded.holder OR l.until <= $2 OR l.until > $3 + ($3 - $2) RETURNING id";
/// Whether the time of another holder than $1 runs. $2 and $3 as above.
pub(crate) const IS_LED_BY_ANOTHER: &str = "SELECT holder FROM upkeep_lease \
     WHERE holder <> $1 AND until > $2 AND until <= $3 + ($3 - $2)";

// Counts.

pub const COUNT_REST: &str = "SELECT count(*) AS n FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";

// Tables and schemas.

/// Locks a table, so that it keeps its number until the end of the transaction.
pub(crate) const TABLE_NO: &str =
    "SELECT table_no, spread FROM tables WHERE account = $1 AND name_lower = $2 FOR SHARE";
pub(crate) const HAS_SCHEMA: &str = "SELECT 1 FROM pg_namespace WHERE nspname = $1";

/// Every text here.
pub(crate) const ALL: [&str; 14] = [
    SET_EXPIRY,
    CLEAR_EXPIRY,
    LIST_EXPIRIES,
    DUE_EXPIRY,
    SUMMARIZE_EXPIRIES,
    LOCK_EXPIRED,
    DELETE_EXPIRED,
    RECORD_SWEEP,
    FORGET_DELETED,
    LEAD_UPKEEP,
    IS_LED_BY_ANOTHER,
    COUNT_REST,
    TABLE_NO,
    HAS_SCHEMA,
];
