//! Reports the rounds of a follower: as text, as JSON lines and as metrics.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::output::{OutputForm, TransferEnd, warn};
use crate::protocol::model::Ticks;
use crate::transfer::{Counts, FollowProof, FollowRound, FollowedCounts, TransferError};

/// Maximum tables in the text form of a round. The JSON form has all of them.
const MAX_SHOWN: usize = 20;

pub(super) struct Reporter<'a> {
    form: OutputForm,
    metrics: Option<&'a Path>,
    rounds: u64,
    failures: u64,
    sum: Counts,
    deleted: u64,
    /// The lag of the last complete round, and when it was measured.
    lag: Option<(Duration, Instant)>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(form: OutputForm, metrics: Option<&'a Path>) -> Self {
        Self { form, metrics, rounds: 0, failures: 0, sum: Counts::default(), deleted: 0, lag: None }
    }

    /// Returns the number of complete rounds.
    pub(super) const fn rounds(&self) -> u64 {
        self.rounds
    }

    pub(super) fn report(&mut self, round: &FollowRound) -> Result<(), TransferError> {
        self.add(round);
        let text = format!("round {}{}", self.rounds, text_of(round));
        let printed = self.form.print(&text, &json_of(round, self.rounds));
        printed.map_err(|problem| TransferError::Usage(problem.0))?;
        self.write_metrics(Some(round));
        Ok(())
    }

    fn add(&mut self, round: &FollowRound) {
        let (counts, deleted) = round.sum();
        self.rounds += 1;
        self.sum += counts;
        self.deleted += deleted;
        self.lag = Some((Duration::from_secs_f64(round.lag()), Instant::now()));
    }

    /// Reports a round that failed and will be repeated.
    pub(super) fn report_failure(&mut self, reason: &str, wait: Duration) -> Result<(), TransferEnd> {
        self.failures += 1;
        let lag = self.lag.map(|(lag, measured)| (lag + measured.elapsed()).as_secs_f64());
        warn(&format!("{reason}; the next round begins in {} s", wait.as_secs()));
        if self.form.json {
            self.form.print("", &json!({ "report": "followFailure", "error": reason, "lagSeconds": lag }))?;
        }
        self.write_metrics(None);
        Ok(())
    }

    /// Prints the proof.
    ///
    /// # Errors
    /// [`TransferEnd::Rejected`] or [`TransferEnd::Differs`] unless the places are proved to be equal.
    pub(super) fn report_proof(&mut self, proof: &FollowProof, rejects: &Path) -> Result<(), TransferEnd> {
        self.add(&proof.round);
        let mut text = format!("last round{}\n", text_of(&proof.round));
        let time = proof.round.time.to_canonical();
        let entities = format!(
            "entities: every change until {time} was read by its Timestamp, compared and written\n\
             keys: the last round compared {} of {} tables completely; the others had no write since their last \
             comparison. The oldest comparison began at {}",
            proof.compared_tables,
            proof.round.tables.len(),
            describe_time(proof.round.keys_compared()),
        );
        text.push_str(&entities);
        let policies = describe_time(proof.policies_compared);
        text.push_str(&format!("\npolicies: the oldest comparison began at {policies}"));
        for table in &proof.extra_tables {
            text.push_str(&format!("\nnot followed: the table {table} of TO, which FROM does not have"));
        }
        proof.differing.iter().for_each(|table| text.push_str(&format!("\n{table}: keys differ")));
        proof.unread.iter().for_each(|reason| text.push_str(&format!("\nnot compared: {reason}")));
        if proof.rejected > 0 {
            let (rejected, file) = (proof.rejected, rejects.display());
            text.push_str(&format!("\nTO did not accept {rejected} entities, which are in {file}"));
        }
        text.push_str(if proof.is_equal() { "\nequal" } else { "\nnot proved equal" });
        let mut value = json_of(&proof.round, self.rounds);
        value["report"] = "followProof".into();
        value["equal"] = proof.is_equal().into();
        value["rejected"] = proof.rejected.into();
        value["differing"] = json!(proof.differing);
        value["notCompared"] = json!(proof.unread);
        value["comparedTables"] = proof.compared_tables.into();
        value["extraTables"] = json!(proof.extra_tables);
        value["policiesCompared"] = json!(proof.policies_compared.map(Ticks::to_canonical));
        self.form.print(&text, &value)?;
        self.write_metrics(Some(&proof.round));
        match proof.is_equal() {
            true => Ok(()),
            false if proof.rejected > 0 => Err(TransferEnd::Rejected),
            false => Err(TransferEnd::Differs),
        }
    }

    /// Replaces the file of metrics; a failure is only a warning. Tables are omitted after a failed round.
    fn write_metrics(&self, round: Option<&FollowRound>) {
        let Some(path) = self.metrics else { return };
        let new = path.with_added_extension("new");
        let written =
            std::fs::write(&new, self.metrics_text(round)).and_then(|()| std::fs::rename(&new, path));
        if let Err(error) = written {
            warn(&format!("--metrics: {}: {error}", path.display()));
        }
    }

    fn metrics_text(&self, round: Option<&FollowRound>) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            let _ =
                writeln!(text, "# HELP rowhouse_follow_{name} {help}\n# TYPE rowhouse_follow_{name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(text, "rowhouse_follow_{name}{labels} {value}");
            }
        };
        let single = |value: f64| vec![(String::new(), value)];
        let outcome = |name: &str, count: u64| (format!("{{outcome=\"{name}\"}}"), count as f64);
        family("rounds_total", "counter", "Complete rounds.", single(self.rounds as f64));
        family("failed_rounds_total", "counter", "Rounds that failed.", single(self.failures as f64));
        let entities = vec![
            outcome("written", self.sum.written),
            outcome("unchanged", self.sum.unchanged),
            outcome("rejected", self.sum.rejected),
            outcome("deleted", self.deleted),
        ];
        family("entities_total", "counter", "Entities by outcome.", entities);
        let lag = self.lag.map_or(0.0, |(lag, measured)| (lag + measured.elapsed()).as_secs_f64());
        family("lag_seconds", "gauge", "Time since the last reading of changes began.", single(lag));
        let Some(round) = round else { return text };
        family("round_seconds", "gauge", "Duration of the last round.", single(round.seconds));
        let of_tables = |value: &dyn Fn(&FollowedCounts) -> Option<f64>| {
            let sample = |(table, counts): (&String, &FollowedCounts)| {
                value(counts).map(|value| (format!("{{table=\"{table}\"}}"), value))
            };
            round.tables.iter().filter_map(sample).collect::<Vec<_>>()
        };
        family("table_lag_seconds", "gauge", "Lag of a table.", of_tables(&|counts| Some(counts.lag)));
        let compared = of_tables(&|counts| counts.keys_compared.map(|time| time.unix_seconds() as f64));
        family(
            "table_keys_compared_timestamp_seconds",
            "gauge",
            "When the last comparison of keys began.",
            compared,
        );
        text
    }
}

