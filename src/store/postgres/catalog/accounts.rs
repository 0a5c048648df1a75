//! Accounts that were added by command.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::auth::seal::KeySlot;
use crate::model::Ticks;
use crate::store::postgres::fault::Effect;
use crate::store::postgres::rows::broken_row;
use crate::store::postgres::{PgStore, statements};
use crate::store::{AccountChange, Fault, StoreResult, StoredAccount};

impl PgStore {
    pub(crate) async fn count_account_changes(&self) -> StoreResult<i64> {
        let mut lease = self.pool.acquire_to_lock().await?;
        match lease.row(sqlx::query(statements::ACCOUNT_CHANGES), Effect::Undone).await? {
            Some(row) => Ok(row.try_get("changes").map_err(broken_row)?),
            None => Ok(0),
        }
    }

    pub(crate) async fn read_accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        let mut lease = self.pool.acquire_to_lock().await?;
        let rows = lease.rows(sqlx::query(statements::LIST_ACCOUNTS), Effect::Undone).await?;
        rows.iter().map(account).collect()
    }

    pub(crate) async fn try_change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        let query = match change {
            AccountChange::Add(account) => sqlx::query(statements::ADD_ACCOUNT)
                .bind(&account.name)
                .bind(&account.keys[0])
                .bind(&account.keys[1])
                .bind(account.disabled)
                .bind(account.created.raw())
                .bind(account.rotated[0].raw())
                .bind(account.rotated[1].raw()),
            AccountChange::Rotate { name, slot, was, sealed, now } => {
                let text = match slot {
                    KeySlot::First => statements::ROTATE_KEY1,
                    KeySlot::Second => statements::ROTATE_KEY2,
                };
                sqlx::query(text).bind(name).bind(was).bind(sealed).bind(now.raw())
            }
            AccountChange::Disable { name, disabled } => {
                sqlx::query(statements::DISABLE_ACCOUNT).bind(name).bind(disabled)
            }
            AccountChange::Remove { name } => sqlx::query(statements::REMOVE_ACCOUNT).bind(name),
            AccountChange::Reseal { seen, accounts } => {
                let key = |at: usize| accounts.iter().map(|a| a.keys[at].as_slice()).collect::<Vec<_>>();
                let names: Vec<_> = accounts.iter().map(|a| a.name.as_str()).collect();
                sqlx::query(statements::RESEAL_ACCOUNTS).bind(seen).bind(names).bind(key(0)).bind(key(1))
            }
        };
        let mut lease = self.pool.acquire_to_lock().await?;
        Ok(lease.row(query, Effect::Unknown).await?.is_some())
    }
}

pub(crate) fn account(row: &PgRow) -> StoreResult<StoredAccount> {
    let ticks = |name: &str| -> StoreResult<Ticks> {
        let raw = row.try_get(name).map_err(broken_row)?;
        Ok(Ticks::from_raw(raw).ok_or(Fault::Other)?)
    };
    Ok(StoredAccount {
        name: row.try_get("name").map_err(broken_row)?,
        keys: [row.try_get("key1").map_err(broken_row)?, row.try_get("key2").map_err(broken_row)?],
        disabled: row.try_get("disabled").map_err(broken_row)?,
        created: ticks("created")?,
        rotated: [ticks("rotated1")?, ticks("rotated2")?],
    })
}
