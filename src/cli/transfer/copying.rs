//! `rowhouse copy`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::arguments::{
    FileArguments, LocationAccounts, RunArguments, SelectionArguments, TransferSession, check_matches,
    confirmed, location, refuse_unknown_renames, rename,
};
use super::ended::TransferEnd;
use super::rejected::{list_rejected, record_unread, warn_of_rejected, warn_of_remarks};
use super::summary;
use super::verifying::{deleted, report};
use crate::cli::output::{OutputForm, warn};
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::model::Ticks;
use crate::server::config::MasterKeySettings;
use crate::transfer::{
    Checkpoint, Comparison, CopyOptions, CopySummary, DataLocation, Mode, OpenLocation, Progress, Rejects,
    Selection, SettingsRule, Survey, TransferError, TransferSource, copy, name_problems,
};

/// The arguments of `rowhouse copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Connection string, https:// address with a signature, sqlite: or postgres: URL, dump:FOLDER, a
    /// file of Azurite or another program, env:NAME or file:PATH
    from: String,
    /// The same, without files of other programs; a new FILE.ndjson.zst becomes a dump in one file
    to: String,
    #[command(flatten)]
    selection: SelectionArguments,
    /// Copy only entities changed at this time or later, such as 2026-01-31T08:00:00Z
    #[arg(long, value_parser = time)]
    since: Option<Ticks>,
    /// What to do with entities that the target already has
    #[arg(long, value_enum, default_value_t = Mode::Insert)]
    pub mode: Mode,
    /// Name of a table in the target: People=People2; several separated by ','
    #[arg(long, value_name = "TABLE=NAME", value_delimiter = ',', value_parser = rename)]
    rename: Vec<(String, String)>,
    /// Maximum entities a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Copy the accounts with their encrypted keys too; both databases need the same master key
    #[arg(long)]
    accounts: bool,
    #[command(flatten)]
    master_key: MasterKeySettings,
    /// After the copy, delete entities that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    pub delete_extra: bool,
    /// After the copy, delete tables that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    pub delete_extra_tables: bool,
    /// Do nothing if more entities than this would be deleted
    #[arg(long, value_name = "N")]
    pub max_delete: Option<u64>,
    #[command(flatten)]
    account: LocationAccounts,
    /// Count what would be copied, changed and deleted, list what cannot be copied and the types that
    /// files do not state, and change nothing
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
    /// Continue with the other tables if one fails
    #[arg(long)]
    keep_going: bool,
    /// Compare both places afterwards
    #[arg(long)]
    pub verify: bool,
    /// Do not ask before existing entities, tables and settings are changed or deleted
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    pub run: RunArguments,
    #[command(flatten)]
    pub form: OutputForm,
}

impl CopyArguments {
    /// Returns the master key that the accounts are opened with.
    fn master_keys(&self) -> Result<MasterKeys, TransferEnd> {
        let read = self.master_key.read().map_err(|error| TransferEnd::Usage(error.to_string()))?;
        let needed = "--accounts: --master-key or --master-key-file is needed, as given to the servers";
        read.ok_or_else(|| TransferEnd::Usage(needed.into()))
    }
}

fn time(text: &str) -> Result<Ticks, String> {
    Ticks::parse(text).map_err(|_| "is not a time such as 2026-01-31T08:00:00Z".into())
}

