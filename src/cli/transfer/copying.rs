//! `rowhouse copy`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::arguments::{FileArguments, RunArguments, SelectionArguments, TransferSession, confirmed, place};
use super::ended::TransferEnd;
use super::verifying::{deleted, report};
use crate::cli::output::{OutputForm, warn};
use crate::model::{TableName, Ticks};
use crate::transfer::{
    Checkpoint, Comparison, CopyOptions, CopySummary, Mode, Place, Progress, Rejects, Selection,
    TransferSource, TransferTarget, copy, count,
};

/// The arguments of `rowhouse copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Connection string, https:// address with a signature, sqlite: or postgres: URL, dump:FOLDER, a
    /// file of Azurite or another program, env:NAME or file:PATH
    from: String,
    /// The same, without files of other programs
    to: String,
    #[command(flatten)]
    selection: SelectionArguments,
    /// Copy only entities changed at this time or later, such as 2026-01-31T08:00:00Z
    #[arg(long, value_parser = time)]
    since: Option<Ticks>,
    /// What to do with entities that the target already has
    #[arg(long, value_enum, default_value_t = Mode::Insert)]
    mode: Mode,
    /// Name of a table in the target: People=People2; several separated by ','
    #[arg(long, value_name = "TABLE=NAME", value_delimiter = ',', value_parser = rename)]
    rename: Vec<(String, String)>,
    /// Maximum entities a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Copy the accounts with their encrypted keys too; both databases need the same master key
    #[arg(long)]
    accounts: bool,
    /// After the copy, delete entities that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    delete_extra: bool,
    /// The account in FROM, if that is a database [default: that of TO, or devstoreaccount1]
    #[arg(long)]
    from_account: Option<String>,
    /// The account in TO, if that is a database [default: that of FROM, or devstoreaccount1]
    #[arg(long)]
    to_account: Option<String>,
    /// Count what would be copied, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Continue an interrupted copy
    #[arg(long)]
    resume: bool,
    /// File with the state of the copy [default: rowhouse-copy-….state, or in the dump folder]
    #[arg(long)]
    state: Option<PathBuf>,
    /// File for entities that cannot be copied, as JSON lines [default: beside the state]
    #[arg(long)]
    rejects: Option<PathBuf>,
    /// Go on with the other tables if one fails
    #[arg(long)]
    keep_going: bool,
    /// Compare both places afterwards
    #[arg(long, conflicts_with = "rename")]
    verify: bool,
    /// Do not ask before existing entities are changed or deleted
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    form: OutputForm,
}

fn time(text: &str) -> Result<Ticks, String> {
    Ticks::parse(text).map_err(|_| "is not a time such as 2026-01-31T08:00:00Z".into())
}

fn rename(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("must be TABLE=NAME")?;
    let valid = TableName::parse(to).is_ok() && TableName::parse(from).is_ok();
    valid.then(|| (from.to_owned(), to.to_owned())).ok_or_else(|| "has an invalid table name".into())
}

