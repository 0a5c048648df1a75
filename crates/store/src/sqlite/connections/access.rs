//! Explains why a file or folder cannot be written, and what to do about it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, absolute};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// Returns why this process cannot write a database file: its folder is missing, or the permissions of
/// the file or the folder forbid it. SQLite creates files beside the database.
pub fn obstacle(file: &Path) -> Option<String> {
    let file = &absolute(file).ok()?;
    let folder = file.parent()?;
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Err(Errno::NOENT) => return Some(format!("there is no folder {}", folder.display())),
        Err(error) => return describe("folder", folder, error.into()),
        Ok(()) => {}
    }
    let refused = access(file, Access::READ_OK | Access::WRITE_OK).err()?;
    describe("file", file, refused.into())
}

/// Describes an error; `None` if neither permissions nor the file system are the cause.
fn describe(kind: &str, path: &Path, error: io::Error) -> Option<String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let shown = path.display();
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("let uid {user} write there, or name another place that this user may write to")
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount a writable volume there".to_owned(),
        _ => return None,
    };
    let owner = path.metadata().map(owner).unwrap_or_default();
    Some(format!("uid {user} (gid {group}) cannot write to the {kind} {shown}{owner}: {error}; {remedy}"))
}

fn owner(found: Metadata) -> String {
    let mode = found.mode() & 0o7777;
    format!(", which belongs to uid {} and gid {} with mode {mode:o}", found.uid(), found.gid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_or_made_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        assert_eq!(obstacle(&file), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(obstacle(&file), None);
        let none = folder.path().join("none");
        assert_eq!(obstacle(&none.join("a.db")), Some(format!("there is no folder {}", none.display())));
        assert_eq!(obstacle(Path::new("a.db")), None);
    }
}
