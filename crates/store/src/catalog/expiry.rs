//! Expiry rules and the progress of expiry sweeps.

use crate::bucket::bucket;
use crate::catalog::session::{Backend, CatalogStore, SqlSession};
use crate::contract::load::stale_copies;
use crate::error::Code;
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::sql::{SqlRow, SqlText, sql};
use crate::{
    Expiry, ExpiryRule, ExpirySummary, Fault, SWEEP_RETRY_PAUSE, StoreResult, SweepState, TableExpiry,
};

/// Requires a lock on the table's row, as do all records that refer to a table by its name. Otherwise a respread
/// could renumber the table while this statement waits.
const SET: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     VALUES ($1, $2, $3, $4, $5, $5, 0) ON CONFLICT (table_no) DO UPDATE SET property = excluded.property, \
     delay = excluded.delay, pause = excluded.pause, made = excluded.made, due = excluded.due, began = NULL, \
     pk = NULL, rk = NULL, clean = NULL, expired = 0 RETURNING table_no";
const CLEAR: &str = "DELETE FROM expiry WHERE table_no = $1 RETURNING table_no";

macro_rules! expiries {
    ($rest:literal) => {
        concat!(
            "SELECT e.table_no, abs(t.spread), t.account, t.name, e.property, e.delay, e.pause, e.made, e.due, \
             e.began, e.pk, e.rk, e.clean, e.expired FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no ",
            $rest
        )
    };
}

const LIST: &str = expiries!("WHERE t.account = coalesce($1, t.account) ORDER BY t.account, t.name_lower");
/// $1 now, $2 the maximum pause in addition to the rule's interval. A due time that a clock ahead has recorded comes
/// first. Unrecorded sweeps as parallel arrays: $3 tables, $4 when their rules were set, $5 their due times.
const DUE: SqlText = SqlText::each(
    expiries!(
        "LEFT JOIN unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS u (table_no, made, due) \
         ON u.table_no = e.table_no AND u.made = e.made \
         WHERE (coalesce(u.due, e.due) <= $1 OR coalesce(u.due, e.due) > $1 + greatest(e.pause, $2)) AND t.spread > 0 \
         ORDER BY coalesce(u.due, e.due) <= $1, coalesce(u.due, e.due), e.table_no LIMIT 1"
    ),
    expiries!(
        "WHERE e.due <= $1 OR e.due > $1 + max(e.pause, $2) ORDER BY e.due <= $1, e.due, e.table_no LIMIT 1"
    ),
);
/// $1 now.
const SUMMARIZE: &str = "SELECT count(*), min(CASE WHEN e.clean <= $1 THEN e.clean ELSE e.made END + e.pause) \
     FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no";
/// $2 when the rule was set.
const RECORD: &str = "UPDATE expiry SET due = $3, began = $4, pk = $5, rk = $6, clean = $7, expired = $8 \
     WHERE table_no = $1 AND made = $2";
/// Deletes an entity on SQLite: $5 the table, $6 when its rule was set.
const DELETE: &str = "DELETE FROM entities WHERE bucket = $1 AND pk = $2 AND rk = $3 AND modified = $4 \
     AND EXISTS (SELECT 1 FROM tables WHERE table_no = $5) \
     AND EXISTS (SELECT 1 FROM expiry WHERE table_no = $5 AND made = $6) RETURNING bucket";
/// The rules of tables that no longer exist.
const FORGET_DELETED: &str =
    "DELETE FROM expiry WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = expiry.table_no)";
/// $1 the upper bound of the names of stale copies; $2 their version, the 13th character of a name.
const FORGET_STALE_MARKS: &str = "DELETE FROM copy_marks WHERE copy < $1 AND substr(copy, 13, 1) = $2";
/// Whether expired records exist.
const IS_ANY_STALE: &str = "SELECT 1 WHERE EXISTS (SELECT 1 FROM expiry WHERE table_no NOT IN (SELECT table_no FROM tables)) \
     OR EXISTS (SELECT 1 FROM copy_marks WHERE copy < $1 AND substr(copy, 13, 1) = $2)";

/// $1 holder, $2 now, $3 the end of the lease. The clocks of two servers may differ by the duration of a lease. If
/// the recorded end is even later, a clock was further ahead, and the statement replaces that end.
const LEAD: &str = "INSERT INTO upkeep_lease AS l (id, holder, until) VALUES (1, $1, $3) \
     ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until \
     WHERE l.holder = excluded.holder OR l.until <= $2 OR l.until > $3 + ($3 - $2) RETURNING id";
/// Whether a holder other than $1 has a current lease. $2 and $3 as above.
const IS_LED_BY_ANOTHER: &str =
    "SELECT holder FROM upkeep_lease WHERE holder <> $1 AND until > $2 AND until <= $3 + ($3 - $2)";

pub(super) const ALL: [&str; 10] = [
    SET,
    CLEAR,
    LIST,
    DUE.postgres,
    SUMMARIZE,
    RECORD,
    FORGET_DELETED,
    FORGET_STALE_MARKS,
    LEAD,
    IS_LED_BY_ANOTHER,
];