/// Copies, and prints a summary.
///
/// # Errors
/// How it ended, unless everything was copied.
pub(crate) fn run(arguments: &CopyArguments) -> Result<(), TransferEnd> {
    let (from, to) = (location("FROM", &arguments.from)?, location("TO", &arguments.to)?);
    let [from_account, to_account] = arguments.account.of(&from, &to);
    if from.display() == to.display() && from_account == to_account {
        return Err(TransferEnd::Usage("FROM and TO are the same".into()));
    }
    if to.is_single_dump() && (arguments.resume || arguments.state.is_some()) {
        let text =
            "--resume, --state: a dump in one file has no state; begin again, or make a dump in a folder";
        return Err(TransferEnd::Usage(text.into()));
    }
    let selection = arguments.selection.selection(arguments.since)?;
    let master = arguments.accounts.then(|| arguments.master_keys()).transpose()?;
    arguments.refuse_wrong_deletions(&from, &to)?;
    let session = TransferSession::start(&arguments.run, &arguments.files)?;
    let opened = session.opener(&selection, from_account).source(&from)?;
    let mut job = CopyJob {
        arguments,
        from: &from,
        to: &to,
        from_account,
        to_account,
        selection,
        session: &session,
        resumes: false,
    };
    let files = CopyFiles::of(&job);
    job.resumes = arguments.resume && files.state.as_deref().is_some_and(Checkpoint::is_begun);
    job.check_names(opened.as_source()?)?;
    let sorted = match (&to, opened.as_source()?.is_ordered()) {
        (DataLocation::Dump(_), false) => {
            Some(session.opener(&job.selection, None).sorted(opened.as_source()?)?)
        }
        _ => None,
    };
    let source = sorted.as_ref().map_or(opened.as_source(), OpenLocation::as_source)?;
    if arguments.dry_run {
        return job.rehearse(source);
    }
    job.warn_of_files(source, false);
    if arguments.resume && to.is_complete_dump() {
        warn(&format!("{} is complete", to.display()));
        return if arguments.verify { job.compare(source, false) } else { Ok(()) };
    }
    job.refuse_what_cosmos_lacks(source)?;
    // What the target has does not depend on the selection.
    let unfiltered = Selection::default();
    let written = session.opener(&unfiltered, to_account).target(&to)?;
    if let Some(master) = master {
        let copied = opened.copy_accounts(&written, &master)?;
        warn(&format!("{copied} accounts copied; existing ones were left as they are"));
    }
    job.confirm(source, &written)?;
    let rejected = job.copy(source, &written, &files)?;
    drop(written);
    let is_to_delete = arguments.delete_extra || arguments.delete_extra_tables;
    let deletes = is_to_delete && !rejected;
    if is_to_delete && rejected {
        warn(
            "--delete-extra: entities were rejected, so nothing is deleted; what seems extra may be a former version of one",
        );
    }
    if deletes || arguments.verify {
        job.compare(source, deletes)?;
    }
    if rejected { Err(TransferEnd::Rejected) } else { Ok(()) }
}

/// A copy with what was found out about its arguments.
pub(super) struct CopyJob<'a> {
    pub arguments: &'a CopyArguments,
    from: &'a DataLocation,
    pub to: &'a DataLocation,
    from_account: Option<&'a str>,
    pub to_account: Option<&'a str>,
    pub selection: Selection,
    pub session: &'a TransferSession,
    /// Whether it goes on from where an earlier run has ended.
    pub resumes: bool,
}

