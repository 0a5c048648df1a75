//! Invalid settings, collected so that all are reported at once.

use super::ConfigError;

/// All invalid settings, one per line.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) struct Mistakes(Vec<ConfigError>);

impl std::fmt::Display for Mistakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigError> for Mistakes {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl Mistakes {
    /// Returns the value, or records the mistake and returns `None`.
    pub(crate) fn note<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }

    /// Returns the value, unless mistakes were recorded.
    pub(crate) fn unless<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}
