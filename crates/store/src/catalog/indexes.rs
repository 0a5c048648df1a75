//! The catalog of property indexes. Each store builds the indexes themselves.

use crate::bucket::new_table_no;
use crate::catalog::session::{Backend, CatalogStore, SqlSession, TABLE_NO};
use crate::contract::deleted::KeptIndex;
use crate::contract::indexes::removable_until;
use crate::error::Code;
use crate::postgres::retry::retry;
use crate::postgres::statements::indexes::LOCK_TABLE;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::sql::{SqlText, counted_change, sql};
use crate::{
    AddIndexOutcome, BuiltIndex, IndexFigures, Indexes, MAX_INDEXES, MAX_TABLE_INDEXES, NewIndex,
    StoreResult, StoredIndex,
};

/// Locks a table to serialize the addition of indexes and respreads.
const LOCK: SqlText = SqlText::each(LOCK_TABLE, TABLE_NO);
/// $1 table number, $2 property, $3 kind.
const COUNT: &str = "SELECT count(*) FILTER (WHERE table_no = $1 AND property = $2 AND kind = $3), \
     count(*) FILTER (WHERE table_no = $1), count(*) FROM property_indexes WHERE state <> 2";
const ADD: SqlText = counted_change!(
    "property_index_changes",
    "INSERT INTO property_indexes (index_no, table_no, property, kind, state, changed) \
     VALUES ($1, $2, $3, $4, 0, $5) RETURNING index_no"
);
const DROP: SqlText = counted_change!(
    "property_index_changes",
    "UPDATE property_indexes SET state = 2, changed = $2 WHERE index_no = $1 AND state <> 2 RETURNING index_no"
);
/// An unused index, which was dropped by $1 or belongs to a deleted table.
const REMOVABLE: &str = "SELECT i.index_no FROM property_indexes AS i \
     WHERE (i.state = 2 AND i.changed <= $1) \
     OR NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = i.table_no) LIMIT 1";
/// Removes the leftovers of a table's former indexes instead of using them.
const DROP_ALL: SqlText = counted_change!(
    "property_index_changes",
    "UPDATE property_indexes SET state = 2, changed = $2 WHERE table_no = $1 AND state <> 2"
);

pub(super) const ALL: [&str; 9] = [
    StoredIndex::LIST,
    StoredIndex::WANTED,
    StoredIndex::COMPLETE.postgres,
    StoredIndex::FORGET.postgres,
    COUNT,
    ADD.postgres,
    DROP.postgres,
    REMOVABLE,
    DROP_ALL.postgres,
];

impl<S: CatalogStore> Indexes for S {
    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        let rows = self.backend().rows(StoredIndex::LIST).await?;
        rows.iter().filter_map(|row| StoredIndex::read(row).transpose()).collect()
    }

    async fn add_index(&self, index: NewIndex<'_>, now: Ticks) -> StoreResult<AddIndexOutcome> {
        let NewIndex { table, property, kind } = index;
        let (table, property) = (table.into_owned(), property.to_owned());
        let add = async move |session: &mut SqlSession<'_>| {
            let lock = sql(LOCK).bind(table.as_ref().account).bind(table.as_ref().name.lower());
            let locked = session.row(lock).await?.ok_or(Code::TableNotFound)?;
            let (table_no, spread): (i64, i32) = (locked.get(0)?, locked.get(1)?);
            if spread < 0 {
                return Ok(AddIndexOutcome::Respread);
            }
            let count = sql(COUNT).bind(table_no).bind(&property).bind(kind.name());
            let counted = session.only_row(count).await?;
            let (same, of_table, total): (i64, i64, i64) =
                (counted.get(0)?, counted.get(1)?, counted.get(2)?);
            if same > 0 {
                return Ok(AddIndexOutcome::Exists);
            }
            if of_table >= MAX_TABLE_INDEXES || total >= MAX_INDEXES {
                return Ok(AddIndexOutcome::TooMany);
            }
            let index_no = new_table_no();
            session
                .row(sql(ADD).bind(index_no).bind(table_no).bind(&property).bind(kind.name()).bind(now))
                .await?;
            Ok(AddIndexOutcome::Added(index_no))
        };
        self.backend().transact(add).await
    }

    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        match self.backend() {
            Backend::Postgres(store) => retry(|| store.build(index, now)).await,
            Backend::Sqlite(store) => store.build(index, now).await,
        }
    }

    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        let drop = || self.backend().write(sql(DROP).bind(index_no).bind(now));
        match self.backend() {
            Backend::Postgres(store) => {
                let is_dropped = drop().await?;
                if is_dropped {
                    store.cancel_dropped(index_no).await;
                }
                Ok(is_dropped)
            }
            Backend::Sqlite(store) => store.cancel_until_done(index_no, drop).await,
        }
    }

    async fn remove_index(&self, now: Ticks) -> StoreResult<bool> {
        let removable = self.backend().row(sql(REMOVABLE).bind(removable_until(now))).await?;
        let Some(row) = removable else { return Ok(false) };
        let index_no = row.get(0)?;
        match self.backend() {
            Backend::Postgres(store) => retry(|| store.remove(index_no)).await,
            Backend::Sqlite(store) => store.remove(index_no).await,
        }
    }

    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        match self.backend() {
            Backend::Postgres(store) => retry(|| store.figures(index)).await,
            Backend::Sqlite(store) => store.figures(index).await,
        }
    }
}

/// Requests the indexes of a restored table and the removal of its former indexes. Returns the number of indexes that
/// have no room.
pub(super) async fn restore(
    session: &mut SqlSession<'_>,
    table_no: i64,
    kept: &[KeptIndex],
    now: Ticks,
) -> StoreResult<usize> {
    session.row(sql(DROP_ALL).bind(table_no).bind(now)).await?;
    let total: i64 = session.only_row(sql(COUNT).bind(table_no).bind("").bind("")).await?.get(2)?;
    let room = usize::try_from(MAX_INDEXES - total).unwrap_or(0);
    for KeptIndex { property, kind } in kept.iter().take(room) {
        let add = sql(ADD).bind(new_table_no()).bind(table_no).bind(property).bind(kind);
        session.row(add.bind(now)).await?;
    }
    Ok(kept.len().saturating_sub(room))
}
