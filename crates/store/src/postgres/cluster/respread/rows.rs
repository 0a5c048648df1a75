//! Copies entities from the source to the target, and compares both while clients write to the source.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};

use super::outcome::{RespreadError, RespreadResult};
use crate::postgres::cluster::respread::state::{CopyPosition, RespreadState};
use crate::postgres::rows::{JsonText, found, version};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::{Key, Stored};

/// Number of entities, or keys, that are processed together.
const PAGE: i64 = 256;

pub(crate) struct CopiedPage {
    pub entities: Vec<Stored>,
    /// Position of the next page; `None` at the end.
    pub next: Option<CopyPosition>,
}

pub(crate) async fn read_page(
    db: &mut PgConnection,
    source: TableId,
    from: &CopyPosition,
) -> Result<CopiedPage, RespreadError> {
    let Some(bucket) = source.buckets().nth(from.share) else {
        return Ok(CopiedPage { entities: Vec::new(), next: None });
    };
    let read = sqlx::query(texts::PAGE).bind(bucket).bind(&from.key.partition).bind(&from.key.row);
    // One extra row determines the position of the next page.
    let rows = read.bind(PAGE + 1).fetch_all(db).await?;
    let mut entities = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = Key { partition: row.try_get("pk")?, row: row.try_get("rk")? };
        entities.push(version(row, key).map_err(|_| RespreadError::Broken)?);
    }
    let first_of_next = entities.pop_if(|_| rows.len() as i64 > PAGE);
    Ok(CopiedPage { entities, next: from.next(source, first_of_next.map(|entity| entity.key)) })
}

/// Inserts or replaces these entities in the target.
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

/// Copies changes recorded under numbers other than `except`; returns the number of keys.
pub(crate) async fn copy_changes(
    db: &mut PgConnection,
    state: &RespreadState,
    except: Option<i64>,
) -> Result<u64, RespreadError> {
    // No table has a negative number.
    let (mut copied, except) = (0, except.unwrap_or(-1));
    for bucket in state.source.buckets() {
        loop {
            let list = sqlx::query_as(texts::CHANGES).bind(bucket).bind(except).bind(PAGE);
            let rows: Vec<(i64, String, String)> = list.fetch_all(&mut *db).await?;
            let Some(table_no) = rows.last().map(|row| row.0) else { break };
            let changed: Vec<Key> =
                rows.into_iter().map(|(_, partition, row)| Key { partition, row }).collect();
            copy_again(db, state, bucket, &changed).await?;
            let Some(last) = changed.last() else { break };
            sqlx::query(texts::FORGET_CHANGES)
                .bind(bucket)
                .bind(except)
                .bind(table_no)
                .bind(&last.partition)
                .bind(&last.row)
                .execute(&mut *db)
                .await?;
            copied += changed.len() as u64;
        }
    }
    Ok(copied)
}

/// Copies these keys' entities to the target again, and deletes missing ones there. All keys are in one source bucket.
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
    // Sorted by key.
    let gone: Vec<&Key> = gone.into_iter().collect();
    for rows in gone.chunk_by(|one, other| one.partition == other.partition) {
        let partition = &rows[0].partition;
        let rks: Vec<&str> = rows.iter().map(|key| key.row.as_str()).collect();
        let remove = sqlx::query(texts::REMOVE).bind(state.target.bucket(partition)).bind(partition);
        remove.bind(rks).execute(&mut *db).await?;
    }
    Ok(())
}

/// Converts the database's 1-based row number to an index.
pub(crate) fn place(n: i64, of: usize) -> Result<usize, RespreadError> {
    usize::try_from(n - 1).ok().filter(|at| *at < of).ok_or(RespreadError::Broken)
}

/// Splits keys into parallel arrays.
pub(crate) fn keys<'k>(keys: impl Iterator<Item = &'k Key>) -> (Vec<&'k str>, Vec<&'k str>) {
    keys.map(|key| (key.partition.as_str(), key.row.as_str())).unzip()
}

/// Groups items with keys by their bucket in a layout.
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

/// Number of entities that are compared together.
const COMPARED_PAGE: i64 = 1000;

struct HashedKey {
    key: Key,
    hash: i64,
}

