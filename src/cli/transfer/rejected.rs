//! Listing entities that cannot be copied.

use super::ended::TransferEnd;
use crate::cli::output::warn;
use crate::transfer::{Survey, TransferSource};

/// Entities of which the reasons are listed; the file of rejected entities has all.
const MAX_SHOWN: usize = 20;

/// Lists what a survey has found.
pub(super) fn list_rejected(survey: &Survey) {
    for (table, entity) in survey.first_rejected.iter().take(MAX_SHOWN) {
        warn(&format!("{table}: {}: {}", entity.reason, entity.entity));
    }
    warn_of_more(survey.rejected);
}

/// Lists entities that were not understood when the source was opened.
///
/// # Errors
/// If they cannot be read again.
pub(super) fn warn_of_rejected(source: &dyn TransferSource) -> Result<(), TransferEnd> {
    let mut listed = 0;
    source.each_rejected(&mut |table, rejected| {
        if listed < MAX_SHOWN {
            warn(&format!("{table}: {}: {}", rejected.reason, rejected.entity));
        }
        listed += 1;
        Ok(())
    })?;
    warn_of_more(source.rejected());
    Ok(())
}

fn warn_of_more(rejected: u64) {
    if rejected > MAX_SHOWN as u64 {
        warn(&format!("and {} more that cannot be copied", rejected - MAX_SHOWN as u64));
    }
}
