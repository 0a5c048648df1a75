//! The arguments of `rowhouse copy`, and the checks that run before it writes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use clap::Args;

use crate::cli::output::{OutputForm, TransferEnd, warn};
use crate::cli::transfer::arguments::{
    FileArguments, RunArguments, SelectionArguments, TransferSession, check_matches, parse_rename,
    refuse_left_out, refuse_ranged, refuse_unknown_renames, require_confirmation,
};
use crate::cli::transfer::rejected::{list_rejected, warn_of_remarks};
use crate::protocol::auth::key_encryption::MasterKeys;
use crate::protocol::model::Ticks;
use crate::server::config::MasterKeySettings;
use crate::transfer::{
    DataLocation, Fingerprint, Mode, OpenLocation, Progress, Selection, SettingsRule, Survey, TransferSource,
    content_of, name_problems,
};

/// The arguments of `rowhouse copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Source: a connection string, an https:// address with a signature, a sqlite: or postgres: URL, dump:FOLDER, a
    /// file of Azurite or another program, or - for such a file on standard input. env:NAME and file:PATH name a
    /// variable or a file that contains the source. #ACCOUNT at the end names the account in a database or a file of
    /// Azurite [default: the account of TO, or devstoreaccount1]
    pub from: String,
    /// Target, in the same form as FROM, but not a file of another program; - writes one table to standard output
    pub to: String,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Copy only entities changed at this time or later, such as 2026-01-31T08:00:00Z
    #[arg(long, value_parser = time)]
    pub since: Option<Ticks>,
    /// Action for an entity that the target already has
    #[arg(long, value_enum, default_value_t = Mode::Insert)]
    pub mode: Mode,
    /// New names of tables in TO, such as People=People2, separated by ','
    #[arg(long, value_name = "TABLE=NAME", value_delimiter = ',', value_parser = parse_rename)]
    pub rename: Vec<(String, String)>,
    /// Maximum entities per second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate_limit: Option<u32>,
    /// Copy every account of a database, with its encrypted keys, limits, queries and tables; both databases
    /// need the same master key
    #[arg(long, conflicts_with_all = ["include", "exclude", "rename", "state"])]
    pub all_accounts: bool,
    #[command(flatten)]
    pub master_key: MasterKeySettings,
    /// After the copy, delete the entities and tables that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    pub mirror: bool,
    /// Change nothing if --mirror would delete more than N entities
    #[arg(long, value_name = "N")]
    pub max_delete: Option<u64>,
    /// Change nothing, and count the entities that would be copied, changed and deleted. List the entities that cannot
    /// be copied, and the types that files do not state
    #[arg(long)]
    pub dry_run: bool,
    /// Begin again, and discard the state of the interrupted copy; without this option, the copy continues
    #[arg(long, conflicts_with = "dry_run")]
    pub restart: bool,
    /// File for the state of the copy [default: rowhouse-copy-….state, or copy.state in the dump folder]; entities
    /// that cannot be copied go to STATE.rejects.jsonl
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Compare FROM and TO after the copy
    #[arg(long)]
    pub verify: bool,
    /// Do not ask for confirmation before existing entities, tables and settings are changed or deleted
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub files: FileArguments,
    #[command(flatten)]
    pub run: RunArguments,
    #[command(flatten)]
    pub form: OutputForm,
}

impl CopyArguments {
    pub(super) fn master_keys(&self) -> Result<MasterKeys, TransferEnd> {
        let read = self.master_key.read().map_err(|error| TransferEnd::Usage(error.to_string()))?;
        let needed = "--all-accounts: --master-key or --master-key-file is required, with the master key of \
                      the servers";
        read.ok_or_else(|| TransferEnd::Usage(needed.into()))
    }

    pub(super) fn refuse_without_effect(&self, from: &DataLocation) -> Result<(), TransferEnd> {
        self.files.refuse_without_files(&[from])?;
        if self.max_delete.is_some() && !self.mirror {
            return Err(TransferEnd::Usage("--max-delete: nothing is deleted without --mirror".into()));
        }
        if self.since.is_some_and(|since| since > Ticks::now()) {
            return Err(TransferEnd::Usage("--since: the time is in the future".into()));
        }
        Ok(())
    }