impl<S: CatalogStore> Expiry for S {
    async fn set_expiry(&self, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> StoreResult<()> {
        let (table, rule) = (table.into_owned(), rule.clone());
        let set = async move |session: &mut SqlSession<'_>| {
            let table_no = session.table_no(table.as_ref()).await?.ok_or(Code::TableNotFound)?;
            let ExpiryRule { property, delay, interval } = &rule;
            let set =
                sql(SET).bind(table_no).bind(property.as_deref()).bind(*delay).bind(*interval).bind(now);
            session.row(set).await.map(drop)
        };
        self.backend().transact(set).await
    }

    async fn clear_expiry(&self, table: TableRef<'_>) -> StoreResult<bool> {
        let table = table.into_owned();
        let clear = async move |session: &mut SqlSession<'_>| match session.table_no(table.as_ref()).await? {
            Some(table_no) => session.has_row(sql(CLEAR).bind(table_no)).await,
            None => Ok(false),
        };
        self.backend().transact(clear).await
    }

    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>> {
        self.backend().rows(sql(LIST).bind(account)).await?.iter().map(expiry).collect()
    }

    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary> {
        let row = self.backend().only_row(sql(SUMMARIZE).bind(now)).await?;
        Ok(ExpirySummary { tables: row.count(0)?, behind_since: row.time(1)? })
    }

    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>> {
        let unrecorded = match self.backend() {
            Backend::Postgres(store) => store.unrecorded_sweeps.all(),
            Backend::Sqlite(_) => Vec::new(),
        };
        let (mut tables, mut made, mut dues) = (Vec::new(), Vec::new(), Vec::new());
        for (table_no, since, sweep) in unrecorded {
            tables.push(table_no);
            made.push(since.raw());
            dues.push(sweep.due.raw());
        }
        let due = sql(DUE).bind(now).bind(SWEEP_RETRY_PAUSE).bind(tables).bind(made).bind(dues);
        let Some(row) = self.backend().row(due).await? else { return Ok(None) };
        let mut of = expiry(&row)?;
        if let Backend::Postgres(store) = self.backend()
            && let Some(sweep) = store.unrecorded_sweeps.of(of.table_no, of.made)
        {
            of.sweep = sweep;
        }
        Ok(Some(of))
    }

    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64> {
        if let Backend::Postgres(store) = self.backend() {
            return store.delete_unlocked(of, entities).await;
        }
        let (of, entities) = (of.clone(), entities.to_vec());
        let delete = async move |session: &mut SqlSession<'_>| {
            let mut deleted = 0;
            for (Key { partition, row }, version) in &entities {
                let bucket = bucket(of.table_no, of.spread, partition);
                let delete = sql(DELETE).bind(bucket).bind(partition).bind(row).bind(*version);
                deleted += u64::from(session.has_row(delete.bind(of.table_no).bind(of.made)).await?);
            }
            Ok(deleted)
        };
        self.backend().transact(delete).await
    }

    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()> {
        let SweepState { due, began, position, clean, expired } = sweep;
        let (pk, rk) = position.as_ref().map(|at| (at.partition.as_str(), at.row.as_str())).unzip();
        let record = sql(RECORD).bind(of.table_no).bind(of.made).bind(*due).bind(*began).bind(pk).bind(rk);
        let record = record.bind(*clean).bind(expired.cast_signed());
        let recorded = self.backend().write(record).await.map(drop);
        let Backend::Postgres(store) = self.backend() else { return recorded };
        let kept = || store.nodes.is_distributed().then(|| sweep.clone());
        store.unrecorded_sweeps.settle(recorded, (of.table_no, of.made), kept)
    }

    async fn forget_stale(&self, now: Ticks) -> StoreResult<()> {
        let (before, version) = stale_copies(now);
        let stale = |text: &'static str| sql(text).bind(&before).bind(version);
        // A commit of SQLite costs a sync, so this method writes only if there are stale records.
        if matches!(self.backend(), Backend::Sqlite(_))
            && self.backend().row(stale(IS_ANY_STALE)).await?.is_none()
        {
            return Ok(());
        }
        self.backend().write(FORGET_DELETED).await?;
        self.backend().write(stale(FORGET_STALE_MARKS)).await.map(drop)
    }

    async fn leads_upkeep(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool> {
        // Only one server may open a SQLite file.
        let Backend::Postgres(store) = self.backend() else { return Ok(true) };
        let lead = |text: &'static str| sql(text).bind(holder).bind(now).bind(until);
        let leads = match self.backend().write(lead(LEAD)).await {
            // A node is unreachable, so no other server can acquire the lease either. After the last lease ends, all
            // servers work and repeat some of each other's work.
            Err(_) if store.nodes.is_distributed() => {
                self.backend().row(lead(IS_LED_BY_ANOTHER)).await?.is_none()
            }
            taken => taken?,
        };
        if !leads {
            store.unrecorded_sweeps.clear();
        }
        Ok(leads)
    }
}

fn expiry(row: &SqlRow) -> StoreResult<TableExpiry> {
    let spread: i32 = row.get(1)?;
    Ok(TableExpiry {
        table_no: row.get(0)?,
        spread: u16::try_from(spread).map_err(|_| Fault::Other)?,
        account: row.get(2)?,
        table: row.get(3)?,
        rule: ExpiryRule { property: row.get(4)?, delay: row.get(5)?, interval: row.get(6)? },
        made: row.ticks(7)?,
        sweep: SweepState {
            due: row.ticks(8)?,
            began: row.time(9)?,
            position: row.key(10)?,
            clean: row.time(12)?,
            expired: row.count(13)?,
        },
    })
}
