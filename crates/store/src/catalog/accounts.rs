//! Accounts that operators have added, and the options of accounts. Each change increments a counter, so that servers
//! reload the accounts.

use crate::catalog::session::{Backend, CatalogStore, SqlSession};
use crate::protocol::auth::key_encryption::KeySlot;
use crate::sql::{SqlText, counted_change, sql};
use crate::{AccountChange, AccountOptions, ChangeCounts, Fault, StoreResult, StoredAccount, StoredAccounts};

const CHANGES: &str = "SELECT coalesce((SELECT changes FROM account_changes), 0), \
     coalesce((SELECT changes FROM account_option_changes), 0), \
     coalesce((SELECT changes FROM property_index_changes), 0)";
const LIST_OPTIONS: &str = "SELECT coalesce(p.account, l.name, q.name), CAST(p.properties AS text), \
     l.requests_per_second, q.extended \
     FROM service_properties AS p FULL JOIN account_limits AS l ON l.name = p.account \
     FULL JOIN account_queries AS q ON q.name = coalesce(p.account, l.name)";
const ADD: SqlText = counted_change!(
    "account_changes",
    "INSERT INTO accounts (name, key1, key2, disabled, created, rotated1, rotated2) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING RETURNING name"
);
/// $2 the key to replace; $3 the new key; $4 the time.
const ROTATE_KEY1: SqlText = counted_change!(
    "account_changes",
    "UPDATE accounts SET key1 = $3, rotated1 = $4 WHERE name = $1 AND key1 = $2 RETURNING name"
);
const ROTATE_KEY2: SqlText = counted_change!(
    "account_changes",
    "UPDATE accounts SET key2 = $3, rotated2 = $4 WHERE name = $1 AND key2 = $2 RETURNING name"
);
const DISABLE: SqlText =
    counted_change!("account_changes", "UPDATE accounts SET disabled = $2 WHERE name = $1 RETURNING name");
const LIMIT: SqlText = counted_change!(
    "account_option_changes",
    "INSERT INTO account_limits (name, requests_per_second) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET requests_per_second = excluded.requests_per_second RETURNING name"
);
const SET_QUERIES: SqlText = counted_change!(
    "account_option_changes",
    "INSERT INTO account_queries (name, extended) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET extended = excluded.extended RETURNING name"
);
/// Also removes the account's limit and allowed queries.
const REMOVE: SqlText = SqlText {
    postgres: "WITH counted AS (INSERT INTO account_changes AS c (id, changes) VALUES (1, 1) \
         ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1), \
         counted_options AS (INSERT INTO account_option_changes AS c (id, changes) VALUES (1, 1) \
         ON CONFLICT (id) DO UPDATE SET changes = c.changes + 1), \
         limits AS (DELETE FROM account_limits WHERE name = $1 AND EXISTS (SELECT FROM accounts WHERE name = $1)), \
         queries AS (DELETE FROM account_queries WHERE name = $1 AND EXISTS (SELECT FROM accounts WHERE name = $1)) \
         DELETE FROM accounts WHERE name = $1 RETURNING name",
    sqlite: "DELETE FROM accounts WHERE name = $1 RETURNING name",
    then: &[
        "INSERT INTO account_changes (id, changes) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
        "INSERT INTO account_option_changes (id, changes) VALUES (1, 1) \
         ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
        "DELETE FROM account_limits WHERE name = $1",
        "DELETE FROM account_queries WHERE name = $1",
    ],
};
/// For PostgreSQL. $1 the required change counter; $2 names; $3 and $4 their keys.
const RESEAL: &str = "WITH counted AS (UPDATE account_changes SET changes = changes + 1 \
     WHERE id = 1 AND changes = $1 RETURNING changes), \
     resealed AS (UPDATE accounts AS a SET key1 = n.key1, key2 = n.key2 \
     FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS n (name, key1, key2) \
     WHERE a.name = n.name AND EXISTS (SELECT FROM counted)) SELECT changes FROM counted";
/// For SQLite. $1 the required change counter.
const COUNT_CHANGE: &str =
    "UPDATE account_changes SET changes = changes + 1 WHERE id = 1 AND changes = $1 RETURNING changes";
const RESEAL_ONE: &str = "UPDATE accounts SET key1 = $2, key2 = $3 WHERE name = $1";
const READ_PROPERTIES: &str = "SELECT CAST(properties AS text) FROM service_properties WHERE account = $1";
/// PostgreSQL replaces the given members and keeps the others. SQLite replaces all members.
const PUT_PROPERTIES: SqlText = counted_change!(
    "account_option_changes",
    "INSERT INTO service_properties AS p (account, properties) VALUES ($1, $2::jsonb) \
     ON CONFLICT (account) DO UPDATE SET properties = p.properties || excluded.properties RETURNING account",
    "INSERT INTO service_properties (account, properties) VALUES ($1, $2) \
     ON CONFLICT (account) DO UPDATE SET properties = excluded.properties"
);

