//! The indexes that operators have made.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::bucket::new_table_no;
use crate::contract::indexes::{MAX_INDEXES, MAX_TABLE_INDEXES};
use crate::error::Code;
use crate::postgres::PgStore;
use crate::postgres::fault::Effect;
use crate::postgres::rows::{broken_row, ticks};
use crate::postgres::statements::indexes as texts;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::{IndexKind, PropertyIndex};
use crate::{AddedIndex, Fault, IndexState, NewIndex, StoreResult, StoredIndex};

impl PgStore {
    pub(crate) async fn read_indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        let mut lease = self.nodes.acquire().await?;
        let rows = lease.rows(sqlx::query(texts::LIST), Effect::Undone).await?;
        let found: Vec<Option<StoredIndex>> = rows.iter().map(stored).collect::<StoreResult<_>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(crate) async fn try_add_index(&self, index: NewIndex<'_>, now: Ticks) -> StoreResult<AddedIndex> {
        let NewIndex { table, property, kind } = index;
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        lease.begin().await?;
        let table = sqlx::query(texts::LOCK_TABLE).bind(table.account).bind(table.name.lower());
        let Some(row) = lease.row(table, Effect::Undone).await? else {
            lease.roll_back().await;
            return Err(Code::TableNotFound.into());
        };
        let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
        if row.try_get::<i32, _>("spread").map_err(broken_row)? < 0 {
            lease.roll_back().await;
            return Ok(AddedIndex::Respread);
        }
        let count = sqlx::query(texts::COUNT).bind(table_no).bind(property).bind(kind.name());
        let counted = lease.row(count, Effect::Undone).await?.ok_or(Fault::Other)?;
        let count = |column: &str| counted.try_get::<i64, _>(column).map_err(broken_row);
        let (same, of_table, total) = (count("same")?, count("of_table")?, count("total")?);
        if same > 0 || of_table >= MAX_TABLE_INDEXES || total >= MAX_INDEXES {
            lease.roll_back().await;
            return Ok(if same > 0 { AddedIndex::Exists } else { AddedIndex::TooMany });
        }
        let index_no = new_table_no();
        let add = sqlx::query(texts::ADD).bind(index_no).bind(table_no).bind(property).bind(kind.name());
        lease.row(add.bind(now.raw()), Effect::Undone).await?;
        lease.commit().await?;
        Ok(AddedIndex::Added(index_no))
    }

    pub(crate) async fn mark_dropped(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        let drop = sqlx::query(texts::DROP).bind(index_no).bind(now.raw());
        Ok(lease.row(drop, Effect::Unknown).await?.is_some())
    }
}

/// `None` for a kind of a newer version, and for an index that is to be removed.
pub(crate) fn stored(row: &PgRow) -> StoreResult<Option<StoredIndex>> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(broken_row);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(broken_row);
    let state: i32 = row.try_get("state").map_err(broken_row)?;
    let (Ok(kind), Some(state)) = (text("kind")?.parse::<IndexKind>(), IndexState::read(state.into())) else {
        return Ok(None);
    };
    let (index_no, table_no, property) = (number("index_no")?, number("table_no")?, text("property")?);
    let index = PropertyIndex { index_no, table_no, property, kind };
    let changed = ticks(number("changed")?)?;
    Ok(Some(StoredIndex { account: text("account")?, table: text("name")?, index, state, changed }))
}