fn describe_time(time: Option<Ticks>) -> String {
    time.map_or_else(|| "never".to_owned(), Ticks::to_canonical)
}

/// Describes a round: its sums, and the tables that it has changed.
fn text_of(round: &FollowRound) -> String {
    let (counts, deleted) = round.sum();
    let mut text = format!(
        " in {:.1} s: {} written, {deleted} deleted, {} rejected; {} tables, lag {:.1} s, keys compared {}",
        round.seconds,
        counts.written,
        counts.rejected,
        round.tables.len(),
        round.lag(),
        describe_time(round.keys_compared()),
    );
    let has_changed =
        |counts: &FollowedCounts| counts.counts.written + counts.counts.rejected + counts.deleted > 0;
    let shows_all = round.tables.len() <= MAX_SHOWN;
    let is_shown = |counts: &FollowedCounts| shows_all || has_changed(counts);
    let shown: Vec<_> = round.tables.iter().filter(|(_, counts)| is_shown(counts)).collect();
    for (table, FollowedCounts { counts, deleted, lag, keys_compared }) in shown.iter().take(MAX_SHOWN) {
        text.push_str(&format!(
            "\n  {table}: {} written, {deleted} deleted, {} rejected, lag {lag:.1} s, keys compared {}",
            counts.written,
            counts.rejected,
            describe_time(*keys_compared),
        ));
    }
    if shown.len() > MAX_SHOWN {
        text.push_str(&format!("\n  and {} more tables, which --json lists", shown.len() - MAX_SHOWN));
    }
    round.remarks.iter().for_each(|remark| text.push_str(&format!("\n  {remark}")));
    text
}

fn json_of(round: &FollowRound, number: u64) -> Value {
    let of_table = |counts: &FollowedCounts| {
        json!({
            "written": counts.counts.written, "unchanged": counts.counts.unchanged,
            "rejected": counts.counts.rejected, "deleted": counts.deleted, "lagSeconds": counts.lag,
            "keysCompared": counts.keys_compared.map(Ticks::to_canonical),
        })
    };
    let tables = round.tables.iter().map(|(table, counts)| (table.clone(), of_table(counts)));
    let (counts, deleted) = round.sum();
    json!({
        "report": "follow", "round": number, "time": round.time.to_canonical(),
        "seconds": round.seconds, "lagSeconds": round.lag(), "written": counts.written,
        "unchanged": counts.unchanged, "deleted": deleted, "rejected": counts.rejected,
        "keysCompared": round.keys_compared().map(Ticks::to_canonical), "throttled": round.throttled,
        "tables": tables.collect::<serde_json::Map<_, _>>(), "remarks": round.remarks,
    })
}
