//! The accounts that operators have added.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::postgres::fault::Effect;
use crate::postgres::retry::retry;
use crate::postgres::rows::{JsonText, StoredColumn, broken_row};
use crate::postgres::{PgStore, statements};
use crate::protocol::auth::seal::KeySlot;
use crate::protocol::model::Ticks;
use crate::{AccountChange, AccountOptions, ChangeCounts, Fault, StoreResult, StoredAccount, StoredAccounts};

impl StoredAccounts for PgStore {
    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        retry(|| self.count_account_changes()).await
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        retry(|| self.read_accounts()).await
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        retry(|| self.read_account_options()).await
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        retry(|| self.try_change_account(change)).await
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        retry(|| self.read_properties(account)).await
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        retry(|| self.merge_properties(account, members)).await
    }
}

impl PgStore {
    pub(crate) async fn read_properties(&self, account: &str) -> StoreResult<Option<String>> {
        let mut lease = self.nodes.acquire().await?;
        let query = sqlx::query(statements::READ_PROPERTIES).bind(account);
        let Some(row) = lease.row(query, Effect::Undone).await? else { return Ok(None) };
        let StoredColumn(text) = row.try_get("properties").map_err(broken_row)?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) async fn merge_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        let query = sqlx::query(statements::MERGE_PROPERTIES).bind(account).bind(JsonText(members));
        lease.row(query, Effect::Unknown).await?;
        Ok(())
    }

    pub(crate) async fn count_account_changes(&self) -> StoreResult<ChangeCounts> {
        let mut lease = self.nodes.acquire().await?;
        let row = lease.row(sqlx::query(statements::ACCOUNT_CHANGES), Effect::Undone).await?;
        let row = row.ok_or(Fault::Other)?;
        let count = |name: &str| row.try_get(name).map_err(broken_row);
        Ok(ChangeCounts {
            accounts: count("accounts")?,
            options: count("options")?,
            indexes: count("indexes")?,
        })
    }

    pub(crate) async fn read_accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        let mut lease = self.nodes.acquire().await?;
        let rows = lease.rows(sqlx::query(statements::LIST_ACCOUNTS), Effect::Undone).await?;
        rows.iter().map(account).collect()
    }

    pub(crate) async fn read_account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        let mut lease = self.nodes.acquire().await?;
        let rows = lease.rows(sqlx::query(statements::LIST_ACCOUNT_OPTIONS), Effect::Undone).await?;
        rows.iter().map(options).collect()
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
            AccountChange::Limit { name, requests_per_second } => {
                sqlx::query(statements::LIMIT_ACCOUNT).bind(name).bind(requests_per_second.map(i64::from))
            }
            AccountChange::Queries { name, extended } => {
                sqlx::query(statements::SET_ACCOUNT_QUERIES).bind(name).bind(extended)
            }
            AccountChange::Remove { name } => sqlx::query(statements::REMOVE_ACCOUNT).bind(name),
            AccountChange::Reseal { seen, accounts } => {
                let key = |at: usize| accounts.iter().map(|a| a.keys[at].as_slice()).collect::<Vec<_>>();
                let names: Vec<_> = accounts.iter().map(|a| a.name.as_str()).collect();
                sqlx::query(statements::RESEAL_ACCOUNTS).bind(seen).bind(names).bind(key(0)).bind(key(1))
            }
        };
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        Ok(lease.row(query, Effect::Unknown).await?.is_some())
    }
}

fn options(row: &PgRow) -> StoreResult<AccountOptions> {
    let properties: Option<StoredColumn<'_>> = row.try_get("properties").map_err(broken_row)?;
    let limit: Option<i64> = row.try_get("requests_per_second").map_err(broken_row)?;
    Ok(AccountOptions {
        name: row.try_get("name").map_err(broken_row)?,
        properties: properties.map(|StoredColumn(text)| text.to_owned()),
        requests_per_second: limit.map(u32::try_from).transpose().map_err(|_| Fault::Other)?,
        extended_queries: row.try_get("extended").map_err(broken_row)?,
    })
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
