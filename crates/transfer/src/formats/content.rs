//! Whether the files of a place have changed, by a hash.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest as _, Sha256};

use super::manifest::AzCopyManifest;
use super::opening;
use super::recognition::{Recognized, has_known_extension, recognized};
use crate::error::{TransferError, TransferResult};
use crate::locations::dump::{MANIFEST, digest, hex};
use crate::locations::location::DataLocation;

/// Bytes of the beginning and of the end of a file that are hashed.
const HASHED: u64 = 1 << 20;

/// Returns a hash that changes with the files of a place: empty for a place that is no file, and may change anyway.
pub fn content_of(place: &DataLocation) -> TransferResult<String> {
    let files = match place {
        DataLocation::Endpoint(_) | DataLocation::Database(_) => return Ok(String::new()),
        DataLocation::Dump(folder) if !folder.is_file() => {
            let path = folder.join(MANIFEST);
            let mut file = File::open(&path).map_err(|error| opening::named(&path, &error))?;
            return Ok(hex(digest(&mut file)?));
        }
        DataLocation::Dump(path) | DataLocation::File(path) => files_of(path)?,
    };
    let mut all = Sha256::new();
    for path in files {
        note(&path, &mut all).map_err(|error| TransferError::from(error).at(&path))?;
    }
    Ok(hex(all))
}

/// Returns the files that are read for one that is named.
fn files_of(path: &Path) -> TransferResult<Vec<PathBuf>> {
    let beside = || {
        let folder = if path.is_dir() { path } else { opening::folder_of(path) };
        let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        // The state of the copy may be there, too.
        let is_read = |path: &PathBuf| path.is_file() && has_known_extension(path);
        let mut files: Vec<PathBuf> = entries.filter(is_read).collect();
        files.sort();
        Ok::<_, TransferError>(files)
    };
    if path.is_dir() {
        return beside();
    }
    let mut files = vec![path.to_owned()];
    if recognized(path)? == Recognized::Manifest {
        let manifest = AzCopyManifest::read(path)?;
        files.extend(beside()?.into_iter().filter(|file| manifest.has(file)));
    }
    files.extend(Some(path.with_extension("schema.csv")).filter(|schema| schema.is_file()));
    Ok(files)
}

/// Adds the name, size, time, beginning and end of a file to a hash.
fn note(path: &Path, all: &mut Sha256) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    let time = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    all.update(format!("{}\n{}\n{}\n", path.display(), about.len(), time.as_nanos()));
    for begin in [0, about.len().saturating_sub(HASHED)] {
        file.seek(SeekFrom::Start(begin))?;
        all.update(digest(&mut (&mut file).take(HASHED))?.finalize());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_file_that_is_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("People.csv");
        let content = |path: &Path| content_of(&DataLocation::File(path.to_owned())).unwrap();
        let text = "PartitionKey,RowKey\n".to_owned() + &"a,1\n".repeat(1 << 20);
        std::fs::write(&path, &text).unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let (alone, all) = (content(&path), content(folder.path()));
        std::fs::write(folder.path().join("copy.state"), "of the copy itself").unwrap();
        assert_eq!((content(&path), content(folder.path())), (alone.clone(), all.clone()));
        // The same size and time, and another end.
        std::fs::write(&path, text[..text.len() - 2].to_owned() + "2\n").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert!(content(&path) != alone && content(folder.path()) != all);
        std::fs::write(&path, &text).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!((content(&path), content(folder.path())), (alone.clone(), all.clone()));
        std::fs::write(folder.path().join("People.schema.csv"), "PartitionKey,RowKey\n").unwrap();
        assert!(content(&path) != alone && content(folder.path()) != all);
    }
}
