//! Comparing the source with the target, while the source is written to.

use sqlx::{PgConnection, Row};

use super::outcome::RespreadError;
use crate::postgres::cluster::respread::rows::{by_bucket, keys, place};
use crate::postgres::cluster::respread::state::{CopyPosition, RespreadState};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::Key;

/// Entities that are compared together.
const PAGE: i64 = 1000;

/// A key with the hash of its entity.
struct HashedKey {
    key: Key,
    hash: i64,
}

/// The direction of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CompareDirection {
    /// Every entity of the source is in the target.
    Forward,
    /// Every entity of the target is in the source.
    Backward,
}

/// Compares every entity of one layout with that of the other. What was written since changes were last
/// copied is left out. `on_progress` gets how many were compared, which is also returned.
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

/// Reads the page at a position, and where the next one begins.
async fn hashes(
    db: &mut PgConnection,
    of: TableId,
    from: &CopyPosition,
) -> Result<(Vec<HashedKey>, Option<CopyPosition>), RespreadError> {
    let Some(bucket) = of.buckets().nth(from.share) else { return Ok((Vec::new(), None)) };
    let read = sqlx::query(texts::HASHES_FROM).bind(bucket).bind(&from.key.partition).bind(&from.key.row);
    // One more shows where the next page begins.
    let rows = read.bind(PAGE + 1).fetch_all(db).await?;
    let mut page = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = Key { partition: row.try_get("pk")?, row: row.try_get("rk")? };
        page.push(HashedKey { key, hash: row.try_get("hash")? });
    }
    let first_of_next = page.pop_if(|_| rows.len() as i64 > PAGE);
    Ok((page, from.next(of, first_of_next.map(|hashed| hashed.key))))
}

/// The keys whose entities are other, or missing, in this layout.
async fn different<'p>(
    db: &mut PgConnection,
    layout: TableId,
    page: &'p [HashedKey],
) -> Result<Vec<&'p Key>, RespreadError> {
    let mut different = Vec::new();
    for (bucket, here) in by_bucket(layout, page.iter(), |hashed| &hashed.key) {
        let (pks, rks) = keys(here.iter().map(|hashed| &hashed.key));
        let read = sqlx::query(texts::HASHES_BY_KEY).bind(bucket).bind(pks).bind(rks);
        for row in read.fetch_all(&mut *db).await? {
            let hashed = here[place(row.try_get("n")?, here.len())?];
            if row.try_get::<Option<i64>, _>("hash")? != Some(hashed.hash) {
                different.push(&hashed.key);
            }
        }
    }
    Ok(different)
}

/// The first key that nothing has been recorded of. Changes are recorded in the transactions that make
/// them, so this is asked after the entities were read.
async fn unchanged<'p>(
    db: &mut PgConnection,
    state: &RespreadState,
    different: Vec<&'p Key>,
) -> Result<Option<&'p Key>, RespreadError> {
    for (bucket, here) in by_bucket(state.source, different.into_iter(), |key| key) {
        let (pks, rks) = keys(here.iter().copied());
        let ask = sqlx::query(texts::IS_CHANGED).bind(bucket).bind(pks).bind(rks).bind(state.table_no);
        let mut is_changed = vec![false; here.len()];
        for row in ask.fetch_all(&mut *db).await? {
            is_changed[place(row.try_get("n")?, here.len())?] =
                row.try_get::<Option<bool>, _>("is_changed")?.is_some();
        }
        if let Some(at) = is_changed.iter().position(|changed| !changed) {
            return Ok(Some(here[at]));
        }
    }
    Ok(None)
}
