//! Marks: the progress of copies. Each store writes the copied entities itself.

use std::sync::Arc;

use crate::catalog::session::{Backend, CatalogStore};
use crate::protocol::model::TableRef;
use crate::sql::sql;
use crate::{Fault, Load, LoadMark, Loads, StoreResult};

const MARKS: &str = "SELECT range_no, pk, rk, written, unchanged, rejected FROM copy_marks WHERE copy = $1";
const FORGET_MARKS: &str = "DELETE FROM copy_marks WHERE copy = $1";

pub(super) const ALL: [&str; 2] = [MARKS, FORGET_MARKS];

impl<S: CatalogStore> Loads for S {
    async fn load(&self, table: TableRef<'_>, load: &Arc<Load>) -> StoreResult<bool> {
        match self.backend() {
            Backend::Postgres(store) => store.load_all(table, load).await,
            Backend::Sqlite(store) => store.load_all(table, load).await,
        }
    }

    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>> {
        let rows = self.backend().rows(sql(MARKS).bind(copy)).await?;
        let marks = rows.iter().map(|row| {
            let counts = [row.count(3)?, row.count(4)?, row.count(5)?];
            let reached = row.key(1)?.ok_or(Fault::Other)?;
            Ok(LoadMark { copy: copy.to_owned(), range: row.get(0)?, reached, counts })
        });
        marks.collect()
    }

    async fn forget_marks(&self, copy: &str) -> StoreResult<()> {
        self.backend().write(sql(FORGET_MARKS).bind(copy)).await.map(drop)
    }
}