/// Copies, and prints a summary.
///
/// # Errors
/// How it ended, unless everything was copied.
pub(crate) fn run(arguments: &CopyArguments) -> Result<(), TransferEnd> {
    let (from, to) = (place("FROM", &arguments.from)?, place("TO", &arguments.to)?);
    let from_account = arguments.from_account.as_deref().or(to.account()).or(arguments.to_account.as_deref());
    let to_account = arguments.to_account.as_deref().or(from.account()).or(arguments.from_account.as_deref());
    if from.shown() == to.shown() && from_account == to_account {
        return Err(TransferEnd::Usage("FROM and TO are the same".into()));
    }
    let selection = arguments.selection.selection(arguments.since);
    let session = TransferSession::start(&arguments.run, &arguments.files, &[&from, &to])?;
    let connected = session.connecting(&selection, from_account).source(&from)?;
    let source = connected.as_source()?;
    if arguments.dry_run {
        return rehearse(arguments, source, &selection, &session);
    }
    // The selection applies to the source only.
    let unfiltered = Selection::default();
    let written = session.connecting(&unfiltered, to_account).target(&to)?;
    let target = written.as_target()?;
    if arguments.accounts {
        let copied = connected.copy_accounts(&written)?;
        warn(&format!("{copied} accounts copied; existing ones were left as they are"));
    }
    confirm(arguments, source, target, &selection)?;
    let mut files = Files::of(arguments, &from, &to);
    if let (Place::Dump(folder), None) = (&to, &arguments.state) {
        files.state = folder.join("copy.state");
    }
    let fingerprint = format!(
        "{} {from_account:?} -> {} {to_account:?} {} {:?} {:?}",
        from.shown(),
        to.shown(),
        selection.fingerprint(),
        arguments.mode,
        arguments.rename
    );
    for (table, rejected) in source.rejected() {
        warn(&format!("{table}: {}: {}", rejected.reason, rejected.entity));
    }
    let checkpoint = Checkpoint::open(&files.state, &fingerprint, arguments.resume)?;
    let rejects = Rejects::new(&files.rejects);
    let options = CopyOptions {
        selection: &selection,
        mode: arguments.mode,
        concurrency: session.concurrency,
        keep_going: arguments.keep_going,
        with_policies: arguments.since.is_none(),
        with_properties: arguments.selection.is_everything() && arguments.since.is_none(),
        rate_limit: arguments.rate_limit,
        renames: &arguments.rename,
        stop: &session.stop,
    };
    for (table, rejected) in source.rejected().iter().filter(|_| !arguments.resume) {
        rejects.add(table, std::slice::from_ref(rejected)).map_err(TransferEnd::from)?;
    }
    let progress = Progress::start(arguments.run.progress, "copied");
    let done = copy(source, target, &options, &checkpoint, &rejects, &progress);
    let elapsed = progress.elapsed();
    drop(progress);
    let copied = done.map_err(|error| interrupted(error.into(), &files.state))?;
    if copied.failed.is_empty() {
        checkpoint.remove();
    }
    summarize(arguments, &copied, elapsed, &files)?;
    if !copied.failed.is_empty() {
        let text =
            format!("some tables failed; {} has the state: continue with --resume", files.state.display());
        return Err(TransferEnd::Failed(text));
    }
    let rejected = copied.sum().rejected > 0 || !source.rejected().is_empty();
    drop(written);
    if arguments.delete_extra || arguments.verify {
        let places = [(&from, from_account), (&to, to_account)];
        compare(arguments, source, places, &selection, &session)?;
    }
    if rejected { Err(TransferEnd::Rejected) } else { Ok(()) }
}

/// Adds how to continue an interrupted or failed copy.
fn interrupted(ended: TransferEnd, state: &std::path::Path) -> TransferEnd {
    match ended {
        TransferEnd::Failed(text) => TransferEnd::Failed(format!(
            "{text}\ncontinue with --resume; the state is in {}",
            state.display()
        )),
        other => other,
    }
}

/// The files of a copy.
struct Files {
    state: PathBuf,
    rejects: PathBuf,
}

impl Files {
    fn of(arguments: &CopyArguments, from: &Place, to: &Place) -> Self {
        let mut hasher = DefaultHasher::new();
        (from.shown(), to.shown(), &arguments.from_account, &arguments.to_account).hash(&mut hasher);
        let stem = format!("rowhouse-copy-{:08x}", hasher.finish() >> 32);
        let named =
            |given: &Option<PathBuf>, suffix| given.clone().unwrap_or(format!("{stem}.{suffix}").into());
        Self { state: named(&arguments.state, "state"), rejects: named(&arguments.rejects, "rejects.jsonl") }
    }
}

/// Counts what would be copied.
fn rehearse(
    arguments: &CopyArguments,
    source: &dyn TransferSource,
    selection: &Selection,
    session: &TransferSession,
) -> Result<(), TransferEnd> {
    let progress = Progress::start(arguments.run.progress, "counted");
    let counts = count(source, selection, session.concurrency, &progress, &session.stop)?;
    drop(progress);
    let entities: u64 = counts.values().sum();
    let mut text: String =
        counts.iter().map(|(table, entities)| format!("{entities:>12}  {table}\n")).collect();
    text.push_str(&format!(
        "{entities:>12}  in {} tables would be copied; nothing was changed",
        counts.len()
    ));
    arguments.form.print(&text, &json!({ "dryRun": true, "tables": counts, "entities": entities }))?;
    Ok(())
}

