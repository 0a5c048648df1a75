//! `rowhouse follow`.

mod report;

use std::io::{IsTerminal as _, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::SignalKind;

use super::arguments::{
    FileArguments, RunArguments, TablePatterns, TransferSession, check_matches, parse_places, refuse_ranged,
    require_confirmation,
};
use crate::cli::output::{OutputForm, TransferEnd, warn};
use crate::cli::transfer::copying::default_state;
use crate::transfer::{
    Checkpoint, DataLocation, Fingerprint, Follow, FollowOptions, FollowPlaces, FollowProof, FollowRound,
    NameCase, OpenLocation, Progress, ProgressForm, Rejects, Selection, TransferError,
};
use report::Reporter;

/// The longest pause after a failed round.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The interval at which a pause checks for the end.
const END_CHECK: Duration = Duration::from_millis(50);
const DEFAULT_INTERVAL: u16 = 10;
const DEFAULT_KEYS_PER_SECOND: u32 = 10_000;

/// The arguments of `rowhouse follow`.
#[derive(Debug, Args)]
pub(crate) struct FollowArguments {
    /// Source: an endpoint of Azure Tables, Rowhouse or Azurite, or a database of Rowhouse, in the same form as
    /// FROM of `rowhouse copy`
    from: String,
    /// Target: an endpoint, or a database of Rowhouse. Nothing else may write to its tables
    to: String,
    #[command(flatten)]
    tables: TablePatterns,
    /// End with a last round, and print its proof. Stop all writers of FROM first
    #[arg(long)]
    finish: bool,
    /// Seconds from the beginning of a round to the beginning of the next
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_INTERVAL, value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Maximum keys per second to compare before the last round, to find deleted entities
    #[arg(long, value_name = "KEYS", default_value_t = DEFAULT_KEYS_PER_SECOND, value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: u32,
    /// File for the state [default: rowhouse-follow-….state]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Begin again with a complete copy, instead of continuing from the state
    #[arg(long)]
    restart: bool,
    /// File for metrics in the text format of Prometheus, rewritten by each round
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Do not ask for confirmation before entities of TO are replaced or deleted
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    form: OutputForm,
}

/// Follows until the end is requested. After a failure, the places are opened again, because a file may contain a new
/// signature by then.
pub(crate) fn run(arguments: &FollowArguments) -> Result<(), TransferEnd> {
    let session = TransferSession::start(&arguments.run, &FileArguments::default())?;
    let finish = Arc::new(AtomicBool::new(arguments.finish));
    session.set_on_signal(SignalKind::user_defined1(), finish.clone())?;
    let mut reporter = Reporter::new(arguments.form, arguments.metrics.as_deref());
    let (mut wait, mut restart) = (Duration::from_secs(1), arguments.restart);
    loop {
        let rounds = reporter.rounds();
        let ended = follow(arguments, &session, &finish, std::mem::take(&mut restart), &mut reporter);
        let Err(TransferEnd::Failed(reason)) = ended else { return ended };
        // Before the first complete round, the arguments may be wrong. The last round must not delay its answer.
        if reporter.rounds() == 0 || finish.load(Ordering::Relaxed) {
            return Err(TransferEnd::Failed(reason));
        }
        wait = if reporter.rounds() > rounds { Duration::from_secs(1) } else { LONGEST_PAUSE.min(wait * 2) };
        reporter.report_failure(&reason, wait)?;
        let until = Instant::now() + wait;
        while Instant::now() < until && !finish.load(Ordering::Relaxed) {
            if session.stop.load(Ordering::Relaxed) {
                return Err(TransferEnd::Interrupted("interrupted; run the same command to continue".into()));
            }
            std::thread::sleep(END_CHECK);
        }
    }
}

/// The places of a follower, and its state.
struct FollowJob<'a> {
    arguments: &'a FollowArguments,
    session: &'a TransferSession,
    finish: &'a Arc<AtomicBool>,
    from: DataLocation,
    to: DataLocation,
    selection: Selection,
    state: PathBuf,
}

