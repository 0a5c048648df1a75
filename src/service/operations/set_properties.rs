//! Set Table Service Properties (protocol §3.6).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, members: &ServiceProperties, printer: &Printer<'_>) -> Result<Answer> {
    store.set_properties(printer.account(), &properties::to_stored(members)?).await?;
    Ok(Answer::bare(202))
}
