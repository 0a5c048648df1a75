//! Imports files of other programs into a temporary database, which sorts their entities. Copies read from that
//! database, so that unreadable content is found before anything is written.

mod assembly;
mod azurite;
mod csv;
mod files;
mod json;
mod splitter;
mod staging;

use std::path::Path;

use crate::error::{TransferResult, usage};
use crate::locations::location::DataLocation;
use crate::protocol::model::TableName;
use files::{AzCopyManifest, folder_of, has_known_extension, recognize};
pub use files::{FileFormat, FileOptions, content_of};
pub(super) use staging::{Staged, StagingOptions, stage_source};
use staging::{Staging, with_staging};

/// The reason why a file of a folder is not read.
const NO_EXTENSION: &str = "its name has no extension of a known format";

/// Refuses an account in a file of another program than Azurite.
pub fn refuse_unused_account(place: &DataLocation) -> TransferResult<()> {
    match place {
        DataLocation::File(path, Some(account)) if !is_azurite_file(path)? => {
            Err(usage!("{} is not a file of Azurite, so it has no account {account}", path.display()))
        }
        _ => Ok(()),
    }
}

fn is_azurite_file(path: &Path) -> TransferResult<bool> {
    Ok(path.is_file() && recognize(path)? == FileFormat::Azurite)
}

/// Reads files into a temporary database.
pub(super) fn stage(path: &Path, files: &FileOptions, options: StagingOptions) -> TransferResult<Staged> {
    with_staging(options, |staging| {
        import(path, files, staging)?;
        staging.refuse_unused(&files.types)
    })
}

/// Reads standard input into a temporary database. Files are read more than once, so it becomes a file first.
pub(super) fn stage_input(files: &FileOptions, options: StagingOptions) -> TransferResult<Staged> {
    with_staging(options, |staging| {
        import_file(&staging.spool_input()?, files, None, staging)?;
        staging.refuse_unused(&files.types)
    })
}

/// Reads a file, or all files of a folder, into the staging database.
fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    if path.is_dir() {
        return import_folder(path, options, None, staging);
    }
    match recognize(path)? {
        // The data files are beside the manifest.
        FileFormat::Manifest => {
            import_folder(folder_of(path), options, Some(AzCopyManifest::read(path)?), staging)
        }
        _ => import_file(path, options, None, staging),
    }
}

/// Reads the files of a folder, or only those of the manifest `only`.
fn import_folder(
    folder: &Path,
    options: &FileOptions,
    only: Option<AzCopyManifest>,
    staging: &mut Staging,
) -> TransferResult<()> {
    let has_manifest = only.is_some();
    let (mut manifests, mut files, mut folders) = (Vec::from_iter(only), Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        } else if !path.is_file() {
            staging.leave_out(format!("{}: not read: it is not a regular file", path.display()));
        } else if path.to_string_lossy().ends_with(".schema.csv") {
            // AzCopy's CSV has its types in a file beside it.
        } else if !has_known_extension(&path) {
            if !has_manifest {
                staging.leave_out(format!("{}: not read: {NO_EXTENSION}", path.display()));
            }
        } else if recognize(&path)? != FileFormat::Manifest {
            files.push(path);
        } else if !has_manifest {
            manifests.push(AzCopyManifest::read(&path)?);
        }
    }
    files.sort();
    for manifest in &manifests {
        manifest.check(files.iter().filter(|file| manifest.has(file)).count())?;
        // A table without entities has no data file.
        staging.begin(&manifest.table_name)?;
    }
    let mut found = !manifests.is_empty();
    for file in &files {
        let manifest = manifests.iter().find(|manifest| manifest.has(file));
        if !has_manifest || manifest.is_some() {
            found = true;
            import_file(file, options, manifest.map(|manifest| manifest.table_name.as_str()), staging)?;
        }
    }
    for path in folders.iter().filter(|_| !has_manifest) {
        staging.leave_out(format!("{}: not read: it is a folder within the folder", path.display()));
    }
    if found {
        return Ok(());
    }
    Err(usage!("{} has no files to read", folder.display()))
}

/// Reads a file. The name of the table is in `table`, in the options or in the name of the file.
fn import_file(
    path: &Path,
    options: &FileOptions,
    table: Option<&str>,
    staging: &mut Staging,
) -> TransferResult<()> {
    let format = match options.format {
        FileFormat::Auto => recognize(path)?,
        given => given,
    };
    let table = || match (table, &options.table) {
        (Some(table), None) => Ok(table.to_owned()),
        _ => table_of(path, options),
    };
    if format == FileFormat::Azurite {
        return azurite::import(path, staging);
    }
    staging.begin(&table()?)?;
    match format {
        FileFormat::Csv => csv::import(path, options, staging),
        _ => json::import(path, options, staging),
    }
}

/// Returns the table in a file's name: `{account}_{table}_{time}…` or `{table}.…`.
fn table_of(path: &Path, options: &FileOptions) -> TransferResult<String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = file.split('.').next().unwrap_or_default();
    // A part of a dump is in a folder with the table's name.
    let is_part = file.ends_with(".ndjson.zst");
    let folder = path.parent().and_then(Path::file_name).filter(|_| is_part);
    let folder = folder.map(|folder| folder.to_string_lossy().into_owned());
    let stem = folder.as_deref().unwrap_or(stem);
    let parts: Vec<&str> = stem.split('_').collect();
    let stated = match parts.as_slice() {
        [_, table, time, ..] if time.len() > 8 && time.starts_with(|c: char| c.is_ascii_digit()) => *table,
        _ => stem,
    };
    let name = options.table.as_deref().unwrap_or(stated);
    match TableName::parse(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Err(usage!("{}: its name contains no table name; give one with --table", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_tables() {
        let options = FileOptions { format: FileFormat::Auto, table: None, types: Vec::new() };
        let table = |name: &str| table_of(Path::new(name), &options).ok();
        assert_eq!(table("acct_People_20140903T051850.8128447Z_0_1_00.json").as_deref(), Some("People"));
        assert_eq!(table("dir/People.typed.csv").as_deref(), Some("People"));
        assert_eq!(table("dump/People/000001-0001.ndjson.zst").as_deref(), Some("People"));
        assert_eq!(table("my people.csv"), None);
        let named = FileOptions { table: Some("Other".into()), ..options };
        assert_eq!(table_of(Path::new("my people.csv"), &named).ok().as_deref(), Some("Other"));
    }
}
