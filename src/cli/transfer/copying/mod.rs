//! `rowhouse copy`.

mod all_accounts;
mod effects;
mod prepare;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use super::arguments::{TransferSession, parse_places};
use super::rejected::{list_rejected, record_unread, warn_of_rejected};
use super::verifying;
use crate::cli::output::{TransferEnd, note, warn};
use crate::transfer::{
    Checkpoint, Comparison, CopyOptions, CopySummary, DataLocation, OpenLocation, Progress, Rejects,
    Selection, TransferError, TransferSource, copy,
};

use effects::Effects;
pub(crate) use prepare::CopyArguments;
pub(super) use prepare::default_state;
use prepare::{CopyFiles, CopyJob, fingerprint};
use report::{failure_of, with_state_hint};

pub(crate) fn run(arguments: &CopyArguments) -> Result<(), TransferEnd> {
    let [from, to] = parse_places(&arguments.from, &arguments.to)?;
    arguments.refuse_without_effect(&from)?;
    arguments.refuse_unsuited_places(&from, &to)?;
    let session = TransferSession::start(&arguments.run, &arguments.files)?;
    let copy = |places: [&DataLocation; 2]| copy_place(arguments, places, &session);
    match arguments.all_accounts {
        true => all_accounts::run(arguments, [&from, &to], &session, copy),
        false => copy([&from, &to]),
    }
}

/// Copies the tables of one account.
fn copy_place(
    arguments: &CopyArguments,
    [from, to]: [&DataLocation; 2],
    session: &TransferSession,
) -> Result<(), TransferEnd> {
    let selection = arguments.selection.selection(&[from, to], arguments.since)?;
    // The fingerprint precedes the first read of FROM, because writers may change FROM during the copy.
    let fingerprint = fingerprint(arguments, [from, to])?;
    let mut job = CopyJob { arguments, from, to, selection, session, fingerprint, resumes: false };
    let files = CopyFiles::for_job(&job);
    let begun = match &files.state {
        Some(state) if !arguments.dry_run => job.find_state(state)?,
        _ => None,
    };
    job.resumes = begun.is_some() && !arguments.restart;
    let opened = session.opener(&job.selection).open_source(from).map_err(|error| error.on("FROM"))?;
    job.check_names(opened.as_source()?)?;
    job.refuse_left_out(opened.as_source()?)?;
    let sorted = match (to, opened.as_source()?.is_ordered()) {
        (DataLocation::Dump(_), false) => {
            Some(session.opener(&job.selection).open_sorted(opened.as_source()?)?)
        }
        _ => None,
    };
    let source = sorted.as_ref().map_or(opened.as_source(), OpenLocation::as_source)?;
    if arguments.dry_run {
        return job.dry_run(source);
    }
    job.warn_of_files(source, false);
    if job.resumes && to.is_complete_dump() {
        job.refuse_other_dump()?;
        let mut rejected = 0;
        if let Some(begun) = begun {
            rejected = begun.counts()?.iter().map(|(_, counts)| counts.rejected).sum();
            begun.remove();
        }
        warn(&format!("{} is complete already; nothing is copied", to.display()));
        if rejected > 0 {
            warn(&format!("{rejected} entities were rejected, which are in {}", files.rejects.display()));
            return Err(TransferEnd::Rejected);
        }
        return if arguments.verify { job.compare(source, false, None) } else { Ok(()) };
    }
    job.refuse_what_cosmos_lacks(source)?;
    // The contents of the target do not depend on the selection.
    let unfiltered = Selection::default();
    let written = session.opener(&unfiltered).open_target(to).map_err(|error| error.on("TO"))?;
    let counted = job.confirm(source, &written)?;
    let checkpoint = job.checkpoint(begun, &written, &files)?;
    let rejected = job.copy(source, &written, &files, checkpoint)?;
    drop(written);
    let deletes = arguments.mirror && !rejected;
    if arguments.mirror && rejected {
        warn(
            "--mirror: entities were rejected, so nothing is deleted; an entity that seems extra may \
             be an older version of a rejected one",
        );
    }
    if deletes || arguments.verify {
        job.compare(source, deletes, counted.as_ref())?;
    }
    if rejected { Err(TransferEnd::Rejected) } else { Ok(()) }
}