fn follow(
    arguments: &FollowArguments,
    session: &TransferSession,
    finish: &Arc<AtomicBool>,
    restart: bool,
    reporter: &mut Reporter<'_>,
) -> Result<(), TransferEnd> {
    let [from, to] = parse_places(&arguments.from, &arguments.to).map_err(|end| match end {
        // Someone may be renewing the file with a signature.
        TransferEnd::Usage(text) if reporter.rounds() > 0 => TransferEnd::Failed(text),
        end => end,
    })?;
    refuse_unsuited(&from, &to)?;
    let selection = arguments.tables.selection(NameCase::Ignored);
    let state = arguments.state.clone().unwrap_or_else(|| default_state("follow", [&from, &to]));
    let job = FollowJob { arguments, session, finish, from, to, selection, state };
    let opener = session.opener(&job.selection);
    let source = opener.open_source(&job.from).map_err(|error| job.explain(error.on("FROM")))?;
    let target = opener.open_target(&job.to).map_err(|error| job.explain(error.on("TO")))?;
    let places = FollowPlaces {
        source: source.as_source()?,
        existing: target.as_source()?,
        target: target.as_target()?,
    };
    let checkpoint = job.open_state(&places, restart)?;
    let rejects_file = job.state.with_added_extension("rejects.jsonl");
    let rejects = Rejects::open(&rejects_file, !restart)?;
    let options = FollowOptions {
        selection: &job.selection,
        concurrency: session.concurrency,
        rate_limit: arguments.rate_limit,
        interval: Duration::from_secs(arguments.interval.into()),
        keeps_timestamps: [&source, &target].iter().all(|place| matches!(place, OpenLocation::Database(_))),
        progress: arguments.run.progress,
        stop: &session.stop,
        finish,
    };
    let follow = Follow::new(places, &options, &checkpoint, &rejects)?;
    if reporter.rounds() == 0 {
        job.confirm_after_proof(&follow)?;
        finish_on_enter(finish.clone());
    }
    let ended = job.follow_until_proof(&follow, reporter);
    follow.take_remarks().iter().for_each(|remark| warn(remark));
    match ended {
        Ok(proof) => reporter.report_proof(&proof, &rejects_file),
        Err(TransferError::Interrupted) => Err(TransferEnd::Interrupted(format!(
            "interrupted; run the same command to continue from the state in {}",
            job.state.display()
        ))),
        Err(error) => Err(job.explain(error).into()),
    }
}