/// The direction of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CompareDirection {
    /// Every entity of the source must be in the target.
    Forward,
    /// Every entity of the target must be in the source.
    Backward,
}

/// Compares every entity of one layout with the other layout, except entities written since changes were last copied.
/// Returns the number of compared entities, and passes it to `on_progress`.
///
/// # Errors
/// [`RespreadError::Differs`] at the first difference.
pub(crate) async fn compare(
    db: &mut PgConnection,
    state: &RespreadState,
    direction: CompareDirection,
    on_progress: &mut (dyn FnMut(u64) + Send),
) -> Result<u64, RespreadError> {
    let (from, to) = match direction {
        CompareDirection::Forward => (state.source, state.target),
        CompareDirection::Backward => (state.target, state.source),
    };
    let mut compared = 0;
    let mut position = Some(CopyPosition::of_share(0));
    while let Some(here) = position {
        let (page, next) = hashes(db, from, &here).await?;
        let different = different(db, to, &page).await?;
        if let Some(key) = unchanged(db, state, different).await? {
            return Err(RespreadError::Differs(key.partition.clone(), key.row.clone()));
        }
        compared += page.len() as u64;
        on_progress(compared);
        position = next;
    }
    Ok(compared)
}

/// Reads the page at a position, and the position of the next page.
async fn hashes(
    db: &mut PgConnection,
    of: TableId,
    from: &CopyPosition,
) -> Result<(Vec<HashedKey>, Option<CopyPosition>), RespreadError> {
    let Some(bucket) = of.buckets().nth(from.share) else { return Ok((Vec::new(), None)) };
    let read = sqlx::query_as(texts::HASHES_FROM).bind(bucket).bind(&from.key.partition).bind(&from.key.row);
    // One extra row determines the position of the next page.
    let rows: Vec<(String, String, i64)> = read.bind(COMPARED_PAGE + 1).fetch_all(db).await?;
    let hashed = |(partition, row, hash)| HashedKey { key: Key { partition, row }, hash };
    let mut page: Vec<HashedKey> = rows.into_iter().map(hashed).collect();
    let is_last = page.len() as i64 <= COMPARED_PAGE;
    let first_of_next = page.pop_if(|_| !is_last);
    Ok((page, from.next(of, first_of_next.map(|hashed| hashed.key))))
}

/// Returns the keys whose entities differ or are missing in this layout.
async fn different<'p>(
    db: &mut PgConnection,
    layout: TableId,
    page: &'p [HashedKey],
) -> Result<Vec<&'p Key>, RespreadError> {
    let mut different = Vec::new();
    for (bucket, here) in by_bucket(layout, page.iter(), |hashed| &hashed.key) {
        let (pks, rks) = keys(here.iter().map(|hashed| &hashed.key));
        let read = sqlx::query_as(texts::HASHES_BY_KEY).bind(bucket).bind(pks).bind(rks);
        let found: Vec<(i64, Option<i64>)> = read.fetch_all(&mut *db).await?;
        for (n, hash) in found {
            let hashed = here[place(n, here.len())?];
            if hash != Some(hashed.hash) {
                different.push(&hashed.key);
            }
        }
    }
    Ok(different)
}

/// Returns the first key without a recorded change. Writers record a change in its own transaction, so this check must
/// follow the reads of the entities.
async fn unchanged<'p>(
    db: &mut PgConnection,
    state: &RespreadState,
    different: Vec<&'p Key>,
) -> Result<Option<&'p Key>, RespreadError> {
    for (bucket, here) in by_bucket(state.source, different.into_iter(), |key| key) {
        let (pks, rks) = keys(here.iter().copied());
        let ask = sqlx::query_as(texts::IS_CHANGED).bind(bucket).bind(pks).bind(rks).bind(state.table_no);
        let mut is_changed = vec![false; here.len()];
        let found: Vec<(i64, Option<bool>)> = ask.fetch_all(&mut *db).await?;
        for (n, changed) in found {
            is_changed[place(n, here.len())?] = changed.is_some();
        }
        if let Some(at) = is_changed.iter().position(|changed| !changed) {
            return Ok(Some(here[at]));
        }
    }
    Ok(None)
}
