//! What a copy would change and delete in its target, and asking before it does.

use std::collections::BTreeMap;

use serde_json::json;

use super::arguments::{confirmed, refuse_ranged};
use super::copying::{CopyArguments, CopyJob};
use super::ended::TransferEnd;
use super::rejected::list_rejected;
use crate::transfer::{
    DataLocation, Inferences, Mode, OpenLocation, Progress, Selection, SettingsStep, TransferSource,
};

/// How many entities of the target a copy would touch.
#[derive(Debug, Default)]
struct Effects {
    /// Those that are other than in the source.
    different: u64,
    /// Those that `--delete-extra` would delete.
    deleted: u64,
    /// Tables that `--delete-extra-tables` would delete, with their entities.
    deleted_tables: BTreeMap<String, u64>,
}

impl Effects {
    /// Returns how many entities would be deleted.
    fn all_deleted(&self) -> u64 {
        self.deleted + self.deleted_tables.values().sum::<u64>()
    }

    /// Returns what would be done, in lines for people.
    fn lines(&self, mode: Mode) -> Vec<String> {
        let different = self.different;
        let becomes = match mode {
            Mode::Insert => "differ in TO, and would be rejected",
            Mode::Skip => "differ in TO, and would stay as they are there",
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

impl CopyArguments {
    /// Refuses deletions and comparisons for which the places are not suited.
    ///
    /// # Errors
    /// [`TransferEnd::Usage`], before a place is opened.
    pub(super) fn refuse_wrong_deletions(
        &self,
        from: &DataLocation,
        to: &DataLocation,
    ) -> Result<(), TransferEnd> {
        let deletions =
            [(self.delete_extra, "--delete-extra"), (self.delete_extra_tables, "--delete-extra-tables")];
        for (_, name) in deletions.into_iter().filter(|(is_given, _)| *is_given) {
            refuse_ranged(name, &[from, to])?;
            if matches!(to, DataLocation::Dump(_)) {
                return Err(TransferEnd::Usage(format!("{name}: a new dump has nothing that is extra")));
            }
        }
        if self.verify { refuse_ranged("--verify", &[from, to]) } else { Ok(()) }
    }
}

impl CopyJob<'_> {
    /// Counts what the copy would change and delete in the target, which is read without a filter.
    ///
    /// # Errors
    /// If a place cannot be read.
    fn effects(
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
        if self.arguments.delete_extra {
            let whole = self.whole_source()?;
            // Entities that have not changed since are not extra.
            let of_all = whole.as_ref().map(|whole| compare(whole.as_source()?)).transpose()?;
            let of_all = of_all.as_ref().unwrap_or(&compared);
            effects.deleted = of_all.tables.values().map(|tally| tally.extra).sum();
        }
        if self.arguments.delete_extra_tables && !compared.extra_tables.is_empty() {
            let selection = Selection { include: compared.extra_tables, ..Selection::default() };
            effects.deleted_tables = self.session.walk(target, &selection, &progress).count()?;
        }
        Ok(effects)
    }

    /// Reports what would be copied.
    pub(super) fn rehearse(&self, source: &dyn TransferSource) -> Result<(), TransferEnd> {
        self.warn_of_files(source, true);
        let survey = self.survey(source)?;
        list_rejected(&survey);
        let entities: u64 = survey.tables.values().sum();
        let mut text: String =
            survey.tables.iter().map(|(table, entities)| format!("{entities:>12}  {table}\n")).collect();
        text.push_str(&format!(
            "{entities:>12}  in {} tables would be copied, {} cannot be; nothing was changed",
            survey.tables.len(),
            survey.rejected,
        ));
        let effects = self.rehearsed_effects(source)?;
        let more: Vec<String> =
            effects.iter().flat_map(|effects| effects.lines(self.arguments.mode)).collect();
        more.iter().for_each(|line| text.push_str(&format!("\n{line}")));
        let inferred: Vec<_> = source
            .inferences()
            .into_iter()
            .flat_map(Inferences::notable)
            .map(|(table, property, types)| {
                json!({
                    "table": table, "property": property, "types": types.types, "untyped": types.untyped,
                    "looksLike": types.looks_like(), "withoutZone": types.without_zone,
                })
            })
            .collect();
        let value = json!({
            "report": "dryRun", "dryRun": true, "remarks": source.inferences().map(Inferences::remarks),
            "tables": survey.tables, "entities": entities, "rejected": survey.rejected,
            "inferred": inferred,
            "different": effects.as_ref().map(|effects| effects.different),
            "deleted": effects.as_ref().map(|effects| effects.deleted),
            "deletedTables": effects.as_ref().map(|effects| &effects.deleted_tables),
        });
        self.arguments.form.print(&text, &value)?;
        if survey.rejected > 0 { Err(TransferEnd::Rejected) } else { Ok(()) }
    }

    /// Counts what would be changed and deleted, if the arguments ask for either.
    fn rehearsed_effects(&self, source: &dyn TransferSource) -> Result<Option<Effects>, TransferEnd> {
        let arguments = self.arguments;
        let deletes = arguments.delete_extra || arguments.delete_extra_tables;
        if arguments.mode == Mode::Insert && !deletes || matches!(self.to, DataLocation::Dump(_)) {
            return Ok(None);
        }
        let unfiltered = Selection::default();
        let target = self.session.opener(&unfiltered, self.to_account).source(self.to)?;
        self.effects(source, target.as_source()?).map(Some)
    }

    /// Asks before existing entities, tables and settings are changed or deleted, and refuses to delete
    /// more than `--max-delete`.
    ///
    /// # Errors
    /// [`TransferEnd::Usage`] if it must not go on.
    pub(super) fn confirm(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
    ) -> Result<(), TransferEnd> {
        let arguments = self.arguments;
        let asks = !arguments.yes && !self.resumes;
        let deletes = arguments.delete_extra || arguments.delete_extra_tables;
        let mut parts = Vec::new();
        if deletes && (asks || arguments.max_delete.is_some()) {
            let effects = self.effects(source, written.as_source()?)?;
            let deleted = effects.all_deleted();
            if let Some(most) = arguments.max_delete.filter(|most| deleted > *most) {
                let text = format!("this would delete {deleted} entities, more than --max-delete {most}");
                return Err(TransferEnd::Usage(text));
            }
            if effects.deleted > 0 {
                parts.push(format!("delete {} entities", effects.deleted));
            }
            for (table, entities) in &effects.deleted_tables {
                parts.push(format!("delete the table {table} with {entities} entities"));
            }
        }
        if !asks {
            return Ok(());
        }
        parts.extend(self.changes(source, written)?);
        if parts.is_empty() {
            return Ok(());
        }
        confirmed(&format!("this may {}", parts.join(", ")), false)
    }

    /// Returns which entities and settings of the target the copy may change.
    fn changes(
        &self,
        source: &dyn TransferSource,
        written: &OpenLocation,
    ) -> Result<Vec<String>, TransferEnd> {
        let (mode, rule) = (self.arguments.mode, self.settings_rule());
        let changes = matches!(mode, Mode::Merge | Mode::Replace);
        // A new dump has nothing that could be changed.
        let Ok(there) = written.as_source() else { return Ok(Vec::new()) };
        if !changes && !rule.delete_extra {
            return Ok(Vec::new());
        }
        let (mut tables, mut parts) = (Vec::new(), Vec::new());
        for (table, named) in self.names(source)? {
            let Some(has_entities) = written.as_target()?.has_entities(&named)? else { continue };
            if let (Some(ours), Some(theirs)) = (source.policies(&table)?, there.policies(&named)?)
                && rule.of_policies(&ours, &theirs, false) == SettingsStep::Set
            {
                parts.push(format!("change the policies of {named}"));
            }
            if has_entities {
                tables.push(named);
            }
        }
        if self.selection.is_everything()
            && let (Some(ours), Some(theirs)) = (source.properties()?, there.properties()?)
            && theirs.cors.as_ref().is_some_and(|rules| !rules.is_empty())
            && rule.of_properties(&ours, &theirs, false) == SettingsStep::Set
        {
            parts.push("change the service properties".into());
        }
        if changes && !tables.is_empty() {
            parts.insert(0, format!("change entities of {}", tables.join(", ")));
        }
        Ok(parts)
    }
}
