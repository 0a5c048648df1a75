//! Files of other programs. They are first imported into a temporary database, which sorts their
//! entities, and copied from there. So unreadable content is found before anything is written.

mod azurite;
mod csv;
mod json;
mod members;
mod staging;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::endpoint::{TransferError, TransferResult};
use crate::model::{EdmType, TableName};
use staging::Staging;
pub(super) use staging::{Staged, stage};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FileFormat {
    /// By the content
    Auto,
    /// Azurite's workspace file, __azurite_db_table__.json
    Azurite,
    /// Arrays, lists or lines of entities: AzCopy, Storage Explorer, az, and others
    Json,
    /// Storage Explorer's CSV, with or without types
    Csv,
}

/// How to read files.
#[derive(Debug, Clone)]
pub(crate) struct FileOptions {
    pub format: FileFormat,
    /// The table of files whose names do not contain it.
    pub table: Option<String>,
    /// Types of properties for which the file has none.
    pub types: Vec<(String, EdmType)>,
}

/// Reads a file, or all files of a folder, into the staging database.
fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    if !path.is_dir() {
        return import_file(path, options, staging);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if matches!(extension(&file).as_str(), "json" | "csv" | "txt" | "ndjson" | "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    // AzCopy writes the types of a CSV file into this file beside it.
    files.retain(|file| !file.to_string_lossy().ends_with(".schema.csv"));
    if files.is_empty() {
        return Err(TransferError::Usage(format!("{} has no files to read", path.display())));
    }
    files.iter().try_for_each(|file| import_file(file, options, staging))
}

fn import_file(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let format = match options.format {
        FileFormat::Auto => recognized(path)?,
        given => given,
    };
    match format {
        FileFormat::Azurite => azurite::import(path, staging),
        FileFormat::Csv => csv::import(path, &table_of(path, options)?, options, staging),
        FileFormat::Json | FileFormat::Auto => {
            json::import(path, &table_of(path, options)?, options, staging)
        }
    }
}

/// Detects the format from the beginning of a file.
fn recognized(path: &Path) -> TransferResult<FileFormat> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let beginning = String::from_utf8_lossy(reader.fill_buf()?).into_owned();
    let text = beginning.trim_start_matches('\u{feff}').trim_start();
    Ok(match text.chars().next() {
        Some('{') if text.contains("\"$TABLES_COLLECTION$\"") || text.contains("\"databaseVersion\"") => {
            FileFormat::Azurite
        }
        Some('{') if path.ends_with("__azurite_db_table__.json") => FileFormat::Azurite,
        Some('{' | '[') => FileFormat::Json,
        _ => FileFormat::Csv,
    })
}

/// Returns the table that a file's name contains: `{account}_{table}_{time}…`, `{table}_Backup_…` or
/// `{table}.…`.
fn table_of(path: &Path, options: &FileOptions) -> TransferResult<String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = file.split('.').next().unwrap_or_default();
    let parts: Vec<&str> = stem.split('_').collect();
    let told = match parts.as_slice() {
        [table, "Backup", ..] => *table,
        [_, table, time, ..] if time.len() > 8 && time.starts_with(|c: char| c.is_ascii_digit()) => *table,
        _ => stem,
    };
    let name = options.table.as_deref().unwrap_or(told);
    match TableName::parse(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => {
            let text = format!("{}: its name contains no table name; give one with --table", path.display());
            Err(TransferError::Usage(text))
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_tables() {
        let options = FileOptions { format: FileFormat::Auto, table: None, types: Vec::new() };
        let table = |name: &str| table_of(Path::new(name), &options).ok();
        assert_eq!(table("acct_People_20140903T051850.8128447Z_0_1_00.json").as_deref(), Some("People"));
        assert_eq!(table("People_Backup_20200102030405.txt").as_deref(), Some("People"));
        assert_eq!(table("dir/People.typed.csv").as_deref(), Some("People"));
        assert_eq!(table("my people.csv"), None);
        let named = FileOptions { table: Some("Other".into()), ..options };
        assert_eq!(table_of(Path::new("my people.csv"), &named).ok().as_deref(), Some("Other"));
    }
}
