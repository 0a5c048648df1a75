//! Standard output, which receives the entities of a table as JSON lines.

use std::io::{Write as _, stdout};

use crate::contract::{Counts, TransferTarget, WritePage};
use crate::error::{TransferResult, fatal};
use crate::locations::PageOutcome;
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;

/// Writes lines in the form of dumps, without settings.
pub struct LineTarget;

impl TransferTarget for LineTarget {
    fn create(&self, _table: &str) -> TransferResult<bool> {
        Ok(true)
    }

    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts> {
        let (mut outcome, mut text) = (PageOutcome::new(&page), String::new());
        let mut entities = 0;
        outcome.push_lines(&mut text, |_| entities += 1)?;
        let mut out = stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| fatal!("standard output: {error}"))?;
        outcome.counts.written = entities;
        Ok(outcome.counts)
    }

    fn set_policies(&self, _table: &str, _policies: &[Policy]) -> TransferResult<()> {
        Ok(())
    }

    fn set_properties(&self, _properties: &ServiceProperties) -> TransferResult<()> {
        Ok(())
    }
}
