//! Lists entities that cannot be copied.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cli::output::{TransferEnd, warn};
use crate::transfer::{Rejected, Rejects, Selection, Survey, TransferSource};

/// Maximum number of entities to list with reasons. The file of rejected entities has all of them.
const MAX_SHOWN: usize = 20;
/// Maximum characters to print of an entity: enough for its keys in most cases.
const MAX_CHARACTERS: usize = 200;

/// Lists the findings of a survey.
pub(super) fn list_rejected(survey: &Survey) {
    for (table, entity) in survey.first_rejected.iter().take(MAX_SHOWN) {
        warn_of(table, entity);
    }
    warn_of_more(survey.rejected);
}

/// Lists entities that could not be parsed when the source was opened.
pub(super) fn warn_of_rejected(
    source: &dyn TransferSource,
    selection: &Selection,
) -> Result<(), TransferEnd> {
    let mut listed = 0;
    source.each_rejected(&mut |table, rejected| {
        if selection.has_table(table) {
            if listed < MAX_SHOWN {
                warn_of(table, &rejected);
            }
            listed += 1;
        }
        Ok(())
    })?;
    warn_of_more(listed as u64);
    Ok(())
}

/// Records the entities that were rejected when the source was opened, unless `is_recorded`. Returns their number
/// in each table.
pub(super) fn record_unread(
    source: &dyn TransferSource,
    selection: &Selection,
    rejects: &Rejects,
    is_recorded: bool,
) -> Result<BTreeMap<String, u64>, TransferEnd> {
    let mut unread = BTreeMap::new();
    source.each_rejected(&mut |table, rejected| {
        if !selection.has_table(table) {
            return Ok(());
        }
        *unread.entry(table.to_owned()).or_default() += 1;
        if is_recorded { Ok(()) } else { rejects.add(table, &[rejected]) }
    })?;
    Ok(unread)
}

pub(super) fn warn_of_remarks(remarks: &[String]) {
    remarks.iter().take(MAX_SHOWN).for_each(|remark| warn(remark));
    if remarks.len() > MAX_SHOWN {
        warn(&format!("and {} more remarks", remarks.len() - MAX_SHOWN));
    }
}

fn warn_of(table: &str, rejected: &Rejected) {
    warn(&format!("{table}: {}: {}", rejected.reason, shorten(&rejected.entity)));
}

/// Returns the beginning of an entity, because an entity may have a megabyte.
fn shorten(entity: &str) -> Cow<'_, str> {
    match entity.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &entity[..end]).into(),
        None => entity.into(),
    }
}

fn warn_of_more(rejected: u64) {
    if rejected > MAX_SHOWN as u64 {
        warn(&format!("and {} more that cannot be copied", rejected - MAX_SHOWN as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_entity_is_cut_between_characters() {
        for text in ["", "{\"PartitionKey\":\"p\"}", &"é".repeat(MAX_CHARACTERS)] {
            assert_eq!(shorten(text), text);
        }
        assert_eq!(shorten(&"é".repeat(MAX_CHARACTERS + 1)), "é".repeat(MAX_CHARACTERS) + "…");
    }
}