impl FollowJob<'_> {
    /// Opens the state of an earlier run, or creates one after a confirmation.
    fn open_state(&self, places: &FollowPlaces<'_>, restart: bool) -> Result<Checkpoint, TransferEnd> {
        let fingerprint = Fingerprint::default()
            .with("FROM", self.from.identity())
            .with("TO", self.to.identity())
            .with("account", [self.from.account(), self.to.account()])
            .with("--include or --exclude", &self.arguments.tables);
        match Checkpoint::find(&self.state, &fingerprint, restart)? {
            Some(begun) if !restart => Ok(begun),
            None if restart => Err(TransferEnd::Usage(format!(
                "--restart: there is no state in {}; leave the option out",
                self.state.display()
            ))),
            begun => {
                self.confirm_first_copy(places)?;
                if let Some(begun) = begun {
                    begun.remove();
                }
                Ok(Checkpoint::create(&self.state, &fingerprint)?)
            }
        }
    }

    fn follow_until_proof(
        &self,
        follow: &Follow<'_>,
        reporter: &mut Reporter<'_>,
    ) -> Result<FollowProof, TransferError> {
        if !follow.is_copied() {
            follow.copy_initially()?;
        }
        if !self.finish.load(Ordering::Relaxed) {
            follow.run_rounds(&mut |round: &FollowRound| reporter.report(round))?;
        }
        follow.finish()
    }

    /// Asks before a run that would delete what applications have added to TO since an earlier run ended.
    fn confirm_after_proof(&self, follow: &Follow<'_>) -> Result<(), TransferEnd> {
        let Some(proved) = follow.proved_at() else { return Ok(()) };
        let question = format!(
            "an earlier run has proved at {} that FROM and TO are equal; entities and tables that applications have \
             added to TO since will be deleted",
            proved.to_canonical()
        );
        require_confirmation(&question, self.arguments.yes)
    }

    /// Adds to a refusal of a signature which one has to be renewed. The text of the error begins with its place.
    fn explain(&self, error: TransferError) -> TransferError {
        let text = error.to_string();
        let (side, place) = if text.starts_with("TO") { ("TO", &self.to) } else { ("FROM", &self.from) };
        match place.signature_expiry() {
            Some(expiry) if text.contains("AuthenticationFailed") || text.contains("Authorization") => {
                TransferError::Failed(format!(
                    "{text}; the signature of {side} is valid until {expiry}: renew it in the file that {side} names, \
                     or run the command again with a new one"
                ))
            }
            _ => error,
        }
    }

    /// Asks before the first copy if TO has entities, which follow FROM from then on.
    fn confirm_first_copy(&self, places: &FollowPlaces<'_>) -> Result<(), TransferEnd> {
        let all = places.source.tables().map_err(|error| self.explain(error.on("FROM")))?;
        check_matches(&self.selection, &all)?;
        let tables: Vec<String> = all.into_iter().filter(|table| self.selection.has_table(table)).collect();
        if tables.is_empty() {
            return Err(TransferEnd::Usage("FROM has no table to follow".into()));
        }
        let theirs = places.existing.tables().map_err(|error| self.explain(error.on("TO")))?;
        let is_there = |name: &&String| theirs.iter().any(|other| other.eq_ignore_ascii_case(name));
        let include: Vec<String> = tables.iter().filter(is_there).cloned().collect();
        if include.is_empty() || self.arguments.yes {
            return Ok(());
        }
        let progress = Progress::start(ProgressForm::Off, "counted");
        let there = Selection { include, ..Selection::default() };
        let counted = self.session.walk(places.existing, &there, &progress).count()?;
        let filled = counted.iter().filter(|(_, entities)| **entities > 0);
        let filled: Vec<String> = filled.map(|(table, entities)| format!("{table} ({entities})")).collect();
        if filled.is_empty() {
            return Ok(());
        }
        let question = format!(
            "TO has entities in {}; those that FROM lacks will be deleted, and those that differ will be replaced",
            filled.join(", ")
        );
        require_confirmation(&question, false)
    }
}

/// Sets a flag when the Enter key is pressed at a terminal.
fn finish_on_enter(finish: Arc<AtomicBool>) {
    if !stdin().is_terminal() {
        return;
    }
    std::thread::spawn(move || {
        while !is_enter_pressed() {
            std::thread::sleep(END_CHECK);
        }
        if stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0) {
            finish.store(true, Ordering::Relaxed);
        }
    });
}

/// Whether a line can be read from the terminal. A read in the background of its terminal would stop the command.
fn is_enter_pressed() -> bool {
    let stdin = stdin();
    let foreground = rustix::termios::tcgetpgrp(&stdin);
    let is_in_background = foreground.is_ok_and(|group| group != rustix::process::getpgrp());
    let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
    !is_in_background
        && poll(&mut ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Refuses places that cannot be followed or written to.
fn refuse_unsuited(from: &DataLocation, to: &DataLocation) -> Result<(), TransferEnd> {
    refuse_ranged("follow", &[from, to])?;
    for (side, place) in [("FROM", from), ("TO", to)] {
        let reason = match place {
            DataLocation::Dump(_) | DataLocation::File(..) | DataLocation::Standard => {
                "is a file or dump, which does not change"
            }
            _ if place.is_cosmos() => "is Cosmos DB, which has no filter on Timestamp and no order of keys",
            _ if place.is_secondary() => "is a secondary region, whose changes arrive late",
            DataLocation::Endpoint(_) | DataLocation::Database(..) => continue,
        };
        return Err(TransferEnd::Usage(format!(
            "follow: {side} {reason}; give another place, or use rowhouse copy"
        )));
    }
    Ok(())
}
