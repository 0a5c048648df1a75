//! `rowhouse follow`.

mod report;

use std::io::{IsTerminal as _, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::SignalKind;

use super::arguments::{
    FileArguments, RunArguments, TablePatterns, TransferSession, check_matches, parse_places, refuse_ranged,
    require_confirmation,
};
use crate::cli::output::{OutputForm, TransferEnd, warn};
use crate::cli::transfer::copying::default_state;
use crate::transfer::{
    Checkpoint, DataLocation, Fingerprint, Follow, FollowOptions, FollowPlaces, FollowRound, NameCase,
    OpenLocation, Progress, ProgressForm, Rejects, Selection, TransferError,
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
    /// Target: an endpoint or a database of Rowhouse. Nothing else may write to its tables
    to: String,
    #[command(flatten)]
    tables: TablePatterns,
    /// End with a last round, after all writers of FROM have stopped, and print what it proves
    #[arg(long)]
    finish: bool,
    /// Seconds from the beginning of a round to the beginning of the next
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_INTERVAL, value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Maximum keys per second that are compared between rounds, to find deleted entities
    #[arg(long, value_name = "KEYS", default_value_t = DEFAULT_KEYS_PER_SECOND, value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: u32,
    /// File for the state [default: rowhouse-follow-….state]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Begin again with a complete copy, instead of continuing from the state
    #[arg(long)]
    restart: bool,
    /// File for metrics in the text format of Prometheus, renewed by each round
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
        // The arguments of a first round may be wrong, and the last round must not delay its answer.
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

fn follow(
    arguments: &FollowArguments,
    session: &TransferSession,
    finish: &Arc<AtomicBool>,
    restart: bool,
    reporter: &mut Reporter<'_>,
) -> Result<(), TransferEnd> {
    let [from, to] = parse_places(&arguments.from, &arguments.to)?;
    refuse_unsuited(&from, &to)?;
    let selection = arguments.tables.selection(NameCase::Ignored);
    let fingerprint = Fingerprint::default()
        .with("FROM", from.display())
        .with("TO", to.display())
        .with("account", [from.account(), to.account()])
        .with("--include or --exclude", &arguments.tables);
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => default_state("follow", [&from, &to]),
    };
    let named = |side: &'static str, place: &DataLocation| {
        let expiry = place.signature_expiry();
        move |error: TransferError| explain_expiry(error.on(side), side, expiry.as_deref())
    };
    let opener = session.opener(&selection);
    let source = opener.open_source(&from).map_err(named("FROM", &from))?;
    let target = opener.open_target(&to).map_err(named("TO", &to))?;
    let places = FollowPlaces {
        source: source.as_source()?,
        existing: target.as_source()?,
        target: target.as_target()?,
    };
    let begun = Checkpoint::find(&state, &fingerprint, restart)?;
    let checkpoint = match begun {
        Some(begun) if !restart => begun,
        None if restart => {
            let text = format!("--restart: there is no state in {}; leave the option out", state.display());
            return Err(TransferEnd::Usage(text));
        }
        begun => {
            confirm(arguments, session, &places, &selection)?;
            if let Some(begun) = begun {
                begun.remove();
            }
            Checkpoint::create(&state, &fingerprint)?
        }
    };
    let rejects_file = state.with_added_extension("rejects.jsonl");
    let rejects = Rejects::open(&rejects_file, !restart)?;
    let options = FollowOptions {
        selection: &selection,
        concurrency: session.concurrency,
        rate_limit: arguments.rate_limit,
        interval: Duration::from_secs(arguments.interval.into()),
        keeps_timestamps: [&source, &target].iter().all(|place| matches!(place, OpenLocation::Database(_))),
        progress: arguments.run.progress,
        stop: &session.stop,
        finish,
    };
    let follow = Follow::new(places, &options, &checkpoint, &rejects)?;
    if let Some(proved) = follow.proved_at().filter(|_| !arguments.yes && reporter.rounds() == 0) {
        let question = format!(
            "an earlier run has proved at {} that FROM and TO are equal; entities and tables that applications have \
             added to TO since will be deleted",
            proved.to_canonical()
        );
        require_confirmation(&question, false)?;
    }
    if reporter.rounds() == 0 {
        finish_on_enter(finish.clone());
    }
    let explain = |error: TransferError| match error.to_string().starts_with("TO") {
        true => named("TO", &to)(error),
        false => named("FROM", &from)(error),
    };
    let ended = (|| {
        if !follow.is_copied() {
            follow.copy_initially()?;
        }
        if !finish.load(Ordering::Relaxed) {
            follow.run_rounds(&mut |round: &FollowRound| reporter.report(round))?;
        }
        follow.finish()
    })();
    follow.take_remarks().iter().for_each(|remark| warn(remark));
    match ended {
        Ok(proof) => reporter.report_proof(&proof, &rejects_file),
        Err(TransferError::Interrupted) => Err(TransferEnd::Interrupted(format!(
            "interrupted; run the same command to continue, the state is in {}",
            state.display()
        ))),
        Err(error) => Err(explain(error).into()),
    }
}

