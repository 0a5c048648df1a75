//! Snapshots in temporary tables of one session. On SQLite, this is the writer's session. The snapshots are not part
//! of the schema, and end with the session.

use crate::bucket::new_table_no;
use crate::catalog::session::{Backend, CatalogStore, SqlSession, run_now};
use crate::contract::reset::{MAX_SNAPSHOTS, StoreSnapshot};
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::Effect;
use crate::postgres::retry::retry;
use crate::protocol::model::Ticks;
use crate::sql::{SqlText, sql};
use crate::{Reset, StoreResult};

const HAS_SNAPSHOTS: &str =
    "SELECT 1 FROM pg_class WHERE relname = $1 AND relnamespace = pg_my_temp_schema()";
/// For PostgreSQL. [`HAS_SNAPSHOTS`] checks for the last table.
const CREATE: [&str; 5] = [
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
const CREATE_IN_SQLITE: &str = "
CREATE TEMP TABLE IF NOT EXISTS snapshots (name TEXT PRIMARY KEY, account TEXT, taken INTEGER NOT NULL) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_tables (
    snapshot TEXT NOT NULL, table_no INTEGER NOT NULL, account TEXT NOT NULL, name_lower TEXT NOT NULL,
    name TEXT NOT NULL, spread INTEGER NOT NULL, policies TEXT, created INTEGER NOT NULL,
    PRIMARY KEY (snapshot, table_no)) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_entities (
    snapshot TEXT NOT NULL, bucket INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL,
    modified INTEGER NOT NULL, properties TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS temp.snapshot_entities_by_bucket ON snapshot_entities (snapshot, bucket);
CREATE TEMP TABLE IF NOT EXISTS snapshot_expiry (
    snapshot TEXT NOT NULL, table_no INTEGER NOT NULL, property TEXT, delay INTEGER NOT NULL,
    pause INTEGER NOT NULL, made INTEGER NOT NULL, PRIMARY KEY (snapshot, table_no)) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_properties (
    snapshot TEXT NOT NULL, account TEXT NOT NULL, properties TEXT NOT NULL,
    PRIMARY KEY (snapshot, account)) STRICT;
";

/// $1 name, $2 account or null, $3 time, $4 maximum number of snapshots. On PostgreSQL, this is a single statement,
/// so it sees one state. Each table's spread determines its bucket ranges.
const TAKE: SqlText = SqlText {
    postgres: "WITH taken AS (INSERT INTO pg_temp.snapshots (name, account, taken) \
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
         WHERE p.account = coalesce($2, p.account)) SELECT name FROM taken",
    sqlite: "INSERT INTO temp.snapshots (name, account, taken) \
         SELECT $1, $2, $3 WHERE (SELECT count(*) FROM temp.snapshots) < $4 RETURNING name",
    then: &[
        "INSERT INTO temp.snapshot_tables (snapshot, table_no, account, name_lower, name, spread, policies, created) \
         SELECT $1, table_no, account, name_lower, name, spread, policies, created FROM main.tables \
         WHERE account = coalesce($2, account)",
        "INSERT INTO temp.snapshot_entities (snapshot, bucket, pk, rk, modified, properties) \
         SELECT $1, e.bucket, e.pk, e.rk, e.modified, e.properties \
         FROM main.tables AS t JOIN main.entities AS e ON e.bucket = t.table_no << 16 \
         WHERE t.account = coalesce($2, t.account)",
        "INSERT INTO temp.snapshot_expiry (snapshot, table_no, property, delay, pause, made) \
         SELECT $1, x.table_no, x.property, x.delay, x.pause, x.made \
         FROM main.tables AS t JOIN main.expiry AS x ON x.table_no = t.table_no \
         WHERE t.account = coalesce($2, t.account)",
        "INSERT INTO temp.snapshot_properties (snapshot, account, properties) \
         SELECT $1, account, properties FROM main.service_properties WHERE account = coalesce($2, account)",
    ],
};
/// $1 name.
const FIND: &str = "SELECT account FROM snapshots WHERE name = $1";
const NUMBERS: &str = "SELECT table_no FROM snapshot_tables WHERE snapshot = $1";
const LIST: &str = "SELECT name, account, taken FROM snapshots ORDER BY taken, name";
const DISCARD: SqlText = SqlText {
    postgres: "WITH named AS (DELETE FROM pg_temp.snapshot_tables WHERE snapshot = $1), \
         filled AS (DELETE FROM pg_temp.snapshot_entities WHERE snapshot = $1), \
         ruled AS (DELETE FROM pg_temp.snapshot_expiry WHERE snapshot = $1), \
         set AS (DELETE FROM pg_temp.snapshot_properties WHERE snapshot = $1) \
         DELETE FROM pg_temp.snapshots WHERE name = $1 RETURNING name",
    sqlite: "DELETE FROM temp.snapshots WHERE name = $1 RETURNING name",
    then: &[
        "DELETE FROM temp.snapshot_tables WHERE snapshot = $1",
        "DELETE FROM temp.snapshot_entities WHERE snapshot = $1",
        "DELETE FROM temp.snapshot_expiry WHERE snapshot = $1",
        "DELETE FROM temp.snapshot_properties WHERE snapshot = $1",
    ],
};
/// Every other PostgreSQL statement uses one of these two tables, so it waits for the commit.
const LOCK: SqlText =
    SqlText::each("LOCK TABLE tables, service_properties IN ACCESS EXCLUSIVE MODE", "SELECT 1");
/// $1 account or null, $2 time.
const RESET: SqlText = SqlText {
    postgres: "WITH gone AS (DELETE FROM tables WHERE account = coalesce($1::text, account) \
         RETURNING table_no, spread), \
         gone_before AS (DELETE FROM deleted_tables WHERE account = coalesce($1, account) RETURNING table_no, spread), \
         unset AS (DELETE FROM service_properties WHERE account = coalesce($1, account)), \
         counted AS (INSERT INTO account_option_changes AS c (id, changes) VALUES (1, 1) \
         ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1) \
         INSERT INTO doomed (table_no, spread, deleted_at, due) SELECT table_no, spread, $2, $2 FROM gone \
         UNION ALL SELECT table_no, spread, $2, $2 FROM gone_before",
    sqlite: "INSERT INTO account_option_changes (id, changes) VALUES (1, 1) \
         ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
    then: &[
        "INSERT INTO doomed (table_no, spread, deleted_at, due) \
         SELECT table_no, spread, $2, $2 FROM main.tables WHERE account = coalesce($1, account) \
         UNION ALL SELECT table_no, spread, $2, $2 FROM main.deleted_tables WHERE account = coalesce($1, account)",
        "DELETE FROM main.tables WHERE account = coalesce($1, account)",
        "DELETE FROM main.deleted_tables WHERE account = coalesce($1, account)",
        "DELETE FROM main.service_properties WHERE account = coalesce($1, account)",
    ],
};
/// $1 name; $2 old and $3 new numbers, as parallel arrays. Expiry sweeps of the tables start over.
const RESTORE: [SqlText; 3] = [
    SqlText::each(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, policies, created) \
         SELECT u.new, s.account, s.name_lower, s.name, s.spread, s.policies, s.created \
         FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
         JOIN pg_temp.snapshot_tables AS s ON s.snapshot = $1 AND s.table_no = u.old",
        "INSERT INTO main.tables (table_no, account, name_lower, name, spread, policies, created) \
         SELECT n.value, s.account, s.name_lower, s.name, s.spread, s.policies, s.created \
         FROM json_each($2) AS o CROSS JOIN json_each($3) AS n CROSS JOIN temp.snapshot_tables AS s \
         WHERE n.key = o.key AND s.snapshot = $1 AND s.table_no = o.value",
    ),
    SqlText::each(
        "INSERT INTO entities (bucket, pk, rk, modified, properties) \
         SELECT (u.new << 16) | (s.bucket & 65535), s.pk, s.rk, s.modified, s.properties \
         FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
         JOIN pg_temp.snapshot_entities AS s ON s.snapshot = $1 \
         AND s.bucket BETWEEN u.old << 16 AND (u.old << 16) | 65535",
        "INSERT INTO main.entities (bucket, pk, rk, modified, properties) \
         SELECT n.value << 16, s.pk, s.rk, s.modified, s.properties \
         FROM json_each($2) AS o CROSS JOIN json_each($3) AS n CROSS JOIN temp.snapshot_entities AS s \
         WHERE n.key = o.key AND s.snapshot = $1 AND s.bucket = o.value << 16",
    ),
    SqlText::each(
        "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
         SELECT u.new, s.property, s.delay, s.pause, s.made, s.made, 0 \
         FROM unnest($2::bigint[], $3::bigint[]) AS u (old, new) \
         JOIN pg_temp.snapshot_expiry AS s ON s.snapshot = $1 AND s.table_no = u.old",
        "INSERT INTO main.expiry (table_no, property, delay, pause, made, due, expired) \
         SELECT n.value, s.property, s.delay, s.pause, s.made, s.made, 0 \
         FROM json_each($2) AS o CROSS JOIN json_each($3) AS n CROSS JOIN temp.snapshot_expiry AS s \
         WHERE n.key = o.key AND s.snapshot = $1 AND s.table_no = o.value",
    ),
];
const RESTORE_PROPERTIES: &str = "INSERT INTO service_properties (account, properties) \
     SELECT account, properties FROM snapshot_properties WHERE snapshot = $1";

