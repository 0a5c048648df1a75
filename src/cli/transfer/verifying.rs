//! `rowhouse verify`.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::arguments::{
    FileArguments, RunArguments, SelectionArguments, TransferSession, check_matches, parse_places,
    parse_rename, refuse_left_out, refuse_ranged, refuse_unknown_renames,
};
use super::rejected::warn_of_remarks;
use crate::cli::output::{OutputForm, TransferEnd};
use crate::transfer::{Compared, Comparison, Inferences, Progress, renamed_tables};

/// Maximum number of differences in the text form. The JSON form has all of them.
const MAX_SHOWN: usize = 20;

/// The arguments of `rowhouse verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// As for `rowhouse copy`
    from: String,
    /// As for `rowhouse copy`
    to: String,
    #[command(flatten)]
    selection: SelectionArguments,
    /// New names of tables in TO, such as People=People2, separated by ','
    #[arg(long, value_name = "TABLE=NAME", value_delimiter = ',', value_parser = parse_rename)]
    rename: Vec<(String, String)>,
    /// Compare Timestamps too; only databases and dumps keep them
    #[arg(long)]
    timestamps: bool,
    /// Seconds to wait before differences are checked again, as clients may be writing
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    recheck_delay: u64,
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn run(arguments: &VerifyArguments) -> Result<(), TransferEnd> {
    let [from, to] = parse_places(&arguments.from, &arguments.to)?;
    let selection = arguments.selection.selection(&[&from, &to], None)?;
    refuse_ranged("verify", &[&from, &to])?;
    arguments.files.refuse_without_files(&[&from, &to])?;
    let session = TransferSession::start(&arguments.run, &arguments.files)?;
    let source = session.opener(&selection).open_source(&from).map_err(|error| error.on("FROM"))?;
    let target = session.opener(&selection).open_source(&to).map_err(|error| error.on("TO"))?;
    let (source, target) = (source.as_source()?, target.as_source()?);
    for place in [source, target] {
        warn_of_remarks(place.inferences().map_or(&[][..], Inferences::remarks));
        refuse_left_out("verify", place)?;
    }
    refuse_unknown_renames(&arguments.rename, source)?;
    let tables = source.tables().map_err(|error| error.on("FROM"))?;
    let renamed = renamed_tables(target, &arguments.rename).map_err(|error| error.on("TO"))?;
    check_matches(&selection, &[tables, renamed].concat())?;
    let progress = Progress::start(arguments.run.progress, "compared");
    let comparison = Comparison {
        with_timestamps: arguments.timestamps,
        recheck_delay: Duration::from_secs(arguments.recheck_delay),
        ..session.comparison([source, target], &arguments.rename, &selection, &progress)
    };
    let compared = comparison.run()?;
    drop(progress);
    report(&arguments.form, &compared)
}

/// Prints the result of a comparison.
///
/// # Errors
/// [`TransferEnd::Differs`] unless both places are equal.
pub(super) fn report(form: &OutputForm, compared: &Compared) -> Result<(), TransferEnd> {
    let mut text = String::new();
    let mut hidden = 0;
    for (at, (table, tally)) in compared.tables.iter().enumerate() {
        if at >= MAX_SHOWN && tally.is_equal() {
            hidden += 1;
            continue;
        }
        text.push_str(&format!(
            "{table}: {} equal, {} missing, {} extra, {} different\n",
            tally.equal, tally.missing, tally.extra, tally.different
        ));
        if tally.unreadable > 0 {
            text.push_str(&format!("{table}: {} entities are not understood\n", tally.unreadable));
        }
    }
    if hidden > 0 {
        text.push_str(&format!("and {hidden} more tables, whose entities are equal\n"));
    }
    for (tables, word) in [(&compared.missing_tables, "missing"), (&compared.extra_tables, "extra")] {
        tables.iter().for_each(|table| text.push_str(&format!("{table}: the table is {word}\n")));
    }
    compared.settings.iter().for_each(|setting| text.push_str(&format!("{setting} differ\n")));
    let not_compared: Vec<&String> = compared.unread.iter().chain(&compared.absent).collect();
    not_compared.iter().for_each(|setting| text.push_str(&format!("not compared: {setting}\n")));
    if compared.tables.is_empty() {
        text.push_str("no table was compared\n");
    }
    for difference in compared.differences.iter().take(MAX_SHOWN) {
        let word = difference.kind.word();
        let properties = match difference.properties.as_slice() {
            [] => String::new(),
            names => format!(": {}", names.join(", ")),
        };
        let (table, key) = (&difference.table, &difference.key);
        text.push_str(&format!("  {word}: {table} {:?} {:?}{properties}\n", key.partition, key.row));
    }
    for (table, entity) in compared.unreadable.iter().take(MAX_SHOWN) {
        text.push_str(&format!("  not understood: {table}: {}: {}\n", entity.reason, entity.entity));
    }
    text.push_str(match (compared.is_equal(), compared.has_no_difference()) {
        (true, _) if compared.absent.is_empty() => "equal",
        (true, _) => "equal except for the settings that were not compared",
        (false, true) => "not proved equal: no difference was found, but not everything could be read",
        (false, false) => "not equal",
    });
    form.print(&text, &json_of(compared, &not_compared))?;
    if compared.is_equal() { Ok(()) } else { Err(TransferEnd::Differs) }
}

fn json_of(compared: &Compared, not_compared: &[&String]) -> serde_json::Value {
    let tables: serde_json::Map<String, serde_json::Value> = compared
        .tables
        .iter()
        .map(|(table, tally)| {
            let tally = json!({
                "equal": tally.equal, "missing": tally.missing, "extra": tally.extra, "different": tally.different,
                "unreadable": tally.unreadable,
            });
            (table.clone(), tally)
        })
        .collect();
    let differences: Vec<_> = compared
        .differences
        .iter()
        .map(|difference| {
            json!({
                "table": difference.table, "kind": difference.kind.word(),
                "PartitionKey": difference.key.partition, "RowKey": difference.key.row,
                "properties": difference.properties,
            })
        })
        .collect();
    json!({
        "report": "verify", "equal": compared.is_equal(), "tables": tables, "differences": differences,
        "missingTables": compared.missing_tables, "extraTables": compared.extra_tables,
        "settings": compared.settings, "notCompared": not_compared,
    })
}

pub(super) fn report_deleted(form: &OutputForm, entities: u64, tables: &[String]) -> Result<(), TransferEnd> {
    let mut text = format!("{entities} extra entities deleted");
    tables.iter().for_each(|table| text.push_str(&format!("\nthe extra table {table} deleted")));
    let value = json!({ "report": "mirror", "deleted": entities, "deletedTables": tables });
    form.print(&text, &value)?;
    Ok(())
}
