//! Collects invalid settings, so that all are reported at once, and reads secrets, which are given inline or in files.

use std::path::PathBuf;

use crate::server::file::read_text;

/// All invalid settings, each as a line for the operator who starts the server.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct Mistakes(Vec<String>);

impl From<String> for Mistakes {
    fn from(mistake: String) -> Self {
        Self(vec![mistake])
    }
}

impl From<&str> for Mistakes {
    fn from(mistake: &str) -> Self {
        Self(vec![mistake.to_owned()])
    }
}

impl Mistakes {
    /// Returns the value, or records the mistake and returns `None`.
    pub(crate) fn record<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        result.map_err(|mistake| self.0.extend(mistake.into().0)).ok()
    }

    /// Returns the value if no mistakes were recorded.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

/// Returns a secret that is given inline or in a file. A blank inline value counts as missing.
pub(crate) fn secret(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, Mistakes> {
    let value = value.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let file = file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let (path, text) = match (value, file) {
        (Some(_), Some(_)) => return Err(format!("{flag} and {flag}-file: give one of the two").into()),
        (value, None) => return Ok(value.map(str::to_owned)),
        (None, Some(path)) => (path, read_text(path)),
    };
    let mistake = |reason: &str| Mistakes::from(format!("{flag}-file {}: {reason}", path.display()));
    let text = text.map_err(|error| mistake(&error.to_string()))?;
    // An empty file must not count as missing, because then the development account would be served.
    if text.trim().is_empty() {
        return Err(mistake("the file is empty"));
    }
    Ok(Some(text.trim().to_owned()))
}