/// All statements except those that create tables.
pub(super) const ALL: [&str; 12] = [
    HAS_SNAPSHOTS,
    TAKE.postgres,
    FIND,
    NUMBERS,
    LIST,
    DISCARD.postgres,
    LOCK.postgres,
    RESET.postgres,
    RESTORE[0].postgres,
    RESTORE[1].postgres,
    RESTORE[2].postgres,
    RESTORE_PROPERTIES,
];

impl<S: CatalogStore> Reset for S {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        let account = account.map(str::to_owned);
        let reset = async move |session: &mut SqlSession<'_>| empty(session, account.as_deref(), now).await;
        self.backend().transact(reset).await
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        let take = sql(TAKE).bind(name).bind(account).bind(now).bind(MAX_SNAPSHOTS as i64);
        self.backend()
            .with_snapshots(async move |session: &mut SqlSession<'_>| session.has_row(take.clone()).await)
            .await
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        let name = name.to_owned();
        let restore = async move |session: &mut SqlSession<'_>| {
            let Some(found) = session.rows(sql(FIND).bind(&name)).await?.pop() else { return Ok(false) };
            let account: Option<String> = found.get(0)?;
            if let SqlSession::Postgres(lease) = session {
                lease.begin().await?;
            }
            let restored = put_back(session, &name, account.as_deref(), now).await;
            if let SqlSession::Postgres(lease) = session {
                match restored {
                    Ok(()) => lease.commit().await?,
                    // An error would end the session with all its snapshots.
                    Err(_) => lease.roll_back().await,
                }
            }
            restored.map(|()| true)
        };
        self.backend().with_snapshots(restore).await
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        let discard = sql(DISCARD).bind(name);
        self.backend().with_snapshots(async move |session| session.has_row(discard.clone()).await).await
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        let rows = self.backend().with_snapshots(async |session| session.rows(LIST).await).await?;
        let snapshots = rows
            .iter()
            .map(|row| Ok(StoreSnapshot { name: row.get(0)?, account: row.get(1)?, taken: row.ticks(2)? }));
        snapshots.collect()
    }
}

