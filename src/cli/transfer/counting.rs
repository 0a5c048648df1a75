//! `rowhouse count` and `rowhouse delete-where`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use super::arguments::{
    FileArguments, RunArguments, SelectionArguments, TransferSession, check_filter, check_matches,
    parse_location, refuse_left_out, require_confirmation,
};
use crate::cli::output::{OutputForm, TransferEnd};
use crate::transfer::{Progress, Selection};

/// The arguments of `rowhouse count`.
#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// Place of the tables, in the same form as FROM of `rowhouse copy`
    place: String,
    #[command(flatten)]
    selection: SelectionArguments,
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    form: OutputForm,
}

/// The arguments of `rowhouse delete-where`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// Place of the table, in the same form as TO of `rowhouse copy`
    place: String,
    /// The table
    table: String,
    /// The $filter that selects the entities to delete
    filter: String,
    /// Count the entities that would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn count(arguments: &CountArguments) -> Result<(), TransferEnd> {
    let location = parse_location("PLACE", &arguments.place)?;
    let selection = arguments.selection.selection(&[&location], None)?;
    arguments.files.refuse_without_files(&[&location])?;
    let session = TransferSession::start(&arguments.run, &arguments.files)?;
    let opened = session.opener(&selection).open_source(&location)?;
    check_matches(&selection, &opened.as_source()?.tables()?)?;
    refuse_left_out("count", opened.as_source()?)?;
    let progress = Progress::start(arguments.run.progress, "counted");
    let counts = session.walk(opened.as_source()?, &selection, &progress).count()?;
    drop(progress);
    print(&arguments.form, &counts, "entities")
}

/// Deletes the entities of a table that match a filter.
pub(crate) fn delete_where(arguments: &DeleteArguments) -> Result<(), TransferEnd> {
    let location = parse_location("PLACE", &arguments.place)?;
    let selection = Selection {
        include: vec![arguments.table.clone()],
        filter: Some(arguments.filter.clone()),
        max_comparisons: 1000,
        name_case: location.name_case(),
        ..Selection::default()
    };
    let selection = check_filter("FILTER", selection)?;
    let session = TransferSession::start(&arguments.run, &FileArguments::default())?;
    let opener = session.opener(&selection);
    let opened =
        if arguments.dry_run { opener.open_source(&location)? } else { opener.open_target(&location)? };
    let source = opened.as_source()?;
    if !source.tables()?.iter().any(|name| selection.has_table(name)) {
        return Err(TransferEnd::Usage(format!("there is no table {}", arguments.table)));
    }
    if arguments.dry_run || !arguments.yes {
        let progress = Progress::start(arguments.run.progress, "counted");
        let counts = session.walk(source, &selection, &progress).count()?;
        drop(progress);
        if arguments.dry_run {
            return print(&arguments.form, &counts, "entities would be deleted");
        }
        let entities: u64 = counts.values().sum();
        require_confirmation(&format!("this deletes {entities} entities of {}", arguments.table), false)?;
    }
    let progress = Progress::start(arguments.run.progress, "deleted");
    let deleted = session.walk(source, &selection, &progress).delete(opened.as_target()?)?;
    drop(progress);
    print(&arguments.form, &deleted, "entities deleted")
}

fn print(form: &OutputForm, counts: &BTreeMap<String, u64>, what: &str) -> Result<(), TransferEnd> {
    let sum: u64 = counts.values().sum();
    let mut text: String =
        counts.iter().map(|(table, entities)| format!("{entities:>12}  {table}\n")).collect();
    text.push_str(&format!("{sum:>12}  {what}"));
    form.print(&text, &json!({ "tables": counts, "entities": sum }))?;
    Ok(())
}
