//! What a copy that is continued must have in common with the one that was interrupted.

use sha2::{Digest as _, Sha256};

use crate::locations::dump::hex;

/// What must be the same, by its name: places, what files have, options.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint(Vec<(&'static str, String)>);

impl Fingerprint {
    /// Adds something that must be the same.
    pub fn with(mut self, name: &'static str, value: impl std::fmt::Debug) -> Self {
        self.0.push((name, format!("{value:?}")));
        self
    }

    /// Returns it as a text of lines.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}\t{value}\n")).collect()
    }

    /// Returns what distinguishes this copy from others, for what it has completed.
    pub fn origin(&self) -> String {
        origin(&self.text())
    }

    /// Returns the name of the first thing that differs between two texts.
    pub(super) fn difference<'t>(known: &'t str, given: &'t str) -> &'t str {
        let other = known.lines().zip(given.lines()).find(|(a, b)| a != b);
        other.and_then(|(_, line)| line.split('\t').next()).unwrap_or("version of rowhouse")
    }
}

/// Returns the SHA-256 of a fingerprint's text.
pub(super) fn origin(text: &str) -> String {
    hex(Sha256::new_with_prefix(text))
}