    /// Refuses deletions and comparisons that the places do not support.
    pub(super) fn refuse_unsuited_places(
        &self,
        from: &DataLocation,
        to: &DataLocation,
    ) -> Result<(), TransferEnd> {
        if self.all_accounts && !(from.is_database() && to.is_database()) {
            return Err(TransferEnd::Usage("--all-accounts: FROM and TO must be databases".into()));
        }
        if let Some(account) = from.account().filter(|_| self.all_accounts) {
            let text = format!("--all-accounts: copies every account, so leave #{account} out");
            return Err(TransferEnd::Usage(text));
        }
        let standard = [
            (from.is_standard() && self.since.is_some(), "--since: standard input can be read only once"),
            (to.is_standard() && self.verify, "--verify: standard output cannot be read"),
            (from.is_standard() && self.mirror, "--mirror: standard input may end before its data does"),
            (from.is_standard() && self.restart, "--restart: a copy from standard input has no state"),
            (to.is_standard() && self.restart, "--restart: a copy to standard output has no state"),
        ];
        if let Some((_, text)) = standard.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(TransferEnd::Usage(text.into()));
        }
        if self.mirror {
            refuse_ranged("--mirror", &[from, to])?;
            if to.begins_empty() {
                let text = "--mirror: TO begins empty, so nothing in it can be extra; leave the option out";
                return Err(TransferEnd::Usage(text.into()));
            }
        }
        if self.verify { refuse_ranged("--verify", &[from, to]) } else { Ok(()) }
    }
}

fn time(text: &str) -> Result<Ticks, String> {
    Ticks::parse(text).map_err(|_| "is not a time such as 2026-01-31T08:00:00Z".into())
}

pub(super) struct CopyJob<'a> {
    pub arguments: &'a CopyArguments,
    pub from: &'a DataLocation,
    pub to: &'a DataLocation,
    pub selection: Selection,
    pub session: &'a TransferSession,
    /// The properties that an earlier run must share with this one.
    pub fingerprint: Fingerprint,
    /// Whether the copy continues an interrupted run.
    pub resumes: bool,
}

