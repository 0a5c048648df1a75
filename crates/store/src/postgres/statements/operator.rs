//! Statements for expiry and counts.

statements! {
    // Expiry.

    /// Locks entities and skips those that other transactions have locked. $1 bucket; $2 pks, $3 rks, $4 versions as
    /// parallel arrays.
    pub(crate) const LOCK_EXPIRED: &str = "SELECT e.pk, e.rk, e.modified FROM entities AS e \
         JOIN unnest($2::text[], $3::text[], $4::bigint[]) AS u (pk, rk, modified) \
         ON e.pk = u.pk AND e.rk = u.rk AND e.modified = u.modified WHERE e.bucket = $1 FOR UPDATE OF e SKIP LOCKED";
    /// $1 bucket; $2 pks, $3 rks, $4 versions as parallel arrays; $5 the table, $6 when its rule was set. PostgreSQL
    /// rereads a row that another transaction has changed, and its version then differs.
    pub const DELETE_EXPIRED: &str = "DELETE FROM entities AS e USING \
         unnest($2::text[], $3::text[], $4::bigint[]) AS u (pk, rk, modified) \
         WHERE e.bucket = $1 AND e.pk = u.pk AND e.rk = u.rk AND e.modified = u.modified \
         AND EXISTS (SELECT 1 FROM tables WHERE table_no = $5) \
         AND EXISTS (SELECT 1 FROM expiry WHERE table_no = $5 AND made = $6)";

    // Counts.

    pub const COUNT_REST: &str = "SELECT count(*) AS n FROM entities WHERE bucket = $1 AND (pk, rk) >= ($2, $3)";

    // Schemas.

    pub(crate) const HAS_SCHEMA: &str = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
}
