//! Get Table Service Stats (protocol §16).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::protocol::codec::properties::{self, Replication};
use crate::protocol::model::Ticks;
use crate::service::Answer;
use crate::store::Store;

/// Returns the stats of the secondary, which also report if it is unreachable. The primary has no stats.
pub(super) async fn run(store: &Store, printer: &Printer<'_>) -> Result<Answer> {
    if !printer.target.secondary {
        return Err(Code::InvalidQueryParameterValue.into());
    }
    let replication = match store.current_until(Ticks::now()).await {
        Ok(Some(until)) => Replication::Live(until),
        Ok(None) => Replication::Bootstrap,
        Err(_) => Replication::Unavailable,
    };
    Ok(Answer::xml(200, properties::write_stats(replication)))
}
