//! Statements for snapshots, which are in temporary tables of one session.

pub(crate) const HAS_SNAPSHOTS: &str =
    "SELECT 1 FROM pg_class WHERE relname = $1 AND relnamespace = pg_my_temp_schema()";
/// The last is the one that [`HAS_SNAPSHOTS`] looks for.
pub(crate) const CREATE: [&str; 5] = [
    "CREATE TEMPORARY TABLE IF NOT EXISTS snapshot_tables (snapshot text NOT NULL, table_no bigint NOT NULL, \
     account text NOT NULL, name_lower text NOT NULL, name text NOT NULL, spread integer NOT NULL, \
     policies jsonb, created bigint NOT NULL, PRIMARY KEY (snapshot, table_no))",
    "CREATE TEMPORARY TABLE IF NOT EXISTS snapshot_entities (snapshot text NOT NULL, bucket bigint NOT NULL, \
     pk text COLLATE \"C\" NOT NULL, rk text COLLATE \"C\" NOT NULL, modified bigint NOT NULL, \
     properties jsonb NOT NULL, PRIMARY KEY (snapshot, bucket, pk, rk))",
    "CREATE TEMPORARY TABLE IF NOT EXISTS snapshot_properties (snapshot text NOT NULL, account text NOT NULL, \
     properties jsonb NOT NULL, PRIMARY KEY (snapshot, account))",
    "CREATE TEMPORARY TABLE IF NOT EXISTS snapshot_expiry (snapshot text NOT NULL, table_no bigint NOT NULL, \
     property text, delay bigint NOT NULL, pause bigint NOT NULL, made bigint NOT NULL, \
     PRIMARY KEY (snapshot, table_no))",
    "CREATE TEMPORARY TABLE IF NOT EXISTS snapshots (name text PRIMARY KEY, account text, taken bigint NOT NULL)",
];

/// A single statement, so that it sees one state. $1 name, $2 account or null, $3 time, $4 maximum number
/// of snapshots. The ranges of buckets follow from each table's spread.
pub(crate) const TAKE: &str = "WITH taken AS (INSERT INTO pg_temp.snapshots (name, account, taken) \
     SELECT $1, $2::text, $3 WHERE (SELECT count(*) FROM pg_temp.snapshots) < $4 RETURNING name), \
     named AS (INSERT INTO pg_temp.snapshot_tables \
     (snapshot, table_no, account, name_lower, name, spread, policies, created) \
     SELECT s.name, coalesce(r.source_no, t.table_no), t.account, t.name_lower, t.name, abs(t.spread), \
     t.policies, t.created FROM taken AS s CROSS JOIN tables AS t \
     LEFT JOIN respreads AS r ON r.table_no = t.table_no WHERE t.account = coalesce($2, t.account)), \
     filled AS (INSERT INTO pg_temp.snapshot_entities (snapshot, bucket, pk, rk, modified, properties) \
     SELECT s.name, e.bucket, e.pk, e.rk, e.modified, e.properties FROM taken AS s CROSS JOIN tables AS t \
     LEFT JOIN respreads AS r ON r.table_no = t.table_no \
     JOIN entities AS e ON e.bucket BETWEEN coalesce(r.source_no, t.table_no) << 16 \
     AND (coalesce(r.source_no, t.table_no) << 16) | 65535 WHERE t.account = coalesce($2, t.account)), \
     ruled AS (INSERT INTO pg_temp.snapshot_expiry (snapshot, table_no, property, delay, pause, made) \
     SELECT s.name, coalesce(r.source_no, t.table_no), x.property, x.delay, x.pause, x.made \
     FROM taken AS s CROSS JOIN tables AS t LEFT JOIN respreads AS r ON r.table_no = t.table_no \
     JOIN expiry AS x ON x.table_no = t.table_no WHERE t.account = coalesce($2, t.account)), \
     set AS (INSERT INTO pg_temp.snapshot_properties (snapshot, account, properties) \
     SELECT s.name, p.account, p.properties FROM taken AS s CROSS JOIN service_properties AS p \
     WHERE p.account = coalesce($2, p.account)) SELECT name FROM taken";