/// Returns the extra tables, each of which must have been `counted` before the copy.
fn extra_tables(comparison: &Comparison<'_>, counted: Option<&Effects>) -> Result<Vec<String>, TransferEnd> {
    let failed = |reason: &str| {
        Err(TransferEnd::Failed(format!("--mirror: {reason}; nothing more is deleted: start the copy again")))
    };
    if comparison.source.tables()?.is_empty() {
        return failed("FROM has no table any more");
    }
    let tables = comparison.extra_tables()?;
    tables.iter().try_for_each(|table| refuse_listed(comparison, table))?;
    let is_new =
        |table: &&String| counted.is_some_and(|counted| !counted.deleted_tables.contains_key(*table));
    match tables.iter().find(is_new) {
        Some(new) => failed(&format!("the table {new} has become extra since the extra tables were counted")),
        None => Ok(tables),
    }
}

/// Refuses to delete a table that FROM has, although FROM may not have listed it.
fn refuse_listed(comparison: &Comparison<'_>, table: &str) -> Result<(), TransferEnd> {
    match comparison.source.has_table(table)? {
        false => Ok(()),
        true => Err(TransferEnd::Failed(format!(
            "--mirror: FROM has the table {table}, but does not list it; nothing more is deleted: start the copy again"
        ))),
    }
}

