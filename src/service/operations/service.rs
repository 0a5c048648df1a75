//! Operations on the properties and statistics of the service (protocol §3.6, §16).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::protocol::codec::properties::{self, Layout, Replication, ServiceProperties};
use crate::protocol::model::Ticks;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn get_properties(store: &Store, layout: Layout, printer: &Printer<'_>) -> Result<Answer> {
    let stored = store.properties(printer.account()).await?;
    let found = stored.map(|text| properties::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml_document(200, properties::write(&found, layout)))
}

pub(super) async fn set_properties(
    store: &Store,
    members: &ServiceProperties,
    printer: &Printer<'_>,
) -> Result<Answer> {
    store.set_properties(printer.account(), &properties::to_stored(members)?).await?;
    Ok(Answer::status_only(202))
}

/// Returns the statistics of the secondary, even if it is unreachable. The primary has no statistics.
pub(super) async fn get_stats(store: &Store, printer: &Printer<'_>) -> Result<Answer> {
    if !printer.target.secondary {
        return Err(Code::InvalidQueryParameterValue.into());
    }
    let replication = match store.current_until(Ticks::now()).await {
        Ok(Some(until)) => Replication::Live(until),
        Ok(None) => Replication::Bootstrap,
        Err(_) => Replication::Unavailable,
    };
    Ok(Answer::xml_document(200, properties::write_stats(replication)))
}