/// $1 name.
pub(crate) const FIND: &str = "SELECT account FROM pg_temp.snapshots WHERE name = $1";
pub(crate) const NUMBERS: &str = "SELECT table_no FROM pg_temp.snapshot_tables WHERE snapshot = $1";
pub(crate) const LIST: &str = "SELECT name, account, taken FROM pg_temp.snapshots ORDER BY taken, name";
pub(crate) const DISCARD: &str = "WITH named AS (DELETE FROM pg_temp.snapshot_tables WHERE snapshot = $1), \
     filled AS (DELETE FROM pg_temp.snapshot_entities WHERE snapshot = $1), \
     ruled AS (DELETE FROM pg_temp.snapshot_expiry WHERE snapshot = $1), \
     set AS (DELETE FROM pg_temp.snapshot_properties WHERE snapshot = $1) \
     DELETE FROM pg_temp.snapshots WHERE name = $1 RETURNING name";

/// Every other statement uses one of the two, so it waits until we have committed.
pub(crate) const LOCK: &str = "LOCK TABLE tables, service_properties IN ACCESS EXCLUSIVE MODE";
/// $1 account or null, $2 time.
pub(crate) const RESET: &str = "WITH gone AS (DELETE FROM tables WHERE account = coalesce($1::text, account) \
     RETURNING table_no, spread), \
     gone_before AS (DELETE FROM deleted_tables WHERE account = coalesce($1, account) RETURNING table_no, spread), \
     unset AS (DELETE FROM service_properties WHERE account = coalesce($1, account)), \
     counted AS (INSERT INTO account_option_changes AS c (id, changes) VALUES (1, 1) \
     ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1) \
     INSERT INTO doomed (table_no, spread, deleted_at, due) SELECT table_no, spread, $2, $2 FROM gone \
     UNION ALL SELECT table_no, spread, $2, $2 FROM gone_before";
/// $1 name, $2 old numbers, $3 new ones, as parallel arrays.
pub(crate) const RESTORE_TABLES: &str = "INSERT INTO tables (table_no, account, name_lower, name, spread, policies, created) \
     SELECT u.new, s.account, s.name_lower, s.name, s.spread, s.policies, s.created \
     FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
     JOIN pg_temp.snapshot_tables AS s ON s.snapshot = $1 AND s.table_no = u.old";
pub(crate) const RESTORE_ENTITIES: &str = "INSERT INTO entities (bucket, pk, rk, modified, properties) \
     SELECT (u.new << 16) | (s.bucket & 65535), s.pk, s.rk, s.modified, s.properties \
     FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
     JOIN pg_temp.snapshot_entities AS s ON s.snapshot = $1 \
     AND s.bucket BETWEEN u.old << 16 AND (u.old << 16) | 65535";
/// Passes over the tables begin anew.
pub(crate) const RESTORE_EXPIRY: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     SELECT u.new, s.property, s.delay, s.pause, s.made, s.made, 0 \
     FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
     JOIN pg_temp.snapshot_expiry AS s ON s.snapshot = $1 AND s.table_no = u.old";
pub(crate) const RESTORE_PROPERTIES: &str = "INSERT INTO service_properties (account, properties) \
     SELECT account, properties FROM pg_temp.snapshot_properties WHERE snapshot = $1";

/// All except [`CREATE`].
pub(crate) const ALL: [&str; 12] = [
    HAS_SNAPSHOTS,
    TAKE,
    FIND,
    NUMBERS,
    LIST,
    DISCARD,
    LOCK,
    RESET,
    RESTORE_TABLES,
    RESTORE_ENTITIES,
    RESTORE_EXPIRY,
    RESTORE_PROPERTIES,
];