/// Sets a flag when the Enter key is pressed at a terminal.
fn finish_on_enter(finish: Arc<AtomicBool>) {
    // Reading would stop a command in the background of its terminal.
    let foreground = rustix::termios::tcgetpgrp(stdin());
    let is_in_background = foreground.is_ok_and(|group| group != rustix::process::getpgrp());
    if !stdin().is_terminal() || is_in_background {
        return;
    }
    std::thread::spawn(move || {
        if stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0) {
            finish.store(true, Ordering::Relaxed);
        }
    });
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

/// Adds to a refusal of a signature which one has to be renewed.
fn explain_expiry(error: TransferError, side: &str, expiry: Option<&str>) -> TransferError {
    let text = error.to_string();
    match expiry {
        Some(expiry) if text.contains("AuthenticationFailed") || text.contains("Authorization") => {
            TransferError::Failed(format!(
                "{text}; the signature of {side} is valid until {expiry}: renew it in the file that {side} names, or \
                 run the command again with a new one"
            ))
        }
        _ => error,
    }
}

/// Asks before the first copy if TO has entities, which follow FROM from then on.
fn confirm(
    arguments: &FollowArguments,
    session: &TransferSession,
    places: &FollowPlaces<'_>,
    selection: &Selection,
) -> Result<(), TransferEnd> {
    let all = places.source.tables().map_err(|error| error.on("FROM"))?;
    check_matches(selection, &all)?;
    let tables: Vec<String> = all.into_iter().filter(|table| selection.has_table(table)).collect();
    if tables.is_empty() {
        return Err(TransferEnd::Usage("FROM has no table to follow".into()));
    }
    let theirs = places.existing.tables().map_err(|error| error.on("TO"))?;
    let is_there = |name: &&String| theirs.iter().any(|other| other.eq_ignore_ascii_case(name));
    let include: Vec<String> = tables.iter().filter(is_there).cloned().collect();
    if include.is_empty() || arguments.yes {
        return Ok(());
    }
    let progress = Progress::start(ProgressForm::Off, "counted");
    let there = Selection { include, ..Selection::default() };
    let counted = session.walk(places.existing, &there, &progress).count()?;
    let filled: Vec<String> = counted
        .iter()
        .filter(|(_, entities)| **entities > 0)
        .map(|(table, entities)| format!("{table} ({entities})"))
        .collect();
    if filled.is_empty() {
        return Ok(());
    }
    let question = format!(
        "TO has entities in {}; those that FROM lacks will be deleted, and those that differ will be replaced",
        filled.join(", ")
    );
    if arguments.form.json {
        warn(&question);
    }
    require_confirmation(&question, false)
}