impl CopyJob<'_> {
    /// Returns the names of the selected tables in the source and in the target.
    pub(super) fn names(&self, source: &dyn TransferSource) -> Result<Vec<(String, String)>, TransferEnd> {
        let mut names = source.tables()?;
        names.retain(|name| self.selection.has_table(name));
        let renamed = |table: &str| {
            let renames = &self.arguments.rename;
            let exact = renames.iter().find(|(from, _)| from == table);
            let other = || {
                let found = renames.iter().find(|(from, _)| from.eq_ignore_ascii_case(table));
                // A place with case-sensitive names may have another table of that name.
                found.filter(|(from, _)| !names.contains(from))
            };
            exact.or_else(other).map_or(table, |(_, to)| to).to_owned()
        };
        Ok(names.iter().map(|table| (table.clone(), renamed(table))).collect())
    }

    /// Refuses names of tables that neither place has, and those that TO cannot have.
    fn check_names(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        let mut tables = source.tables()?;
        refuse_unknown_renames(&self.arguments.rename, &tables)?;
        if self.arguments.delete_extra_tables && tables.is_empty() {
            return Err(TransferEnd::Usage("--delete-extra-tables: FROM has no table".into()));
        }
        if !self.selection.unmatched(&tables).0.is_empty() {
            tables.extend(self.target_tables());
        }
        check_matches(&self.selection, &tables)?;
        let problems = name_problems(&self.names(source)?, self.to.is_cosmos());
        if problems.is_empty() { Ok(()) } else { Err(TransferEnd::Usage(problems.join("\n"))) }
    }

    /// Returns the tables of TO, if it can be read: it may not exist yet.
    fn target_tables(&self) -> Vec<String> {
        let unfiltered = Selection::default();
        let opened = self.session.opener(&unfiltered, self.to_account).source(self.to);
        opened.and_then(|opened| opened.as_source()?.tables()).unwrap_or_default()
    }

    /// Returns what becomes of the target's settings.
    pub(super) fn settings_rule(&self) -> SettingsRule {
        SettingsRule { mode: self.arguments.mode, delete_extra: self.arguments.delete_extra }
    }

    /// Opens the source as a whole if only changes are copied.
    ///
    /// # Errors
    /// As [`Opener::source`](crate::transfer::Opener::source).
    pub(super) fn whole_source(&self) -> Result<Option<OpenLocation>, TransferEnd> {
        let selection = &Selection { since: None, ..self.selection.clone() };
        let open = || self.session.opener(selection, self.from_account).source(self.from);
        Ok(self.arguments.since.map(|_| open()).transpose()?)
    }

    /// Lists what files do not tell, before anything is written: all of it, or what may be wrong.
    pub(super) fn warn_of_files(&self, source: &dyn TransferSource, all: bool) {
        let Some(inferences) = source.inferences() else { return };
        warn_of_remarks(inferences.remarks());
        for (table, property, types) in inferences.notable() {
            types.said(property, all).iter().for_each(|said| warn(&format!("{table}.{property}: {said}")));
        }
    }

    /// Reads everything once if TO is Cosmos DB, to report what it cannot represent before anything is
    /// written.
    fn refuse_what_cosmos_lacks(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        if !self.to.is_cosmos() || self.resumes {
            return Ok(());
        }
        let survey = self.survey(source)?;
        list_rejected(&survey);
        if survey.rejected == 0 {
            return Ok(());
        }
        let question = format!("{} entities cannot be copied to Cosmos DB", survey.rejected);
        confirmed(&question, self.arguments.yes)
    }

    pub(super) fn survey(&self, source: &dyn TransferSource) -> Result<Survey, TransferEnd> {
        let progress = Progress::start(self.arguments.run.progress, "read");
        Ok(self.session.walk(source, &self.selection, &progress).survey(self.to.is_cosmos())?)
    }

    /// Copies; returns whether entities were rejected.
    fn copy(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
        files: &CopyFiles,
    ) -> Result<bool, TransferEnd> {
        let arguments = self.arguments;
        warn_of_rejected(source, &self.selection)?;
        let checkpoint = match &files.state {
            Some(state) => Checkpoint::open(state, &self.fingerprint(), arguments.resume)?,
            None => Checkpoint::in_memory()?,
        };
        // A copy that was interrupted before it began has not recorded all of them.
        let has_begun = self.resumes && !checkpoint.tables()?.is_empty();
        let rejects = Rejects::open(&files.rejects, has_begun)?;
        let unread = record_unread(source, &self.selection, &rejects, has_begun)?;
        let renames = self.names(source)?;
        let options = CopyOptions {
            selection: &self.selection,
            mode: arguments.mode,
            concurrency: self.session.concurrency,
            keep_going: arguments.keep_going,
            existing: written.as_source().ok(),
            settings: self.settings_rule(),
            rate_limit: arguments.rate_limit,
            renames: &renames,
            stop: &self.session.stop,
        };
        let progress = Progress::start(arguments.run.progress, "copied");
        let done = copy(source, written.as_target()?, &options, &checkpoint, &rejects, &progress);
        let elapsed = progress.elapsed();
        drop(progress);
        if matches!(done, Err(TransferError::Interrupted)) {
            let so_far =
                CopySummary { tables: checkpoint.counts()?.into_iter().collect(), ..CopySummary::default() };
            self.summarize(&so_far, elapsed, files)?;
        }
        let mut copied = done.map_err(|error| interrupted(error.into(), files.state.as_deref()))?;
        for setting in &copied.left {
            warn(&format!("{setting} differ, and stay as they are in TO"));
        }
        for (table, rejected) in unread {
            copied.tables.entry(table).or_default().rejected += rejected;
        }
        if copied.failed.is_empty() {
            checkpoint.remove();
        }
        self.summarize(&copied, elapsed, files)?;
        if copied.failed.is_empty() {
            return Ok(copied.sum().rejected > 0);
        }
        Err(interrupted(TransferEnd::Failed("some tables failed".into()), files.state.as_deref()))
    }

    /// Returns what a resumed copy must have in common with the first run.
    fn fingerprint(&self) -> String {
        format!(
            "{} {:?} -> {} {:?} {} {:?} {:?}",
            self.from.display(),
            self.from_account,
            self.to.display(),
            self.to_account,
            self.selection.fingerprint(),
            self.arguments.mode,
            self.arguments.rename
        )
    }

    /// Deletes what is extra if it `deletes`, and compares if the arguments say so: whole tables, even if
    /// only changes were copied.
    fn compare(&self, source: &dyn TransferSource, deletes: bool) -> Result<(), TransferEnd> {
        let (arguments, session) = (self.arguments, self.session);
        let selection = &Selection { since: None, ..self.selection.clone() };
        let names = self.names(source)?;
        let whole = self.whole_source()?;
        let source = whole.as_ref().map_or(Ok(source), |whole| whole.as_source())?;
        let opener = session.opener(selection, self.to_account);
        let opened = match self.to {
            DataLocation::Dump(_) => opener.source(self.to)?,
            _ => opener.target(self.to)?,
        };
        let progress = Progress::start(arguments.run.progress, "compared");
        let mut comparison = Comparison {
            delete_extra: (deletes && arguments.delete_extra).then(|| opened.as_target()).transpose()?,
            recheck_delay: Duration::from_secs(2),
            ..session.comparison([source, opened.as_source()?], &names, selection, &progress)
        };
        if deletes {
            let entities = match comparison.delete_extra {
                Some(_) => comparison.run()?.tables.values().map(|tally| tally.deleted).sum(),
                None => 0,
            };
            let tables = if arguments.delete_extra_tables { comparison.extra_tables()? } else { Vec::new() };
            tables.iter().try_for_each(|table| opened.as_target()?.delete_table(table))?;
            deleted(&arguments.form, entities, &tables)?;
        }
        if !arguments.verify {
            return Ok(());
        }
        comparison.delete_extra = None;
        let compared = comparison.run()?;
        drop(progress);
        report(&arguments.form, &compared)
    }

    /// Prints what was copied.
    fn summarize(
        &self,
        copied: &CopySummary,
        elapsed: Duration,
        files: &CopyFiles,
    ) -> Result<(), TransferEnd> {
        let text = summary::text_of(copied, elapsed, &files.rejects);
        let text = format!("{} -> {}\n{text}", self.from.display(), self.to.display());
        self.arguments.form.print(&text, &summary::json_of(copied, elapsed, &files.rejects))?;
        Ok(())
    }
}

