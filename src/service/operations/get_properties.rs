//! Get Table Service Properties (protocol §3.6).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::codec::properties::{self, Layout};
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, layout: Layout, printer: &Printer<'_>) -> Result<Answer> {
    let stored = store.properties(printer.account()).await?;
    let found = stored.map(|text| properties::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml(200, properties::write(&found, layout)))
}
