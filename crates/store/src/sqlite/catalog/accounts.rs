//! The accounts that operators have added.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::protocol::auth::seal::KeySlot;
use crate::sqlite::SqliteStore;
use crate::sqlite::rows::{Sqlite, ticks};
use crate::{
    AccountChange, AccountOptions, ChangeCounts, Fault, Resealed, StoreResult, StoredAccount, StoredAccounts,
};

impl StoredAccounts for SqliteStore {
    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        self.readers.with(|db| changes(db).map(Ok))
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        self.readers.with(|db| list(db).map(Ok))
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        self.readers.with(|db| options(db).map(Ok))
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        let change = change.clone();
        self.writer.submit(move |db| apply(db, &change).map(Ok)).await
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        self.readers.with(|db| read_properties(db, account).map(Ok))
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        let (account, members) = (account.to_owned(), members.to_owned());
        self.writer.submit(move |db| merge_properties(db, &account, &members)).await
    }
}

pub(crate) fn changes(db: &Connection) -> Sqlite<ChangeCounts> {
    db.prepare_cached(
        "SELECT coalesce((SELECT changes FROM account_changes), 0),
                coalesce((SELECT changes FROM account_option_changes), 0),
                coalesce((SELECT changes FROM property_index_changes), 0)",
    )?
    .query_row([], |row| {
        Ok(ChangeCounts { accounts: row.get(0)?, options: row.get(1)?, indexes: row.get(2)? })
    })
}

pub(crate) fn list(db: &Connection) -> Sqlite<Vec<StoredAccount>> {
    let mut accounts = db.prepare_cached(
        "SELECT name, key1, key2, disabled, created, rotated1, rotated2 FROM accounts ORDER BY name",
    )?;
    accounts.query_map([], account)?.collect()
}

pub(crate) fn options(db: &Connection) -> Sqlite<Vec<AccountOptions>> {
    let mut options = db.prepare_cached(
        "SELECT coalesce(p.account, l.name, q.name), p.properties, l.requests_per_second, q.extended
         FROM service_properties AS p FULL JOIN account_limits AS l ON l.name = p.account
         FULL JOIN account_queries AS q ON q.name = coalesce(p.account, l.name)",
    )?;
    let read = |row: &Row<'_>| {
        Ok(AccountOptions {
            name: row.get(0)?,
            properties: row.get(1)?,
            requests_per_second: row.get(2)?,
            extended_queries: row.get(3)?,
        })
    };
    options.query_map([], read)?.collect()
}

fn account(row: &Row<'_>) -> Sqlite<StoredAccount> {
    Ok(StoredAccount {
        name: row.get(0)?,
        keys: [row.get(1)?, row.get(2)?],
        disabled: row.get(3)?,
        created: ticks(row, 4)?,
        rotated: [ticks(row, 5)?, ticks(row, 6)?],
    })
}

/// Applies a change; `false` if its condition does not hold.
fn apply(db: &Connection, change: &AccountChange) -> Sqlite<bool> {
    let changed = match change {
        AccountChange::Add(account) => db
            .prepare_cached(
                "INSERT INTO accounts (name, key1, key2, disabled, created, rotated1, rotated2)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (name) DO NOTHING",
            )?
            .execute(params![
                account.name,
                account.keys[0],
                account.keys[1],
                account.disabled,
                account.created.raw(),
                account.rotated[0].raw(),
                account.rotated[1].raw()
            ])?,
        AccountChange::Rotate { name, slot, was, sealed, now } => {
            let text = match slot {
                KeySlot::First => {
                    "UPDATE accounts SET key1 = ?3, rotated1 = ?4 WHERE name = ?1 AND key1 = ?2"
                }
                KeySlot::Second => {
                    "UPDATE accounts SET key2 = ?3, rotated2 = ?4 WHERE name = ?1 AND key2 = ?2"
                }
            };
            db.prepare_cached(text)?.execute(params![name, was, sealed, now.raw()])?
        }
        AccountChange::Disable { name, disabled } => db
            .prepare_cached("UPDATE accounts SET disabled = ?2 WHERE name = ?1")?
            .execute(params![name, disabled])?,
        AccountChange::Limit { name, requests_per_second } => {
            limit(db, name, *requests_per_second)?;
            return Ok(true);
        }
        AccountChange::Queries { name, extended } => {
            set_queries(db, name, *extended)?;
            return Ok(true);
        }
        AccountChange::Reseal { seen, accounts } if changes(db)?.accounts == *seen => reseal(db, accounts)?,
        AccountChange::Reseal { .. } => 0,
        AccountChange::Remove { name } => remove(db, name)?,
    };
    if changed > 0 {
        db.prepare_cached(
            "INSERT INTO account_changes (id, changes) VALUES (1, 1)
             ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
        )?
        .execute([])?;
    }
    Ok(changed > 0)
}

/// Removes an account, and with it the limit and the queries that an operator has chosen for it.
fn remove(db: &Connection, name: &str) -> Sqlite<usize> {
    let removed = db.prepare_cached("DELETE FROM accounts WHERE name = ?1")?.execute([name])?;
    if removed > 0 {
        db.prepare_cached("DELETE FROM account_limits WHERE name = ?1")?.execute([name])?;
        db.prepare_cached("DELETE FROM account_queries WHERE name = ?1")?.execute([name])?;
        count_option_change(db)?;
    }
    Ok(removed)
}

fn limit(db: &Connection, name: &str, requests_per_second: Option<u32>) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO account_limits (name, requests_per_second) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET requests_per_second = excluded.requests_per_second",
    )?
    .execute(params![name, requests_per_second])?;
    count_option_change(db)
}

fn set_queries(db: &Connection, name: &str, extended: bool) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO account_queries (name, extended) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET extended = excluded.extended",
    )?
    .execute(params![name, extended])?;
    count_option_change(db)
}

/// Counts a change, so that servers reload the options of accounts.
pub(crate) fn count_option_change(db: &Connection) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO account_option_changes (id, changes) VALUES (1, 1)
         ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
    )?
    .execute([])?;
    Ok(())
}

fn reseal(db: &Connection, accounts: &[Resealed]) -> Sqlite<usize> {
    let mut update = db.prepare_cached("UPDATE accounts SET key1 = ?2, key2 = ?3 WHERE name = ?1")?;
    accounts
        .iter()
        .map(|account| update.execute(params![account.name, account.keys[0], account.keys[1]]))
        .sum()
}

pub(crate) fn read_properties(db: &Connection, account: &str) -> Sqlite<Option<String>> {
    db.prepare_cached("SELECT properties FROM service_properties WHERE account = ?1")?
        .query_row([account], |row| row.get(0))
        .optional()
}

/// Replaces the given members and keeps the others, as the concatenation of jsonb values does in
/// PostgreSQL.
pub(crate) fn merge_properties(db: &Connection, account: &str, members: &str) -> Sqlite<StoreResult<()>> {
    type Members = serde_json::Map<String, serde_json::Value>;
    let old = read_properties(db, account)?.unwrap_or_else(|| "{}".into());
    let (Ok(mut merged), Ok(new)) =
        (serde_json::from_str::<Members>(&old), serde_json::from_str::<Members>(members))
    else {
        return Ok(Err(Fault::Other.into()));
    };
    merged.extend(new);
    db.prepare_cached(
        "INSERT INTO service_properties (account, properties) VALUES (?1, ?2)
         ON CONFLICT (account) DO UPDATE SET properties = excluded.properties",
    )?
    .execute(params![account, serde_json::Value::Object(merged).to_string()])?;
    count_option_change(db)?;
    Ok(Ok(()))
}