impl CopyJob<'_> {
    /// Returns the state of an earlier run, which --restart requires.
    fn find_state(&self, state: &Path) -> Result<Option<Checkpoint>, TransferEnd> {
        let arguments = self.arguments;
        let begun = Checkpoint::find(state, &self.fingerprint, arguments.restart)?;
        // The copies of some accounts may be complete.
        if arguments.restart && begun.is_none() && !arguments.all_accounts {
            let text = format!("--restart: there is no state in {}; leave the option out", state.display());
            return Err(TransferEnd::Usage(text));
        }
        Ok(begun)
    }

    /// Returns the state to continue, or a new one. If the copy begins again, discards the state of the earlier run and
    /// its parts of a dump.
    fn checkpoint(
        &self,
        begun: Option<Checkpoint>,
        written: &OpenLocation,
        files: &CopyFiles,
    ) -> Result<Checkpoint, TransferEnd> {
        if let Some(begun) = begun {
            if self.resumes {
                let state = begun.file().display();
                note(&format!("continues the copy that was interrupted; the state is in {state}"));
                return Ok(begun);
            }
            written.clear()?;
            begun.remove();
        }
        let in_memory = Path::new(":memory:");
        Ok(Checkpoint::create(files.state.as_deref().unwrap_or(in_memory), &self.fingerprint)?)
    }

    /// Copies the tables. Returns whether entities were rejected.
    fn copy(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
        files: &CopyFiles,
        checkpoint: Checkpoint,
    ) -> Result<bool, TransferEnd> {
        let arguments = self.arguments;
        warn_of_rejected(source, &self.selection)?;
        // A run that has prepared no table may not have recorded every rejected entity.
        let has_begun = self.resumes && !checkpoint.tables()?.is_empty();
        let rejects = Rejects::open(&files.rejects, has_begun)?;
        let unread = record_unread(source, &self.selection, &rejects, has_begun)?;
        let renames = self.names(source)?;
        let whole = match self.to {
            place if place.begins_empty() => None,
            _ => self.whole_source()?,
        };
        let options = CopyOptions {
            selection: &self.selection,
            mode: arguments.mode,
            concurrency: self.session.concurrency,
            existing: written.as_source().ok(),
            whole: whole.as_ref().map(OpenLocation::as_source).transpose()?,
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
        let mut copied = match done {
            // A copy without progress cannot be continued.
            Err(error) if !self.resumes && checkpoint.is_untouched()? => {
                checkpoint.remove();
                return Err(error.into());
            }
            done => done.map_err(|error| with_state_hint(error.into(), files))?,
        };
        copied.remarks.iter().for_each(|remark| warn(remark));
        for (table, rejected) in unread {
            copied.tables.entry(table).or_default().rejected += rejected;
        }
        let failed = failure_of(&copied);
        let has_state = failed.is_some() && (self.resumes || !checkpoint.is_untouched()?);
        if !has_state {
            checkpoint.remove();
        }
        self.summarize(&copied, elapsed, files)?;
        match failed {
            None => Ok(copied.sum().rejected > 0),
            Some(failed) if has_state => Err(with_state_hint(failed, files)),
            Some(failed) => Err(failed),
        }
    }

    /// Counts what would be copied, changed and deleted, without changing anything.
    fn dry_run(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        self.warn_of_files(source, true);
        let begun = Instant::now();
        let survey = self.survey(source)?;
        let reading = begun.elapsed();
        list_rejected(&survey);
        let effects = self.expected_effects(source)?;
        self.print_dry_run(source, &survey, reading, effects.as_ref())
    }

    /// Refuses to delete a table that has more entities than were counted.
    fn refuse_growth(
        &self,
        comparison: &Comparison<'_>,
        table: &str,
        counted: Option<&Effects>,
    ) -> Result<(), TransferEnd> {
        let Some(counted) = counted else { return Ok(()) };
        let name_case = comparison.target.name_case();
        let selection = Selection { include: vec![table.to_owned()], name_case, ..Selection::default() };
        let found = self.session.walk(comparison.target, &selection, comparison.progress).count()?;
        let most = counted.deleted_tables.get(table).copied().unwrap_or_default();
        if found.values().sum::<u64>() <= most {
            return Ok(());
        }
        let text = format!(
            "--mirror: {table} has more than the {most} entities that were counted; this table and \
             those after it are not deleted: start the copy again"
        );
        Err(TransferEnd::Failed(text))
    }

    /// Deletes extra entities and tables if `deletes` is set, at most as many as were `counted`. Then compares whole
    /// tables if `--verify` is given, even if only changes were copied.
    fn compare(
        &self,
        source: &dyn TransferSource,
        deletes: bool,
        counted: Option<&Effects>,
    ) -> Result<(), TransferEnd> {
        let (arguments, session) = (self.arguments, self.session);
        let selection = &Selection { since: None, ..self.selection.clone() };
        let names = self.names(source)?;
        let whole = self.whole_source()?;
        let source = whole.as_ref().map_or(Ok(source), |whole| whole.as_source())?;
        let opener = session.opener(selection);
        let opened = match self.to {
            DataLocation::Dump(_) => opener.open_source(self.to),
            _ => opener.open_target(self.to),
        }
        .map_err(|error| error.on("TO"))?;
        let progress = Progress::start(arguments.run.progress, "compared");
        let mut comparison = Comparison {
            delete_extra: deletes.then(|| opened.as_target()).transpose()?,
            max_delete: counted.map(|counted| counted.deleted),
            recheck_delay: Duration::from_secs(2),
            ..session.comparison([source, opened.as_source()?], &names, selection, &progress)
        };
        if deletes {
            extra_tables(&comparison, counted)?;
            let compared = comparison.run()?;
            let (deleted, unreadable) =
                compared.tables.values().fold((0, 0), |(deleted, unreadable), tally| {
                    (deleted + tally.deleted, unreadable + tally.unreadable)
                });
            if unreadable > 0 {
                return Err(TransferEnd::Failed(format!(
                    "--mirror: {unreadable} entities are not understood, so no table is deleted"
                )));
            }
            // FROM may have gained tables in the meantime.
            let tables = extra_tables(&comparison, counted)?;
            for table in &tables {
                comparison.check_stop()?;
                self.refuse_growth(&comparison, table, counted)?;
                refuse_listed(&comparison, table)?;
                opened.as_target()?.delete_table(table)?;
            }
            verifying::report_deleted(&arguments.form, deleted, &tables)?;
        }
        if !arguments.verify {
            return Ok(());
        }
        comparison.delete_extra = None;
        let compared = comparison.run()?;
        drop(progress);
        verifying::report(&arguments.form, &compared)
    }
}
