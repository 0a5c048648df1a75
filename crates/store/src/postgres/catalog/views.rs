//! Statements that create SQL views of tables.

use crate::error::Code;
use crate::postgres::PgStore;
use crate::postgres::fault::Effect;
use crate::postgres::retry::retry;
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::view::{ViewSource, script};
use crate::postgres::statements::{RESOLVE_TABLE, operator::HAS_SCHEMA};
use crate::protocol::model::TableRef;
use crate::{SqlViews, StoreResult, ViewDefinition, ViewScript};

impl SqlViews for PgStore {
    async fn view_script(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
    ) -> StoreResult<Option<ViewScript>> {
        retry(|| async {
            let mut lease = self.nodes.acquire().await?;
            let resolve = sqlx::query(RESOLVE_TABLE).bind(table.account).bind(table.name.lower());
            let row = lease.row(resolve, Effect::Undone).await?.ok_or(Code::TableNotFound)?;
            let table_id = TableId::read(&row)?;
            if table_id.is_respread() {
                return Ok(None);
            }
            let look = sqlx::query(HAS_SCHEMA).bind(table.account);
            let source = ViewSource {
                schema: self.search_path.schema.as_deref(),
                account: table.account,
                table_no: table_id.table_no,
                buckets: table_id.buckets().collect(),
                has_account_schema: lease.row(look, Effect::Undone).await?.is_some(),
            };
            let sql = script(view, &source);
            Ok(Some(ViewScript { schema: Some(table.account.to_owned()), name: view.table.clone(), sql }))
        })
        .await
    }
}
