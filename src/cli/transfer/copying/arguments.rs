//! The arguments of `rowhouse copy`, and the checks for contradictions among them.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::OutputForm;
use crate::cli::transfer::TransferEnd;
use crate::cli::transfer::arguments::{
    FileArguments, LocationAccounts, RunArguments, SelectionArguments, refuse_ranged, rename,
};
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::model::Ticks;
use crate::server::config::MasterKeySettings;
use crate::transfer::{DataLocation, Mode};

/// The arguments of `rowhouse copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Source: a connection string, an https:// address with a signature, a sqlite: or postgres: URL,
    /// dump:FOLDER, or a file of Azurite or another program; env:NAME and file:PATH read it from a variable or
    /// a file
    pub from: String,
    /// Target, in the same form as FROM, but no file of another program
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
    #[arg(long, value_name = "TABLE=NAME", value_delimiter = ',', value_parser = rename)]
    pub rename: Vec<(String, String)>,
    /// Maximum entities per second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate_limit: Option<u32>,
    /// Copy the accounts with their encrypted keys too; both databases need the same master key
    #[arg(long)]
    pub accounts: bool,
    #[command(flatten)]
    pub master_key: MasterKeySettings,
    /// After the copy, delete entities that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    pub delete_extra: bool,
    /// After the copy, delete tables that only the target has
    #[arg(long, conflicts_with_all = ["filter", "rename"])]
    pub delete_extra_tables: bool,
    /// Change nothing if more than N entities would be deleted
    #[arg(long, value_name = "N")]
    pub max_delete: Option<u64>,
    #[command(flatten)]
    pub account: LocationAccounts,
    /// Change nothing; count the entities that would be copied, changed and deleted, and list the entities
    /// that cannot be copied and the types that files do not state
    #[arg(long)]
    pub dry_run: bool,
    /// Continue an interrupted copy
    #[arg(long)]
    pub resume: bool,
    /// File for the state of the copy, which --resume needs [default: rowhouse-copy-….state, or copy.state in
    /// the dump folder]
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// File for the entities that cannot be copied, as JSON lines [default: beside the state]
    #[arg(long)]
    pub rejects: Option<PathBuf>,
    /// Continue with the other tables if one fails
    #[arg(long)]
    pub keep_going: bool,
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
    /// Returns the master key that decrypts the accounts.
    pub(super) fn master_keys(&self) -> Result<MasterKeys, TransferEnd> {
        let read = self.master_key.read().map_err(|error| TransferEnd::Usage(error.to_string()))?;
        let needed = "--accounts: --master-key or --master-key-file is required, with the master key of the \
             servers";
        read.ok_or_else(|| TransferEnd::Usage(needed.into()))
    }

    /// Refuses arguments that have no effect.
    ///
    /// # Errors
    /// [`TransferEnd::Usage`], before a place is opened.
    pub(super) fn refuse_without_effect(&self, from: &DataLocation) -> Result<(), TransferEnd> {
        self.files.refuse_without_files(&[from])?;
        if self.max_delete.is_some() && !self.delete_extra && !self.delete_extra_tables {
            let text = "--max-delete: nothing is deleted without --delete-extra or --delete-extra-tables";
            return Err(TransferEnd::Usage(text.into()));
        }
        if self.since.is_some_and(|since| since > Ticks::now()) {
            return Err(TransferEnd::Usage("--since: the time is in the future".into()));
        }
        Ok(())
    }

    /// Refuses deletions and comparisons that the places do not support.
    ///
    /// # Errors
    /// [`TransferEnd::Usage`], before a place is opened.
    pub(super) fn refuse_unsuited_places(
        &self,
        from: &DataLocation,
        to: &DataLocation,
    ) -> Result<(), TransferEnd> {
        let deletions =
            [(self.delete_extra, "--delete-extra"), (self.delete_extra_tables, "--delete-extra-tables")];
        for (_, name) in deletions.into_iter().filter(|(is_given, _)| *is_given) {
            refuse_ranged(name, &[from, to])?;
            if matches!(to, DataLocation::Dump(_)) {
                return Err(TransferEnd::Usage(format!(
                    "{name}: a dump begins in an empty folder, so nothing in it can be extra; leave the \
                     option out"
                )));
            }
        }
        if self.verify { refuse_ranged("--verify", &[from, to]) } else { Ok(()) }
    }
}

fn time(text: &str) -> Result<Ticks, String> {
    Ticks::parse(text).map_err(|_| "is not a time such as 2026-01-31T08:00:00Z".into())
}
