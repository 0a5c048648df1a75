//! Texts for deleted tables that can be brought back.

/// Takes a table out of the list.
pub(crate) const TAKE: &str = "DELETE FROM tables WHERE account = $1 AND name_lower = $2 \
     RETURNING table_no, spread, name, policies, created";
/// What belongs to the table $1, as [`TableRecords`](crate::TableRecords).
pub(crate) const RECORDS: &str = "SELECT to_jsonb(r)::text AS records FROM (SELECT \
     (SELECT to_jsonb(e) FROM (SELECT property, delay, pause, made FROM expiry WHERE table_no = $1) AS e) AS expiry, \
     (SELECT jsonb_agg(to_jsonb(i)) FROM (SELECT property, kind FROM property_indexes \
     WHERE table_no = $1 AND state <> 2 ORDER BY property, kind) AS i) AS indexes) AS r";
pub(crate) const KEEP: &str = "INSERT INTO deleted_tables \
     (table_no, account, name_lower, name, spread, policies, created, records, deleted_at, kept_until) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
/// The rule moves with the table: what forgets the rules of deleted tables must not race with its return.
pub(crate) const FORGET_EXPIRY: &str = "DELETE FROM expiry WHERE table_no = $1";

/// $1 account, $2 name, $3 number; null for any.
pub(crate) const LIST: &str = "SELECT table_no, account, name, created, deleted_at, kept_until \
     FROM deleted_tables WHERE account = coalesce($1, account) AND name_lower = coalesce($2, name_lower) \
     AND table_no = coalesce($3, table_no) ORDER BY deleted_at DESC, table_no LIMIT $4";
/// $1 now.
pub(crate) const ENDED: &str = "SELECT table_no, account, name, created, deleted_at, kept_until \
     FROM deleted_tables WHERE kept_until <= $1 ORDER BY kept_until, table_no LIMIT $2";
pub(crate) const LAYOUT: &str = "SELECT d.table_no, abs(d.spread) AS spread, \
     coalesce(r.source_no, d.table_no) AS layout_no \
     FROM deleted_tables AS d LEFT JOIN respreads AS r ON r.table_no = d.table_no WHERE d.table_no = $1";

/// Lists the table $1 again, which was deleted at $2, under the name $3 and $4; no row if another table has
/// the name, or if it is not deleted.
pub(crate) const RETURN: &str = "INSERT INTO tables (table_no, account, name_lower, name, spread, policies, created) \
     SELECT table_no, account, $3, $4, spread, policies, created FROM deleted_tables \
     WHERE table_no = $1 AND deleted_at = $2 ON CONFLICT DO NOTHING RETURNING table_no";
/// Takes the record of the table $1, which was deleted at $2. A table may be deleted again.
pub(crate) const TAKE_RECORD: &str =
    "DELETE FROM deleted_tables WHERE table_no = $1 AND deleted_at = $2 RETURNING spread, records";
pub(crate) const RESTORE_EXPIRY: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     VALUES ($1, $2, $3, $4, $5, $6, 0)";
/// What is left of the indexes that the table had is removed, not used.
pub(crate) const DROP_INDEXES: &str = counted!(
    "property_index_changes",
    "UPDATE property_indexes SET state = 2, changed = $2 WHERE table_no = $1 AND state <> 2"
);

pub(super) const ALL: [&str; 11] = [
    TAKE,
    RECORDS,
    KEEP,
    FORGET_EXPIRY,
    LIST,
    ENDED,
    LAYOUT,
    RETURN,
    TAKE_RECORD,
    RESTORE_EXPIRY,
    DROP_INDEXES,
];
