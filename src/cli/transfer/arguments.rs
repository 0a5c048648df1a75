//! Arguments that several commands share.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::cli::output::{TransferEnd, interruption, printable, warn};
use crate::protocol::model::{EdmType, TableName, Ticks};
use crate::transfer::{
    Comparison, DataLocation, FileFormat, FileOptions, NameCase, Opener, PageWalk, Progress, ProgressForm,
    Selection, TransferSource, refuse_unused_account,
};

/// The default number of pages in flight. More pages would use more than 100 MiB of memory, with little gain on one
/// machine.
const DEFAULT_CONCURRENCY: u16 = 4;
/// Maximum number of comparisons in a filter.
const MAX_COMPARISONS: usize = 1000;

/// Which tables a command applies to.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is taken")]
pub(crate) struct TablePatterns {
    /// Tables to include: names or patterns with * and ?, separated by ',' [default: all]
    #[arg(long, value_delimiter = ',')]
    include: Vec<String>,
    /// Tables to exclude: names or patterns with * and ?, separated by ','
    #[arg(long, value_delimiter = ',')]
    exclude: Vec<String>,
}

impl TablePatterns {
    pub(super) fn selection(&self, name_case: NameCase) -> Selection {
        Selection {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            name_case,
            max_comparisons: MAX_COMPARISONS,
            ..Selection::default()
        }
    }
}

/// Which tables and entities a command applies to.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is taken")]
pub(crate) struct SelectionArguments {
    #[command(flatten)]
    tables: TablePatterns,
    /// Include only entities that match this $filter
    #[arg(long)]
    filter: Option<String>,
}

/// How files of other programs are read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Files of other programs")]
pub(crate) struct FileArguments {
    /// Format of the file to read
    #[arg(long, value_enum, default_value_t = FileFormat::Auto)]
    format: FileFormat,
    /// Name of the table, for a file whose own name does not contain it
    #[arg(long)]
    table: Option<String>,
    /// Types of properties for which the file states no type, such as Count=Int64, separated by ','
    #[arg(long = "type", value_name = "PROPERTY=TYPE", value_delimiter = ',', value_parser = parse_property_type)]
    types: Vec<(String, EdmType)>,
}

fn parse_property_type(text: &str) -> Result<(String, EdmType), String> {
    let (name, edm_type) = text.split_once('=').ok_or("must be PROPERTY=TYPE")?;
    let full = format!("Edm.{}", edm_type.trim_start_matches("Edm."));
    let known = EdmType::ALL.into_iter().find(|known| known.name() == full);
    known.map(|known| (name.to_owned(), known)).ok_or_else(|| format!("{edm_type} is not a type"))
}

impl Default for FileArguments {
    fn default() -> Self {
        Self { format: FileFormat::Auto, table: None, types: Vec::new() }
    }
}