impl CopyJob<'_> {
    /// Returns the names of the selected tables in the source and in the target.
    pub(super) fn names(&self, source: &dyn TransferSource) -> Result<Vec<(String, String)>, TransferEnd> {
        let mut names = source.tables().map_err(|error| error.on("FROM"))?;
        names.retain(|name| self.selection.has_table(name));
        let renamed = |table: &str| {
            let renames = &self.arguments.rename;
            let renamed = renames.iter().find(|(from, _)| source.name_case().is_same(from, table));
            renamed.map_or(table, |(_, to)| to).to_owned()
        };
        Ok(names.iter().map(|table| (table.clone(), renamed(table))).collect())
    }

    /// Refuses table names that neither place has, and names that are invalid in TO.
    pub(super) fn check_names(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        let mut tables = source.tables().map_err(|error| error.on("FROM"))?;
        // FROM may have lost a table since the copy was interrupted.
        if !self.resumes {
            refuse_unknown_renames(&self.arguments.rename, source)?;
        }
        if self.arguments.mirror && tables.is_empty() {
            return Err(TransferEnd::Usage("--mirror: FROM has no table".into()));
        }
        if !self.selection.unmatched(&tables).0.is_empty() {
            tables.extend(self.target_tables());
        }
        check_matches(&self.selection, &tables)?;
        let names = self.names(source)?;
        if self.to.is_standard() && names.len() != 1 {
            let text = "TO: standard output takes the entities of one table";
            let text = format!("{text}, but {} are selected; name one with --include", names.len());
            return Err(TransferEnd::Usage(text));
        }
        let problems = name_problems(&names, self.to.is_cosmos());
        if problems.is_empty() { Ok(()) } else { Err(TransferEnd::Usage(problems.join("\n"))) }
    }

    /// Refuses to delete or compare if files were not read, because they may contain entities that seem extra.
    pub(super) fn refuse_left_out(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        match (self.arguments.mirror, self.arguments.verify) {
            (true, _) => refuse_left_out("--mirror", source),
            (_, true) => refuse_left_out("--verify", source),
            _ => Ok(()),
        }
    }

    /// Returns the tables of TO, or none if TO cannot be read, because TO may not exist yet.
    fn target_tables(&self) -> Vec<String> {
        let unfiltered = Selection::default();
        let opened = self.session.opener(&unfiltered).open_source(self.to);
        opened.and_then(|opened| opened.as_source()?.tables()).unwrap_or_default()
    }

    pub(super) fn settings_rule(&self) -> SettingsRule {
        SettingsRule { mode: self.arguments.mode, delete_extra: self.arguments.mirror }
    }

    /// Opens the whole source, if the copy itself takes only changes.
    pub(super) fn whole_source(&self) -> Result<Option<OpenLocation>, TransferEnd> {
        let selection = &Selection { since: None, ..self.selection.clone() };
        let open = || self.session.opener(selection).open_source(self.from);
        Ok(self.arguments.since.map(|_| open()).transpose()?)
    }

    /// Lists the assumptions about files before anything is written: all of them, or only possible mistakes.
    pub(super) fn warn_of_files(&self, source: &dyn TransferSource, all: bool) {
        let Some(inferences) = source.inferences() else { return };
        warn_of_remarks(inferences.remarks());
        for (table, property, types) in inferences.notable() {
            types.remarks(property, all).iter().for_each(|text| warn(&format!("{table}.{property}: {text}")));
        }
    }

    /// Reads the whole source once if TO is Cosmos DB, to report unsupported values before anything is written.
    pub(super) fn refuse_what_cosmos_lacks(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        if !self.to.is_cosmos() || self.resumes {
            return Ok(());
        }
        let survey = self.survey(source)?;
        list_rejected(&survey);
        if survey.rejected == 0 {
            return Ok(());
        }
        let question = format!("{} entities cannot be copied to Cosmos DB", survey.rejected);
        require_confirmation(&question, self.arguments.yes)
    }

    pub(super) fn survey(&self, source: &dyn TransferSource) -> Result<Survey, TransferEnd> {
        let progress = Progress::start(self.arguments.run.progress, "read");
        Ok(self
            .session
            .walk(source, &self.selection, &progress)
            .survey(self.to.is_cosmos())
            .map_err(|error| error.on("FROM"))?)
    }

    /// Refuses a complete dump that a different copy has written.
    pub(super) fn refuse_other_dump(&self) -> Result<(), TransferEnd> {
        if self.to.origin()? == Some(self.fingerprint.origin()) {
            return Ok(());
        }
        let text = "contains a complete dump of another copy, with a different FROM or different options; \
             choose another folder";
        Err(TransferEnd::Usage(format!("{} {text}", self.to.display())))
    }
}

/// Returns the properties that a resumed copy must share with the first run.
pub(super) fn fingerprint(
    arguments: &CopyArguments,
    [from, to]: [&DataLocation; 2],
) -> Result<Fingerprint, TransferEnd> {
    Ok(Fingerprint::default()
        .with("FROM", (from.identity(), from.account()))
        .with("TO", (to.identity(), to.account()))
        .with("content of FROM", content_of(from)?)
        .with("--include, --exclude or --filter", &arguments.selection)
        .with("--since", arguments.since)
        .with("--mode", arguments.mode)
        .with("--mirror", arguments.mirror)
        .with("--rename", &arguments.rename)
        .with("--format, --table or --type", arguments.files.options()))
}

pub(super) struct CopyFiles {
    /// `None` if the copy cannot be continued.
    pub state: Option<PathBuf>,
    pub rejects: PathBuf,
}

impl CopyFiles {
    pub(super) fn for_job(job: &CopyJob<'_>) -> Self {
        let state = match (&job.arguments.state, job.to) {
            (Some(state), _) => state.clone(),
            (None, DataLocation::Dump(folder)) => folder.join("copy.state"),
            _ => default_state("copy", [job.from, job.to]),
        };
        let rejects = state.with_added_extension("rejects.jsonl");
        let is_lasting = !job.from.is_standard() && !job.to.is_standard();
        Self { rejects, state: is_lasting.then_some(state) }
    }
}

/// Returns the file for the state of a command without `--state`.
pub(in crate::cli::transfer) fn default_state(command: &str, places: [&DataLocation; 2]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    places.map(|place| (place.identity(), place.account())).hash(&mut hasher);
    format!("rowhouse-{command}-{:08x}.state", hasher.finish() >> 32).into()
}
