//! Copying entities from the source to the target.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};

use super::outcome::{RespreadError, RespreadResult};
use crate::postgres::cluster::respread::state::{CopyPosition, RespreadState};
use crate::postgres::rows::{JsonText, found, version};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::{Key, Stored};

/// Entities, or keys, that are handled together.
const PAGE: i64 = 256;

/// Some entities of the source.
pub(crate) struct CopiedPage {
    pub entities: Vec<Stored>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<CopyPosition>,
}

/// Reads the page at a position.
pub(crate) async fn read_page(
    db: &mut PgConnection,
    source: TableId,
    from: &CopyPosition,
) -> Result<CopiedPage, RespreadError> {
    let Some(bucket) = source.buckets().nth(from.share) else {
        return Ok(CopiedPage { entities: Vec::new(), next: None });
    };
    let read = sqlx::query(texts::PAGE).bind(bucket).bind(&from.key.partition).bind(&from.key.row);
    // One more shows where the next page begins.
    let rows = read.bind(PAGE + 1).fetch_all(db).await?;
    let mut entities = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = Key { partition: row.try_get("pk")?, row: row.try_get("rk")? };
        entities.push(version(row, key).map_err(|_| RespreadError::Broken)?);
    }
    let first_of_next = entities.pop_if(|_| rows.len() as i64 > PAGE);
    Ok(CopiedPage { entities, next: from.next(source, first_of_next.map(|entity| entity.key)) })
}

/// Makes entities of the target as these are.
pub(crate) async fn put(db: &mut PgConnection, target: TableId, entities: &[Stored]) -> RespreadResult {
    for (bucket, here) in by_bucket(target, entities.iter(), |entity| &entity.key) {
        let (pks, rks) = keys(here.iter().map(|entity| &entity.key));
        let modified: Vec<i64> = here.iter().map(|entity| entity.modified.raw()).collect();
        let properties: Vec<JsonText<'_>> =
            here.iter().map(|entity| JsonText(entity.properties.as_str())).collect();
        let put = sqlx::query(texts::PUT).bind(bucket).bind(pks).bind(rks).bind(modified).bind(properties);
        put.execute(&mut *db).await?;
    }
    Ok(())
}

/// Copies what was changed under other numbers than `except`; returns how many keys these were.
pub(crate) async fn copy_changes(
    db: &mut PgConnection,
    state: &RespreadState,
    except: Option<i64>,
) -> Result<u64, RespreadError> {
    // No table has a negative number.
    let (mut copied, except) = (0, except.unwrap_or(-1));
    for bucket in state.source.buckets() {
        loop {
            let list = sqlx::query(texts::CHANGES).bind(bucket).bind(except).bind(PAGE);
            let rows = list.fetch_all(&mut *db).await?;
            if rows.is_empty() {
                break;
            }
            let mut changed = Vec::with_capacity(rows.len());
            for row in &rows {
                changed.push(Key { partition: row.try_get("pk")?, row: row.try_get("rk")? });
            }
            copy_again(db, state, bucket, &changed).await?;
            let (Some(row), Some(last)) = (rows.last(), changed.last()) else { break };
            sqlx::query(texts::FORGET_CHANGES)
                .bind(bucket)
                .bind(except)
                .bind(row.try_get::<i64, _>("table_no")?)
                .bind(&last.partition)
                .bind(&last.row)
                .execute(&mut *db)
                .await?;
            copied += changed.len() as u64;
        }
    }
    Ok(copied)
}

/// Makes the entities of these keys, which are in one bucket of the source, the same in the target.
async fn copy_again(
    db: &mut PgConnection,
    state: &RespreadState,
    bucket: i64,
    changed: &[Key],
) -> RespreadResult {
    let (pks, rks) = keys(changed.iter());
    let rows = sqlx::query(texts::BY_KEY).bind(bucket).bind(pks).bind(rks).fetch_all(&mut *db).await?;
    // A key may have been changed under several numbers.
    let (mut there, mut gone) = (BTreeMap::new(), BTreeSet::new());
    for row in &rows {
        let key = &changed[place(row.try_get("n")?, changed.len())?];
        match found(row, key.clone()).map_err(|_| RespreadError::Broken)? {
            Some(entity) => drop(there.insert(key, entity)),
            None => drop(gone.insert(key)),
        }
    }
    let there: Vec<Stored> = there.into_values().collect();
    put(db, state.target, &there).await?;
    // In the order of keys.
    let gone: Vec<&Key> = gone.into_iter().collect();
    for rows in gone.chunk_by(|one, other| one.partition == other.partition) {
        let partition = &rows[0].partition;
        let rks: Vec<&str> = rows.iter().map(|key| key.row.as_str()).collect();
        let remove = sqlx::query(texts::REMOVE).bind(state.target.bucket(partition)).bind(partition);
        remove.bind(rks).execute(&mut *db).await?;
    }
    Ok(())
}

/// The index of a row that the database numbered from 1.
pub(crate) fn place(n: i64, of: usize) -> Result<usize, RespreadError> {
    usize::try_from(n - 1).ok().filter(|at| *at < of).ok_or(RespreadError::Broken)
}

/// Keys as parallel arrays.
pub(crate) fn keys<'k>(keys: impl Iterator<Item = &'k Key>) -> (Vec<&'k str>, Vec<&'k str>) {
    keys.map(|key| (key.partition.as_str(), key.row.as_str())).unzip()
}

/// Groups what has keys by the bucket of a layout.
pub(crate) fn by_bucket<'k, T: Copy>(
    layout: TableId,
    items: impl Iterator<Item = T>,
    key: impl Fn(T) -> &'k Key,
) -> BTreeMap<i64, Vec<T>> {
    let mut groups: BTreeMap<i64, Vec<T>> = BTreeMap::new();
    for item in items {
        groups.entry(layout.bucket(&key(item).partition)).or_default().push(item);
    }
    groups
}