impl FileArguments {
    /// Refuses file options that have no effect, because no place is a file of another program.
    pub(super) fn refuse_without_files(&self, places: &[&DataLocation]) -> Result<(), TransferEnd> {
        let given = [
            (self.format != FileFormat::Auto, "--format"),
            (self.table.is_some(), "--table"),
            (!self.types.is_empty(), "--type"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, name)) if !places.iter().any(|place| place.is_read_as_files()) => {
                Err(TransferEnd::Usage(format!(
                    "{name}: applies only to files of other programs, and no place is such a file"
                )))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn options(&self) -> FileOptions {
        FileOptions { format: self.format, table: self.table.clone(), types: self.types.clone() }
    }
}

/// The concurrency of a run, and the form of its progress.
#[derive(Debug, Args)]
#[command(next_help_heading = "Progress")]
pub(crate) struct RunArguments {
    /// Maximum requests or pages in flight; fewer while an endpoint throttles
    #[arg(long, default_value_t = DEFAULT_CONCURRENCY, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Form of the progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    pub progress: ProgressForm,
}

impl SelectionArguments {
    pub(super) fn selection(
        &self,
        places: &[&DataLocation],
        since: Option<Ticks>,
    ) -> Result<Selection, TransferEnd> {
        let is_exact = places.iter().any(|place| place.name_case() == NameCase::Distinguished);
        let name_case = if is_exact { NameCase::Distinguished } else { NameCase::Ignored };
        let selection = self.tables.selection(name_case);
        check_filter("--filter", Selection { filter: self.filter.clone(), since, ..selection })
    }
}

/// Refuses a filter that is invalid or empty, such as one from an unset variable.
pub(super) fn check_filter(name: &str, selection: Selection) -> Result<Selection, TransferEnd> {
    let reason = match &selection.filter {
        Some(filter) if filter.trim().is_empty() => Some("is empty".to_owned()),
        _ => selection.predicate().err(),
    };
    reason.map_or(Ok(selection), |reason| Err(TransferEnd::Usage(format!("{name}: {reason}"))))
}

pub(super) fn parse_rename(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("must be TABLE=NAME")?;
    // The rules for names differ between Cosmos DB and Azure Tables.
    let valid = TableName::parse(to).is_ok() && !from.is_empty();
    valid.then(|| (from.to_owned(), to.to_owned())).ok_or_else(|| "has an invalid table name".into())
}

/// Refuses to rename tables that FROM does not have, and to give one table two names.
pub(super) fn refuse_unknown_renames(
    renames: &[(String, String)],
    source: &dyn TransferSource,
) -> Result<(), TransferEnd> {
    let (tables, case) = (source.tables().map_err(|error| error.on("FROM"))?, source.name_case());
    let is_unknown = |name: &&String| !tables.iter().any(|table| case.is_same(table, name));
    let is_repeated = |(at, (name, _)): &(usize, &(String, String))| {
        renames[..*at].iter().any(|(other, _)| case.is_same(other, name))
    };
    if let Some((_, (name, _))) = renames.iter().enumerate().find(is_repeated) {
        return Err(TransferEnd::Usage(format!("--rename: the table {name} has two names; give one")));
    }
    match renames.iter().map(|(from, _)| from).find(is_unknown) {
        Some(name) => Err(TransferEnd::Usage(format!("--rename: FROM has no table {name}"))),
        None => Ok(()),
    }
}

/// Refuses places whose signature covers only a range of keys, where the command must know that an entity is absent.
pub(super) fn refuse_ranged(argument: &str, places: &[&DataLocation]) -> Result<(), TransferEnd> {
    if !places.iter().any(|place| place.is_ranged()) {
        return Ok(());
    }
    let text = format!(
        "{argument}: the signature allows only a range of keys (spk, srk, epk, erk), so entities outside \
         seem to be absent; use a signature for the whole table"
    );
    Err(TransferEnd::Usage(text))
}

/// Refuses names that match none of these tables, and warns of patterns that match none.
pub(super) fn check_matches(selection: &Selection, tables: &[String]) -> Result<(), TransferEnd> {
    let (names, patterns) = selection.unmatched(tables);
    for pattern in patterns {
        warn(&format!("no table matches {pattern}"));
    }
    if names.is_empty() {
        return Ok(());
    }
    Err(TransferEnd::Usage(format!("there is no table {}", names.join(", "))))
}

/// The state of a run besides its arguments.
pub(super) struct TransferSession {
    pub stop: Arc<AtomicBool>,
    pub concurrency: usize,
    runtime: Arc<Runtime>,
    files: FileOptions,
    progress: ProgressForm,
}

impl TransferSession {
    /// Starts the threads, and installs handlers that stop the run on SIGINT and SIGTERM.
    pub(super) fn start(arguments: &RunArguments, files: &FileArguments) -> Result<Self, TransferEnd> {
        let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
        let stop = Arc::new(AtomicBool::new(false));
        let stop_on_signal = stop.clone();
        let _guard = runtime.enter();
        let interrupted = interruption()?;
        runtime.spawn(async move {
            interrupted.await;
            stop_on_signal.store(true, Ordering::Relaxed);
        });
        Ok(Self {
            stop,
            concurrency: usize::from(arguments.concurrency),
            runtime: runtime.clone(),
            files: files.options(),
            progress: arguments.progress,
        })
    }

    /// Sets a flag on a signal.
    pub(super) fn set_on_signal(&self, kind: SignalKind, flag: Arc<AtomicBool>) -> Result<(), TransferEnd> {
        let _guard = self.runtime.enter();
        let mut signal = signal(kind)?;
        self.runtime.spawn(async move {
            while signal.recv().await.is_some() {
                flag.store(true, Ordering::Relaxed);
            }
        });
        Ok(())
    }

    pub(super) fn walk<'a>(
        &'a self,
        source: &'a dyn TransferSource,
        selection: &'a Selection,
        progress: &'a Progress,
    ) -> PageWalk<'a> {
        PageWalk { source, selection, concurrency: self.concurrency, progress, stop: &self.stop }
    }

