//! Determines what a copy would change and delete in its target, and asks for confirmation.

use std::collections::{BTreeMap, BTreeSet};

use super::prepare::CopyJob;
use crate::cli::output::TransferEnd;
use crate::cli::transfer::arguments::require_confirmation;
use crate::transfer::{
    Mode, OpenLocation, Progress, Selection, SettingsStep, TransferSource, in_parallel, readable,
};

/// The number of target entities that a copy would change or delete.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Entities that differ from the source.
    pub different: u64,
    /// Entities that `--mirror` would delete.
    pub deleted: u64,
    /// Tables that `--mirror` would delete, with their numbers of entities.
    pub deleted_tables: BTreeMap<String, u64>,
}

impl Effects {
    /// Returns the number of entities that would be deleted.
    fn total_deleted(&self) -> u64 {
        self.deleted + self.deleted_tables.values().sum::<u64>()
    }

    /// Describes the effects in lines for display.
    pub(super) fn lines(&self, mode: Mode) -> Vec<String> {
        let different = self.different;
        let becomes = match mode {
            Mode::Insert => "differ in TO, and would be rejected",
            Mode::Skip => "differ in TO, and would not be changed",
            Mode::Merge | Mode::Replace => "differ in TO, and would be changed",
        };
        let mut lines = vec![format!("{different:>12}  {becomes}")];
        lines.push(format!("{:>12}  extra in TO would be deleted", self.deleted));
        let table = |(table, entities): (&String, &u64)| {
            format!("{entities:>12}  {table}, an extra table, would be deleted")
        };
        lines.extend(self.deleted_tables.iter().map(table));
        lines
    }
}

impl CopyJob<'_> {
    /// Counts the entities that the copy would change or delete in the target, which is read without a filter.
    fn count_effects(
        &self,
        source: &dyn TransferSource,
        target: &dyn TransferSource,
    ) -> Result<Effects, TransferEnd> {
        let names = self.names(source)?;
        let selection = &Selection { since: None, filter: None, ..self.selection.clone() };
        let progress = Progress::start(self.arguments.run.progress, "compared");
        let compare = |source: &dyn TransferSource| {
            self.session.comparison([source, target], &names, selection, &progress).run()
        };
        let compared = compare(source)?;
        let different = compared.tables.values().map(|tally| tally.different).sum();
        let mut effects = Effects { different, ..Effects::default() };
        if self.arguments.mirror {
            let whole = self.whole_source()?;
            // Entities that are unchanged since `--since` are not extra.
            let whole_compared = whole.as_ref().map(|whole| compare(whole.as_source()?)).transpose()?;
            let whole_compared = whole_compared.as_ref().unwrap_or(&compared);
            effects.deleted = whole_compared.tables.values().map(|tally| tally.extra).sum();
            if !compared.extra_tables.is_empty() {
                let (include, name_case) = (compared.extra_tables, target.name_case());
                let selection = Selection { include, name_case, ..Selection::default() };
                effects.deleted_tables = self.session.walk(target, &selection, &progress).count()?;
            }
        }
        Ok(effects)
    }

    /// Counts the changes and deletions, if the arguments request either.
    pub(super) fn expected_effects(
        &self,
        source: &dyn TransferSource,
    ) -> Result<Option<Effects>, TransferEnd> {
        let arguments = self.arguments;
        let is_new = self.to.begins_empty() || self.to.is_missing();
        if arguments.mode == Mode::Insert && !arguments.mirror || is_new {
            return Ok(None);
        }
        let unfiltered = Selection::default();
        let target = self.session.opener(&unfiltered).open_source(self.to).map_err(|error| error.on("TO"))?;
        self.count_effects(source, target.as_source()?).map(Some)
    }

    /// Asks for confirmation to change or delete existing entities, tables and settings, and refuses to
    /// delete more than `--max-delete`. Returns the allowed deletions, if they were counted.
    pub(super) fn confirm(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
    ) -> Result<Option<Effects>, TransferEnd> {
        let arguments = self.arguments;
        let (mut parts, mut counted) = (Vec::new(), None);
        if arguments.mirror && (!arguments.yes || arguments.max_delete.is_some()) {
            let mut effects = self.count_effects(source, written.as_source()?)?;
            let deleted = effects.total_deleted();
            if let Some(most) = arguments.max_delete.filter(|most| deleted > *most) {
                let text = format!(
                    "this would delete {deleted} entities, more than --max-delete {most}; check FROM, or \
                     raise the limit"
                );
                return Err(TransferEnd::Usage(text));
            }
            if effects.deleted > 0 {
                parts.push(format!("delete {} entities", effects.deleted));
            }
            for (table, entities) in &effects.deleted_tables {
                parts.push(format!("delete the table {table} with {entities} entities"));
            }
            if let Some(most) = arguments.max_delete.filter(|_| arguments.yes) {
                // More entities may become extra during the copy.
                effects.deleted += most - deleted;
            }
            counted = Some(effects);
        }
        if arguments.yes {
            return Ok(counted);
        }
        // The first run has asked about changes, but possibly not about deletions.
        if !self.resumes || arguments.mirror {
            parts.extend(self.list_changes(source, written)?);
        }
        if !parts.is_empty() {
            require_confirmation(&format!("this may {}", parts.join(", ")), false)?;
        }
        Ok(counted)
    }

    /// Returns the entities and settings of the target that the copy may change.
    fn list_changes(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
    ) -> Result<Vec<String>, TransferEnd> {
        let (mode, rule) = (self.arguments.mode, self.settings_rule());
        let changes = matches!(mode, Mode::Merge | Mode::Replace);
        // A new dump has no content to change.
        let Ok(there) = written.as_source() else { return Ok(Vec::new()) };
        if !changes && !rule.delete_extra {
            return Ok(Vec::new());
        }
        let target = written.as_target()?;
        // The copy itself reports policies that it may not read.
        let read = |place: &dyn TransferSource, table: &str| {
            readable(place.policies(table), "", &mut BTreeSet::new())
        };
        let found = in_parallel(self.session.concurrency, self.names(source)?, |(table, named)| {
            let Some(has_entities) = target.has_entities(&named)? else { return Ok(None) };
            let (ours, theirs) = (read(source, &table)?, read(there, &named)?);
            let step = ours.zip(theirs).map(|(ours, theirs)| rule.step_for_policies(&ours, &theirs, false));
            Ok(Some((named, has_entities, step == Some(SettingsStep::Set))))
        })?;
        let (mut tables, mut parts, unread) = (Vec::new(), Vec::new(), &mut BTreeSet::new());
        for (named, has_entities, changes_policies) in found.into_iter().flatten() {
            if changes_policies {
                parts.push(format!("change the policies of {named}"));
            }
            if has_entities {
                tables.push(named);
            }
        }
        if self.selection.is_everything()
            && let Some(ours) = readable(source.properties(), "", unread)?
            && let Some(theirs) = readable(there.properties(), "", unread)?
            && theirs.cors.as_ref().is_some_and(|rules| !rules.is_empty())
            && rule.step_for_properties(&ours, &theirs, false) == SettingsStep::Set
        {
            parts.push("change the service properties".into());
        }
        if changes && !tables.is_empty() {
            parts.insert(0, format!("change entities of {}", tables.join(", ")));
        }
        Ok(parts)
    }
}