pub(super) const ALL: [&str; 13] = [
    CHANGES,
    LIST_OPTIONS,
    ADD.postgres,
    ROTATE_KEY1.postgres,
    ROTATE_KEY2.postgres,
    DISABLE.postgres,
    LIMIT.postgres,
    SET_QUERIES.postgres,
    REMOVE.postgres,
    RESEAL,
    READ_PROPERTIES,
    PUT_PROPERTIES.postgres,
    StoredAccount::LIST,
];

impl<S: CatalogStore> StoredAccounts for S {
    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        let row = self.backend().only_row(CHANGES).await?;
        Ok(ChangeCounts { accounts: row.get(0)?, options: row.get(1)?, indexes: row.get(2)? })
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        self.backend().rows(StoredAccount::LIST).await?.iter().map(StoredAccount::read).collect()
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        let rows = self.backend().rows(LIST_OPTIONS).await?;
        let read = rows.iter().map(|row| {
            let limit: Option<i64> = row.get(2)?;
            Ok(AccountOptions {
                name: row.get(0)?,
                properties: row.get(1)?,
                requests_per_second: limit.map(u32::try_from).transpose().map_err(|_| Fault::Other)?,
                extended_queries: row.get(3)?,
            })
        });
        read.collect()
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        let sql = match change {
            AccountChange::Add(StoredAccount { name, keys: [key1, key2], disabled, created, rotated }) => {
                let add = sql(ADD).bind(name).bind(key1).bind(key2).bind(*disabled).bind(*created);
                add.bind(rotated[0]).bind(rotated[1])
            }
            AccountChange::Rotate { name, slot, was, sealed, now } => {
                let text = if *slot == KeySlot::First { ROTATE_KEY1 } else { ROTATE_KEY2 };
                sql(text).bind(name).bind(was).bind(sealed).bind(*now)
            }
            AccountChange::Disable { name, disabled } => sql(DISABLE).bind(name).bind(*disabled),
            AccountChange::Limit { name, requests_per_second } => {
                sql(LIMIT).bind(name).bind(requests_per_second.map(i64::from))
            }
            AccountChange::Queries { name, extended } => sql(SET_QUERIES).bind(name).bind(*extended),
            AccountChange::Remove { name } => sql(REMOVE).bind(name),
            AccountChange::Reseal { seen, accounts } if matches!(self.backend(), Backend::Postgres(_)) => {
                let names: Vec<String> = accounts.iter().map(|account| account.name.clone()).collect();
                let keys = |at: usize| accounts.iter().map(|a| a.keys[at].clone()).collect::<Vec<_>>();
                sql(RESEAL).bind(*seen).bind(names).bind(keys(0)).bind(keys(1))
            }
            AccountChange::Reseal { seen, accounts } => {
                let (seen, accounts) = (*seen, accounts.clone());
                let reseal = async move |session: &mut SqlSession<'_>| {
                    let is_unchanged = session.has_row(sql(COUNT_CHANGE).bind(seen)).await?;
                    for account in accounts.iter().filter(|_| is_unchanged) {
                        let [key1, key2] = &account.keys;
                        session.row(sql(RESEAL_ONE).bind(&account.name).bind(key1).bind(key2)).await?;
                    }
                    Ok(is_unchanged)
                };
                return self.backend().transact(reseal).await;
            }
        };
        self.backend().write(sql).await
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        let row = self.backend().row(sql(READ_PROPERTIES).bind(account)).await?;
        row.map(|row| row.get(0)).transpose()
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        if let Backend::Postgres(_) = self.backend() {
            return self.backend().write(sql(PUT_PROPERTIES).bind(account).bind(members)).await.map(drop);
        }
        let (account, members) = (account.to_owned(), members.to_owned());
        let merge = async move |session: &mut SqlSession<'_>| {
            let row = session.row(sql(READ_PROPERTIES).bind(&account)).await?;
            let old: Option<String> = row.map(|row| row.get(0)).transpose()?;
            let merged = merged(old.as_deref().unwrap_or("{}"), &members)?;
            session.row(sql(PUT_PROPERTIES).bind(&account).bind(&merged)).await.map(drop)
        };
        self.backend().transact(merge).await
    }
}

/// Replaces the given members and keeps the others, like jsonb concatenation.
fn merged(old: &str, members: &str) -> Result<String, Fault> {
    type Members = serde_json::Map<String, serde_json::Value>;
    let parse = |text| serde_json::from_str::<Members>(text).map_err(|_| Fault::Other);
    let mut merged = parse(old)?;
    merged.extend(parse(members)?);
    Ok(serde_json::Value::Object(merged).to_string())
}