    /// Returns a comparison that deletes nothing. `renames` maps tables to their names in the target.
    pub(super) fn comparison<'a>(
        &'a self,
        [source, target]: [&'a dyn TransferSource; 2],
        renames: &'a [(String, String)],
        selection: &'a Selection,
        progress: &'a Progress,
    ) -> Comparison<'a> {
        Comparison {
            source,
            target,
            renames,
            selection,
            with_timestamps: false,
            delete_extra: None,
            max_delete: None,
            repair: None,
            concurrency: self.concurrency,
            recheck_delay: Duration::ZERO,
            progress,
            stop: &self.stop,
        }
    }

    pub(super) fn opener<'a>(&self, selection: &'a Selection) -> Opener<'a> {
        Opener {
            selection,
            concurrency: self.concurrency,
            stop: self.stop.clone(),
            runtime: self.runtime.clone(),
            files: self.files.clone(),
            progress: self.progress,
        }
    }
}

pub(super) fn parse_location(name: &str, text: &str) -> Result<DataLocation, TransferEnd> {
    let parsed = DataLocation::parse(text).and_then(|place| refuse_unused_account(&place).map(|()| place));
    parsed.map_err(|error| TransferEnd::Usage(format!("{name}: {error}")))
}

/// Parses two different places.
pub(super) fn parse_places(from: &str, to: &str) -> Result<[DataLocation; 2], TransferEnd> {
    let (mut from, mut to) = (parse_location("FROM", from)?, parse_location("TO", to)?);
    DataLocation::share_accounts(&mut from, &mut to);
    match from.is_same(&to) {
        true => Err(TransferEnd::Usage("FROM and TO are the same".into())),
        false => Ok([from, to]),
    }
}

/// Refuses a place with unread files for an argument that needs all entities.
pub(super) fn refuse_left_out(name: &str, place: &dyn TransferSource) -> Result<(), TransferEnd> {
    let Some(left_out) = place.left_out() else { return Ok(()) };
    let text = format!(
        "{name}: {left_out}; entities that seem missing or extra may be in such a file, so nothing is \
         copied, counted, compared or deleted: move such files elsewhere"
    );
    Err(TransferEnd::Usage(text))
}

/// Asks for confirmation; without a terminal, `--yes` is required.
pub(crate) fn require_confirmation(question: &str, is_confirmed: bool) -> Result<(), TransferEnd> {
    if is_confirmed {
        return Ok(());
    }
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(TransferEnd::Usage(format!("{question}; confirm with --yes")));
    }
    match ask(question)?.map(|line| line.trim().to_ascii_lowercase()).as_deref() {
        Some("y" | "yes") => Ok(()),
        Some(_) => Err(TransferEnd::Usage("nothing was done".into())),
        None => Err(TransferEnd::Interrupted("interrupted; nothing was done".into())),
    }
}

/// Asks a question and reads a line from standard input. Returns `None` if a signal comes first.
fn ask(question: &str) -> std::io::Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, receiver) = oneshot::channel();
    runtime.block_on(async {
        // Handle signals before the question is visible, because a signal is a valid answer.
        let interrupted = interruption()?;
        write!(stderr().lock(), "rowhouse: {}. Go on? [y/N] ", printable(question))?;
        // A signal does not end the read, so the thread may live as long as the process.
        std::thread::spawn(move || {
            let mut line = String::new();
            sender.send(stdin().lock().read_line(&mut line).map(|_| line))
        });
        tokio::select! {
            line = receiver => line.map_err(std::io::Error::other)?.map(Some),
            () = interrupted => Ok(None),
        }
    })
}
