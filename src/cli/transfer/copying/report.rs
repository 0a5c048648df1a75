//! Reports the result of a copy or of a dry run, as text and as JSON.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::effects::Effects;
use super::prepare::{CopyFiles, CopyJob};
use crate::cli::output::TransferEnd;
use crate::transfer::{CopySummary, Counts, Inferences, Survey, TransferSource};

/// Maximum number of tables in the text form.
const MAX_SHOWN: usize = 20;

/// Returns the summary as text, short enough for a ticket.
fn text_of(copied: &CopySummary, elapsed: Duration, rejects: &Path) -> String {
    let sum = copied.sum();
    let rate = (sum.written + sum.unchanged) as f64 / elapsed.as_secs_f64().max(0.001);
    let mut text = String::new();
    // Tables with rejected entities come first.
    let mut tables: Vec<_> = copied.tables.iter().collect();
    if tables.len() > MAX_SHOWN {
        tables.sort_by_key(|(_, counts)| counts.rejected == 0);
    }
    for (table, counts) in tables.iter().take(MAX_SHOWN) {
        text.push_str(&format!(
            "{table}: {} copied, {} already there, {} rejected\n",
            counts.written, counts.unchanged, counts.rejected
        ));
    }
    if tables.len() > MAX_SHOWN {
        text.push_str(&format!("and {} more tables, which --json lists\n", tables.len() - MAX_SHOWN));
    }
    for (table, reason) in &copied.failed {
        text.push_str(&format!("{table}: failed: {reason}\n"));
    }
    text.push_str(&format!(
        "{} entities of {} tables copied, {} already there, {} rejected, in {:.1} s ({rate:.0}/s); \
         {} answers throttled, {} requests repeated",
        sum.written,
        copied.tables.len(),
        sum.unchanged,
        sum.rejected,
        elapsed.as_secs_f64(),
        copied.throttled,
        copied.retried,
    ));
    if sum.rejected > 0 {
        text.push_str(&format!("\nthe rejected entities are in {}", rejects.display()));
    }
    text
}

fn json_of(copied: &CopySummary, elapsed: Duration, rejects: &Path) -> serde_json::Value {
    let sum = copied.sum();
    let of_table = |counts: &Counts| json!({ "copied": counts.written, "unchanged": counts.unchanged, "rejected": counts.rejected });
    let tables = copied.tables.iter().map(|(table, counts)| (table.clone(), of_table(counts)));
    json!({
        "report": "copy", "copied": sum.written, "unchanged": sum.unchanged, "rejected": sum.rejected,
        "throttled": copied.throttled, "retried": copied.retried, "seconds": elapsed.as_secs_f64(),
        "tables": tables.collect::<serde_json::Map<_, _>>(), "failed": copied.failed,
        "remarks": copied.remarks,
        "rejects": (sum.rejected > 0).then(|| rejects.display().to_string()),
    })
}

impl CopyJob<'_> {
    /// Prints the entities that would be copied, changed and deleted.
    ///
    /// # Errors
    /// [`TransferEnd::Rejected`] if some entities cannot be copied.
    pub(super) fn print_dry_run(
        &self,
        source: &dyn TransferSource,
        survey: &Survey,
        reading: Duration,
        effects: Option<&Effects>,
    ) -> Result<(), TransferEnd> {
        let entities: u64 = survey.tables.values().sum();
        let mut text: String =
            survey.tables.iter().map(|(table, entities)| format!("{entities:>12}  {table}\n")).collect();
        text.push_str(&format!(
            "{entities:>12}  in {} tables would be copied, {} cannot be; nothing was changed\n\
             {:>12}  MB are in their keys and properties; reading them took {:.1} s; a copy also writes them, \
             which takes longer",
            survey.tables.len(),
            survey.rejected,
            format!("{:.1}", survey.bytes as f64 / 1e6),
            reading.as_secs_f64(),
        ));
        let more: Vec<String> =
            effects.iter().flat_map(|effects| effects.lines(self.arguments.mode)).collect();
        more.iter().for_each(|line| text.push_str(&format!("\n{line}")));
        let inferred: Vec<_> = source
            .inferences()
            .into_iter()
            .flat_map(Inferences::notable)
            .map(|(table, property, types)| {
                json!({
                    "table": table, "property": property, "types": types.types, "untyped": types.untyped,
                    "looksLike": types.looks_like(), "withoutZone": types.without_zone,
                })
            })
            .collect();
        let value = json!({
            "report": "dryRun", "dryRun": true, "remarks": source.inferences().map(Inferences::remarks),
            "tables": survey.tables, "entities": entities, "rejected": survey.rejected,
            "bytes": survey.bytes, "readSeconds": reading.as_secs_f64(),
            "inferred": inferred,
            "different": effects.map(|effects| effects.different),
            "deleted": effects.map(|effects| effects.deleted),
            "deletedTables": effects.map(|effects| &effects.deleted_tables),
        });
        self.arguments.form.print(&text, &value)?;
        if survey.rejected > 0 { Err(TransferEnd::Rejected) } else { Ok(()) }
    }

    pub(super) fn summarize(
        &self,
        copied: &CopySummary,
        elapsed: Duration,
        files: &CopyFiles,
    ) -> Result<(), TransferEnd> {
        let text = text_of(copied, elapsed, &files.rejects);
        let text = format!("{} -> {}\n{text}", self.from.display(), self.to.display());
        let mut value = json_of(copied, elapsed, &files.rejects);
        (value["from"], value["to"]) = (self.from.display().into(), self.to.display().into());
        match self.to.is_standard() {
            true => self.arguments.form.print_beside_data(&text, &value)?,
            false => self.arguments.form.print(&text, &value)?,
        }
        Ok(())
    }
}

/// Returns the failure of a copy with failed tables.
pub(super) fn failure_of(copied: &CopySummary) -> Option<TransferEnd> {
    let (table, reason) = copied.failed.first_key_value()?;
    let others = match copied.failed.len() - 1 {
        0 => String::new(),
        others => format!("; {others} other tables failed too, with reasons in the summary"),
    };
    Some(TransferEnd::Failed(format!("{table}: {reason}{others}")))
}

/// Adds a hint on how to continue an interrupted or failed copy.
pub(super) fn with_state_hint(ended: TransferEnd, files: &CopyFiles) -> TransferEnd {
    let Some(state) = &files.state else { return ended };
    let hint = format!("the same command continues the copy; the state is in {}", state.display());
    match ended {
        TransferEnd::Failed(text) => TransferEnd::Failed(format!("{text}\n{hint}")),
        TransferEnd::Interrupted(text) => TransferEnd::Interrupted(format!("{text}\n{hint}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_many_tables_is_short_and_shows_those_with_rejected_entities() {
        let counts = |at| Counts { written: 1, rejected: u64::from(at == 999), ..Counts::default() };
        let tables = (0..1000).map(|at| (format!("t{at:04}"), counts(at))).collect();
        let text = text_of(&CopySummary { tables, ..CopySummary::default() }, Duration::ZERO, Path::new("r"));
        assert!(text.starts_with("t0999: 1 copied") && text.contains("and 980 more tables"), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }
}
