//! What a copy did, as text and as JSON.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::transfer::{CopySummary, Counts};

/// Returns the summary for people, short enough for a ticket.
pub(super) fn text_of(copied: &CopySummary, elapsed: Duration, rejects: &Path) -> String {
    let sum = copied.sum();
    let rate = (sum.written + sum.unchanged) as f64 / elapsed.as_secs_f64().max(0.001);
    let mut text = String::new();
    for (table, counts) in &copied.tables {
        text.push_str(&format!(
            "{table}: {} copied, {} already there, {} rejected\n",
            counts.written, counts.unchanged, counts.rejected
        ));
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
        text.push_str(&format!("\nthe rejected ones are in {}", rejects.display()));
    }
    text
}

/// Returns the summary for programs.
pub(super) fn json_of(copied: &CopySummary, elapsed: Duration, rejects: &Path) -> serde_json::Value {
    let sum = copied.sum();
    let of_table = |counts: &Counts| json!({ "copied": counts.written, "unchanged": counts.unchanged, "rejected": counts.rejected });
    let tables = copied.tables.iter().map(|(table, counts)| (table.clone(), of_table(counts)));
    json!({
        "report": "copy", "copied": sum.written, "unchanged": sum.unchanged, "rejected": sum.rejected,
        "throttled": copied.throttled, "retried": copied.retried, "seconds": elapsed.as_secs_f64(),
        "tables": tables.collect::<serde_json::Map<_, _>>(), "failed": copied.failed,
        "rejects": (sum.rejected > 0).then(|| rejects.display().to_string()),
    })
}