/// Asks before existing entities are changed.
fn confirm(
    arguments: &CopyArguments,
    source: &dyn TransferSource,
    target: &dyn TransferTarget,
    selection: &Selection,
) -> Result<(), TransferEnd> {
    let changes = matches!(arguments.mode, Mode::Merge | Mode::Replace) || arguments.delete_extra;
    if !changes || arguments.yes || arguments.resume {
        return Ok(());
    }
    let mut tables = Vec::new();
    for table in source.tables()?.into_iter().filter(|name| selection.has_table(name)) {
        let renamed = arguments.rename.iter().find(|(from, _)| from.eq_ignore_ascii_case(&table));
        let table = renamed.map_or(table, |(_, to)| to.clone());
        if target.has_entities(&table)? {
            tables.push(table);
        }
    }
    if tables.is_empty() {
        return Ok(());
    }
    let verb = if arguments.delete_extra { "change and delete" } else { "change" };
    confirmed(&format!("this may {verb} entities of {}", tables.join(", ")), false)
}

/// Deletes extra entities and compares both places, if requested. Both apply to whole tables, even
/// after a copy with `--since`.
fn compare(
    arguments: &CopyArguments,
    source: &dyn TransferSource,
    [(from, from_account), (to, to_account)]: [(&Place, Option<&str>); 2],
    selection: &Selection,
    session: &TransferSession,
) -> Result<(), TransferEnd> {
    let selection = &Selection { since: None, ..selection.clone() };
    let whole = match arguments.since {
        Some(_) => Some(session.connecting(selection, from_account).source(from)?),
        None => None,
    };
    let source = whole.as_ref().map_or(Ok(source), |whole| whole.as_source())?;
    let connected = match to {
        Place::Dump(_) => session.connecting(selection, to_account).source(to)?,
        _ => session.connecting(selection, to_account).target(to)?,
    };
    let progress = Progress::start(arguments.run.progress, "compared");
    let mut comparison = Comparison {
        source,
        target: connected.as_source()?,
        selection,
        with_timestamps: false,
        delete_extra: arguments.delete_extra.then(|| connected.as_target()).transpose()?,
        concurrency: session.concurrency,
        recheck_delay: Duration::from_secs(2),
        progress: &progress,
        stop: &session.stop,
    };
    if arguments.delete_extra {
        deleted(&arguments.form, &comparison.run()?)?;
    }
    if !arguments.verify {
        return Ok(());
    }
    comparison.delete_extra = None;
    let compared = comparison.run()?;
    drop(progress);
    report(&arguments.form, &compared)
}

fn summarize(
    arguments: &CopyArguments,
    copied: &CopySummary,
    elapsed: Duration,
    files: &Files,
) -> Result<(), TransferEnd> {
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
        "{} entities of {} tables copied, {} already there, {} rejected, in {:.1} s ({rate:.0}/s)",
        sum.written,
        copied.tables.len(),
        sum.unchanged,
        sum.rejected,
        elapsed.as_secs_f64(),
    ));
    if sum.rejected > 0 {
        text.push_str(&format!("\nrejected entities are in {}", files.rejects.display()));
    }
    let tables: serde_json::Map<String, serde_json::Value> = copied
        .tables
        .iter()
        .map(|(table, counts)| {
            let counts =
                json!({ "copied": counts.written, "unchanged": counts.unchanged, "rejected": counts.rejected });
            (table.clone(), counts)
        })
        .collect();
    let value = json!({
        "copied": sum.written, "unchanged": sum.unchanged, "rejected": sum.rejected,
        "seconds": elapsed.as_secs_f64(), "tables": tables, "failed": copied.failed,
        "rejects": (sum.rejected > 0).then(|| files.rejects.display().to_string()),
    });
    arguments.form.print(&text, &value)?;
    Ok(())
}
