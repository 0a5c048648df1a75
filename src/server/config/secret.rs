//! Secrets, given inline or in files.

use std::path::PathBuf;

use super::ConfigError;
use crate::server::file::read_text;

/// Returns a secret that is given inline or in a file. A blank inline value counts as `None`, which some
/// callers refuse.
pub(crate) fn secret(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, ConfigError> {
    let value = value.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let file = file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let (path, text) = match (value, file) {
        (Some(_), Some(_)) => return Err(ConfigError::Both(flag)),
        (value, None) => return Ok(value.map(str::to_owned)),
        (None, Some(path)) => (path, read_text(path)),
    };
    let wrong = |reason: String| ConfigError::File { flag, path: path.clone(), reason };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    // An empty file must not count as missing, because then the development account would be served.
    if text.trim().is_empty() {
        return Err(wrong("the file is empty".into()));
    }
    Ok(Some(text.trim().to_owned()))
}
