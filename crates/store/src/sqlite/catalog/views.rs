//! The statement that creates an SQL view of a table.

use rusqlite::{OptionalExtension, params};

use crate::error::Code;
use crate::protocol::model::TableRef;
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::view_text;
use crate::{SqlViews, StoreResult, ViewDefinition, ViewScript};

impl SqlViews for SqliteStore {
    async fn view_script(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
    ) -> StoreResult<Option<ViewScript>> {
        let found: Option<i64> = self.readers.with(|db| {
            db.prepare_cached("SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2")?
                .query_row(params![table.account, table.name.lower()], |row| row.get(0))
                .optional()
                .map(Ok)
        })?;
        let table_no = found.ok_or(Code::TableNotFound)?;
        let name = view_text::name(table.account, &view.table);
        let sql = view_text::script(view, table.account, table_no);
        Ok(Some(ViewScript { schema: None, name, sql }))
    }
}
