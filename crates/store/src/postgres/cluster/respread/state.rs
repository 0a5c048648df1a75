//! Respread state, stored in the database so that any process can resume the respread.
//!
//! Every change of the state gives the table a new number in `tables`. All statements check that number, so a server
//! notices the change with its next statement, whatever it has cached.

use sqlx::{Connection, PgConnection};

use super::outcome::{RespreadError, RespreadResult};
use crate::bucket::new_table_no;
use crate::contract::cluster::COLOCATED;
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::{Key, TableRef, Ticks};

#[derive(Debug, Clone)]
pub(crate) struct RespreadState {
    pub table_no: i64,
    /// The layout from which the table is served.
    pub source: TableId,
    /// The layout to which the table is copied.
    pub target: TableId,
    pub position: CopyPosition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyPosition {
    /// Index of the bucket in the source.
    pub share: usize,
    /// Lower bound of the next key.
    pub key: Key,
}

impl CopyPosition {
    /// The beginning of a source bucket.
    pub(crate) fn of_share(share: usize) -> Self {
        Self { share, key: Key { partition: String::new(), row: String::new() } }
    }

    /// Returns the position of the next page: this key in the same bucket, or the start of the next bucket. `None`
    /// after the last bucket.
    pub(crate) fn next(&self, layout: TableId, key: Option<Key>) -> Option<Self> {
        let next_bucket =
            || (self.share + 1 < usize::from(layout.spread)).then(|| Self::of_share(self.share + 1));
        key.map_or_else(next_bucket, |key| Some(Self { share: self.share, key }))
    }
}

pub(crate) enum RespreadStart {
    /// The table already has this spread and is not being respread.
    AlreadyThere,
    /// This call has started the respread.
    Started(RespreadState),
    /// An earlier call had started the respread.
    Resumed(RespreadState),
}

/// Starts a respread, or finds an earlier one.
pub(crate) async fn begin(
    db: &mut PgConnection,
    table: TableRef<'_>,
    spread: u16,
) -> Result<RespreadStart, RespreadError> {
    let mut transaction = db.begin().await?;
    let (table_no, old_spread) = locked(&mut transaction, table).await?;
    if old_spread < 0 {
        let state = find(&mut transaction, table_no).await?;
        return match state.target.spread == spread {
            true => Ok(RespreadStart::Resumed(state)),
            false => Err(RespreadError::OtherSpread(state.target.spread)),
        };
    }
    let source = TableId::new(table_no, u16::try_from(old_spread).map_err(|_| RespreadError::Broken)?);
    if source.spread == spread {
        return Ok(RespreadStart::AlreadyThere);
    }
    refuse_followers(&mut transaction, table_no).await?;
    let state = RespreadState {
        table_no: new_table_no(),
        source,
        target: TableId::new(new_table_no(), spread),
        position: CopyPosition::of_share(0),
    };
    renumber(&mut transaction, table_no, state.table_no, -old_spread).await?;
    sqlx::query(texts::START)
        .bind(state.table_no)
        .bind(source.table_no)
        .bind(i32::from(source.spread))
        .bind(state.target.table_no)
        .bind(i32::from(spread))
        .bind("")
        .execute(&mut *transaction)
        .await?;
    set_buckets(&mut transaction, source, Some(state.table_no)).await?;
    set_buckets(&mut transaction, state.target, None).await?;
    transaction.commit().await?;
    Ok(RespreadStart::Started(state))
}

/// Rejects a table with an index or a view, which cannot follow the table to other buckets.
async fn refuse_followers(db: &mut PgConnection, table_no: i64) -> Result<(), RespreadError> {
    if sqlx::query_scalar(texts::HAS_INDEX).bind(table_no).fetch_one(&mut *db).await? {
        return Err(RespreadError::HasIndex);
    }
    let view = sqlx::query_scalar(texts::VIEW_OF).bind(table_no).bind(COLOCATED[0]).fetch_optional(db);
    view.await?.map_or(Ok(()), |name| Err(RespreadError::HasView(name)))
}

/// Finds an earlier respread.
pub(crate) async fn begun(
    db: &mut PgConnection,
    table: TableRef<'_>,
) -> Result<RespreadState, RespreadError> {
    let mut transaction = db.begin().await?;
    let (table_no, spread) = locked(&mut transaction, table).await?;
    match spread < 0 {
        true => find(&mut transaction, table_no).await,
        false => Err(RespreadError::NotBegun),
    }
}

async fn locked(db: &mut PgConnection, table: TableRef<'_>) -> Result<(i64, i32), RespreadError> {
    let lock = sqlx::query_as(statements::indexes::LOCK_TABLE).bind(table.account).bind(table.name.lower());
    let missing = || RespreadError::NoTable(table.name.as_given().to_owned(), table.account.to_owned());
    lock.fetch_optional(db).await?.ok_or_else(missing)
}

async fn find(db: &mut PgConnection, table_no: i64) -> Result<RespreadState, RespreadError> {
    let found = sqlx::query_as(texts::FIND).bind(table_no).fetch_optional(db).await?;
    let (source, source_spread, target, target_spread, share, partition, row): (
        i64,
        i32,
        i64,
        i32,
        i32,
        _,
        _,
    ) = found.ok_or(RespreadError::Broken)?;
    let layout = |number, spread: i32| {
        u16::try_from(spread).map(|spread| TableId::new(number, spread)).map_err(|_| RespreadError::Broken)
    };
    Ok(RespreadState {
        table_no,
        source: layout(source, source_spread)?,
        target: layout(target, target_spread)?,
        position: CopyPosition {
            share: usize::try_from(share).map_err(|_| RespreadError::Broken)?,
            key: Key { partition, row },
        },
    })
}

pub(crate) async fn save_position(db: &mut PgConnection, state: &RespreadState) -> RespreadResult {
    let CopyPosition { share, key } = &state.position;
    let save = sqlx::query(texts::SAVE_POSITION)
        .bind(state.table_no)
        .bind(i32::try_from(*share).unwrap_or(i32::MAX))
        .bind(&key.partition)
        .bind(&key.row);
    match save.execute(db).await?.rows_affected() {
        0 => Err(RespreadError::Deleted),
        _ => Ok(()),
    }
}

/// Gives the table a new number, so that changes under the former number can be copied.
pub(crate) async fn next_number(db: &mut PgConnection, state: &mut RespreadState) -> RespreadResult {
    let next = new_table_no();
    let mut transaction = db.begin().await?;
    renumber(&mut transaction, state.table_no, next, -i32::from(state.source.spread)).await?;
    sqlx::query(texts::RENUMBER_RESPREAD).bind(state.table_no).bind(next).execute(&mut *transaction).await?;
    set_buckets(&mut transaction, state.source, Some(next)).await?;
    transaction.commit().await?;
    state.table_no = next;
    Ok(())
}

/// Serves the table from the target, and schedules a purge of the source.
pub(crate) async fn publish(db: &mut PgConnection, state: &RespreadState, now: Ticks) -> RespreadResult {
    settle(db, state, state.target, state.source, now).await
}

/// Keeps serving the table from the source, and schedules a purge of the target.
pub(crate) async fn give_up(db: &mut PgConnection, state: &RespreadState, now: Ticks) -> RespreadResult {
    settle(db, state, state.source, state.target, now).await?;
    set_buckets(db, state.source, None).await
}

async fn settle(
    db: &mut PgConnection,
    state: &RespreadState,
    kept: TableId,
    purged: TableId,
    now: Ticks,
) -> RespreadResult {
    renumber(db, state.table_no, kept.table_no, i32::from(kept.spread)).await?;
    sqlx::query(texts::FORGET).bind(state.table_no).execute(&mut *db).await?;
    let doom = sqlx::query(statements::DOOM_TABLE).bind(purged.table_no).bind(i32::from(purged.spread));
    doom.bind(now.raw()).execute(db).await?;
    Ok(())
}

/// # Errors
/// [`RespreadError::Deleted`] if no table has the former number.
async fn renumber(db: &mut PgConnection, former: i64, next: i64, spread: i32) -> RespreadResult {
    let table = sqlx::query(texts::RENUMBER_TABLE).bind(former).bind(next).bind(spread);
    if table.execute(&mut *db).await?.rows_affected() == 0 {
        return Err(RespreadError::Deleted);
    }
    sqlx::query(texts::RENUMBER_EXPIRY).bind(former).bind(next).execute(db).await?;
    Ok(())
}

async fn set_buckets(db: &mut PgConnection, of: TableId, table_no: Option<i64>) -> RespreadResult {
    for bucket in of.buckets() {
        sqlx::query(texts::SET_BUCKET).bind(bucket).bind(table_no).execute(&mut *db).await?;
    }
    Ok(())
}
