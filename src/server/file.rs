//! Reads the files that settings name: keys, certificates and lists of accounts.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size of such a file in MiB. Only lists of accounts come near this size.
const MAX_MIB: u64 = 4;

/// Reads a file, which may be a pipe or a device.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let limit = MAX_MIB * 1024 * 1024;
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("the file has more than {MAX_MIB} MiB")));
    }
    Ok(bytes)
}

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_bytes(path)?);
    text.map_err(|_| io::Error::other("the file is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
        assert_eq!(read_text(&path).unwrap().len(), 4 << 20);
        std::fs::write(&path, vec![b'x'; (4 << 20) + 1]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().to_string(), "the file has more than 4 MiB");
        assert!(read_bytes(Path::new("/dev/zero")).is_err());
        std::fs::write(&path, [0xFF]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().to_string(), "the file is no text in UTF-8");
    }
}
