//! Prepares a copy with checks that run before it writes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use super::arguments::CopyArguments;
use crate::cli::output::warn;
use crate::cli::transfer::TransferEnd;
use crate::cli::transfer::arguments::{
    TransferSession, check_matches, confirmed, refuse_left_out, refuse_unknown_renames,
};
use crate::cli::transfer::rejected::{list_rejected, warn_of_remarks};
use crate::transfer::{
    Checkpoint, DataLocation, Fingerprint, OpenLocation, Progress, Selection, SettingsRule, Survey,
    TransferSource, content_of, name_problems,
};

/// A copy with its checked arguments.
pub(super) struct CopyJob<'a> {
    pub arguments: &'a CopyArguments,
    pub from: &'a DataLocation,
    pub to: &'a DataLocation,
    pub from_account: Option<&'a str>,
    pub to_account: Option<&'a str>,
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
        let mut names = source.tables().map_err(|error| error.of("FROM"))?;
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
        let mut tables = source.tables().map_err(|error| error.of("FROM"))?;
        // FROM may have lost a table since the copy was interrupted.
        if !self.resumes {
            refuse_unknown_renames(&self.arguments.rename, source)?;
        }
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

    /// Refuses to delete or compare if files were not read, because they may contain entities that seem extra.
    pub(super) fn refuse_left_out(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        let CopyArguments { delete_extra, delete_extra_tables, verify, .. } = self.arguments;
        match (delete_extra, delete_extra_tables, verify) {
            (true, _, _) => refuse_left_out("--delete-extra", source),
            (_, true, _) => refuse_left_out("--delete-extra-tables", source),
            (_, _, true) => refuse_left_out("--verify", source),
            _ => Ok(()),
        }
    }

    /// Returns the tables of TO, or none if it cannot be read, because it may not exist yet.
    fn target_tables(&self) -> Vec<String> {
        let unfiltered = Selection::default();
        let opened = self.session.opener(&unfiltered, self.to_account).source(self.to);
        opened.and_then(|opened| opened.as_source()?.tables()).unwrap_or_default()
    }

    /// Returns the rule for the target's settings.
    pub(super) fn settings_rule(&self) -> SettingsRule {
        SettingsRule { mode: self.arguments.mode, delete_extra: self.arguments.delete_extra }
    }

    /// Opens the whole source, if the copy itself takes only changes.
    ///
    /// # Errors
    /// Those of [`Opener::source`](crate::transfer::Opener::source).
    pub(super) fn whole_source(&self) -> Result<Option<OpenLocation>, TransferEnd> {
        let selection = &Selection { since: None, ..self.selection.clone() };
        let open = || self.session.opener(selection, self.from_account).source(self.from);
        Ok(self.arguments.since.map(|_| open()).transpose()?)
    }

    /// Lists the assumptions about files before anything is written: all of them, or only the doubtful ones.
    pub(super) fn warn_of_files(&self, source: &dyn TransferSource, all: bool) {
        let Some(inferences) = source.inferences() else { return };
        warn_of_remarks(inferences.remarks());
        for (table, property, types) in inferences.notable() {
            types.remarks(property, all).iter().for_each(|text| warn(&format!("{table}.{property}: {text}")));
        }
    }

    /// Reads the whole source once if TO is Cosmos DB, to report unsupported values before anything is
    /// written.
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
        confirmed(&question, self.arguments.yes)
    }

    pub(super) fn survey(&self, source: &dyn TransferSource) -> Result<Survey, TransferEnd> {
        let progress = Progress::start(self.arguments.run.progress, "read");
        Ok(self
            .session
            .walk(source, &self.selection, &progress)
            .survey(self.to.is_cosmos())
            .map_err(|error| error.of("FROM"))?)
    }

    /// Opens the state of the copy.
    pub(super) fn checkpoint(&self, files: &CopyFiles) -> Result<Checkpoint, TransferEnd> {
        Ok(Checkpoint::open(&files.state, &self.fingerprint, self.arguments.resume)?)
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
    accounts: [Option<&str>; 2],
) -> Result<Fingerprint, TransferEnd> {
    Ok(Fingerprint::default()
        .with("FROM", from.display())
        .with("TO", to.display())
        .with("account", accounts)
        .with("content of FROM", content_of(from)?)
        .with("--include, --exclude or --filter", &arguments.selection)
        .with("--since", arguments.since)
        .with("--mode", arguments.mode)
        .with("--rename", &arguments.rename)
        .with("--format, --table or --type", arguments.files.options()))
}

/// The files of a copy.
pub(super) struct CopyFiles {
    pub state: PathBuf,
    pub rejects: PathBuf,
}

impl CopyFiles {
    pub(super) fn of(job: &CopyJob<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        (job.from.display(), job.to.display(), job.from_account, job.to_account).hash(&mut hasher);
        let stem = format!("rowhouse-copy-{:08x}", hasher.finish() >> 32);
        let state = match job.to {
            DataLocation::Dump(folder) => folder.join("copy.state"),
            _ => format!("{stem}.state").into(),
        };
        let rejects = match &job.arguments.state {
            Some(state) => state.with_added_extension("rejects.jsonl"),
            None => format!("{stem}.rejects.jsonl").into(),
        };
        Self {
            state: job.arguments.state.clone().unwrap_or(state),
            rejects: job.arguments.rejects.clone().unwrap_or(rejects),
        }
    }
}
