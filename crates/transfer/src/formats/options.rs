//! How to read files of other programs.

use crate::protocol::model::EdmType;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FileFormat {
    /// Recognize the format by the content
    Auto,
    /// Azurite's workspace file, __azurite_db_table__.json
    Azurite,
    /// Arrays, lists or lines of entities: AzCopy, Storage Explorer, az, parts of dumps, and others
    Json,
    /// CSV of Storage Explorer or AzCopy, with or without types
    Csv,
}

/// How to read files.
#[derive(Debug, Clone)]
pub struct FileOptions {
    pub format: FileFormat,
    /// The table of files whose names do not contain it.
    pub table: Option<String>,
    /// Types of properties for which the file has none.
    pub types: Vec<(String, EdmType)>,
}