/// Says how an interrupted or failed copy is continued.
fn interrupted(ended: TransferEnd, state: Option<&Path>) -> TransferEnd {
    let hint = match state {
        Some(state) => format!("continue with --resume; the state is in {}", state.display()),
        None => "a dump in one file cannot be continued: begin again".into(),
    };
    match ended {
        TransferEnd::Failed(text) => TransferEnd::Failed(format!("{text}\n{hint}")),
        TransferEnd::Interrupted(text) => TransferEnd::Interrupted(format!("{text}\n{hint}")),
        other => other,
    }
}

/// The files of a copy.
struct CopyFiles {
    /// `None` for a copy that cannot be resumed.
    state: Option<PathBuf>,
    rejects: PathBuf,
}

impl CopyFiles {
    fn of(job: &CopyJob<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        (job.from.display(), job.to.display(), job.from_account, job.to_account).hash(&mut hasher);
        let stem = format!("rowhouse-copy-{:08x}", hasher.finish() >> 32);
        let state = match job.to {
            to if to.is_single_dump() => None,
            DataLocation::Dump(folder) => Some(folder.join("copy.state")),
            _ => Some(format!("{stem}.state").into()),
        };
        let rejects = PathBuf::from(format!("{stem}.rejects.jsonl"));
        Self {
            state: job.arguments.state.clone().or(state),
            rejects: job.arguments.rejects.clone().unwrap_or(rejects),
        }
    }
}
