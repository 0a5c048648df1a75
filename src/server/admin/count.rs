//! `/accounts/…/count`: counts the entities of a table, like `rowhouse count`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::call::{CALL_TIMEOUT, Outcome, within};
use super::{Call, Refusal, Reply};
use crate::operator::expiry;
use crate::operator::totals::{self, CountPace};
use crate::protocol::model::Key;
use crate::protocol::odata;
use crate::protocol::plan::Predicate;
use crate::protocol::plan::filter::{self, Subject};
use crate::store::{CountPosition, CountedPart, StoreResult};

/// Time after which a count answers with what it has counted.
const COUNT_TIME: Duration = Duration::from_secs(5);
/// Comparisons that a filter may have.
const MAX_COMPARISONS: usize = 1000;

/// Where a count continues.
#[derive(Serialize, Deserialize)]
struct CountToken(u16, String, String);

/// Counts the entities of a table that match a filter, or all of them, for [`COUNT_TIME`]. Where that
/// is not enough, `next` is the `from` of the call that counts on.
///
/// # Errors
/// 400 for an invalid filter or `from`; 404 for an unknown account or table; errors of the database.
pub(crate) async fn count(call: &Call<'_>) -> Outcome {
    let (account, table) = call.table()?;
    let predicate = call.query("filter")?.map(|text| predicate(&text)).transpose()?;
    let from = call.query("from")?.map(|text| position(&text)).transpose()?;
    let from = from.unwrap_or_else(CountPosition::start);
    let table = expiry::name(table)?;
    let counting = async {
        StoreResult::Ok(match &predicate {
            Some(predicate) => {
                totals::count_matching(call.store(), account, &table, &from.key, predicate, COUNT_TIME)
                    .await?
            }
            None => CountPace::default().count_for(call.store(), account, &table, from, COUNT_TIME).await?,
        })
    };
    let CountedPart { entities, next } = within(CALL_TIMEOUT, counting).await?;
    let next = next.map(|next| token(&next));
    Ok(Reply::json(200, &json!({ "entities": entities, "complete": next.is_none(), "next": next })))
}

fn predicate(text: &str) -> Result<Predicate, Refusal> {
    let parsed = odata::parse(text, MAX_COMPARISONS)?;
    Ok(filter::predicate(&parsed, Subject::Entities)?)
}

fn token(position: &CountPosition) -> String {
    let CountPosition { share, key } = position;
    let token = CountToken(*share, key.partition.clone(), key.row.clone());
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn position(text: &str) -> Result<CountPosition, Refusal> {
    let read = URL_SAFE_NO_PAD.decode(text).ok();
    let read = read.and_then(|bytes| serde_json::from_slice::<CountToken>(&bytes).ok());
    let token = read.filter(|token| !token.1.contains('\u{0}') && !token.2.contains('\u{0}'));
    let CountToken(share, partition, row) =
        token.ok_or_else(|| Refusal::bad_request("from: must be the next of an earlier answer"))?;
    Ok(CountPosition { share, key: Key { partition, row } })
}