impl Backend<'_> {
    /// Runs work in the session of the snapshots. A lost connection is replaced by a new session without snapshots.
    async fn with_snapshots<T: Send + 'static>(
        self,
        work: impl AsyncFn(&mut SqlSession<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        match self {
            Backend::Postgres(store) => {
                Box::pin(retry(|| async {
                    let mut lease = store.snapshots.acquire().await?;
                    create_tables(&mut lease).await?;
                    work(&mut SqlSession::Postgres(&mut lease)).await
                }))
                .await
            }
            Backend::Sqlite(store) => {
                let run = move |db: &mut rusqlite::Connection| {
                    db.execute_batch(CREATE_IN_SQLITE)?;
                    run_now(db, &work)
                };
                store.writer.submit(run).await
            }
        }
    }
}

async fn create_tables(lease: &mut Lease) -> StoreResult<()> {
    let known = sqlx::query(HAS_SNAPSHOTS).bind("snapshots");
    if lease.row(known, Effect::Undone).await?.is_none() {
        for text in CREATE {
            lease.row(sqlx::query(text), Effect::Unknown).await?;
        }
    }
    Ok(())
}

async fn empty(session: &mut SqlSession<'_>, account: Option<&str>, now: Ticks) -> StoreResult<()> {
    session.row(LOCK).await?;
    session.row(sql(RESET).bind(account).bind(now)).await.map(drop)
}

async fn put_back(
    session: &mut SqlSession<'_>,
    name: &str,
    account: Option<&str>,
    now: Ticks,
) -> StoreResult<()> {
    empty(session, account, now).await?;
    let rows = session.rows(sql(NUMBERS).bind(name)).await?;
    let old: Vec<i64> = rows.iter().map(|row| row.get(0)).collect::<StoreResult<_>>()?;
    let new: Vec<i64> = old.iter().map(|_| new_table_no()).collect();
    for text in RESTORE {
        session.row(sql(text).bind(name).bind(old.clone()).bind(new.clone())).await?;
    }
    session.row(sql(RESTORE_PROPERTIES).bind(name)).await.map(drop)
}
