//! Text tests by code points, without collation or normalization: the functions of extended queries
//! (docs/how-to/operator-features.md).

use std::borrow::Cow;

use super::CompareOp;

/// The test that a filter function applies to a String.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
    /// A comparison of the text after a change of case.
    Is(CompareOp),
}

impl TextTest {
    /// Returns whether `text` passes the test with `needle`. The empty needle is part of every text.
    pub fn holds(self, text: &str, needle: &str) -> bool {
        match self {
            TextTest::StartsWith => text.starts_with(needle),
            TextTest::EndsWith => text.ends_with(needle),
            TextTest::Contains => text.contains(needle),
            TextTest::Is(op) => op.holds(Some(text.cmp(needle))),
        }
    }

    /// Returns the name of the function, or the keyword of the comparison.
    pub const fn word(self) -> &'static str {
        match self {
            TextTest::StartsWith => "startswith",
            TextTest::EndsWith => "endswith",
            TextTest::Contains => "contains",
            TextTest::Is(op) => op.word(),
        }
    }
}

/// A change of case for ASCII letters alone, so that the result is the same in both databases and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaseFold {
    Lower,
    Upper,
}

impl CaseFold {
    /// Returns the text converted to this case.
    pub fn apply(self, text: &str) -> Cow<'_, str> {
        let changes = match self {
            CaseFold::Lower => text.bytes().any(|b| b.is_ascii_uppercase()),
            CaseFold::Upper => text.bytes().any(|b| b.is_ascii_lowercase()),
        };
        match self {
            _ if !changes => Cow::Borrowed(text),
            CaseFold::Lower => Cow::Owned(text.to_ascii_lowercase()),
            CaseFold::Upper => Cow::Owned(text.to_ascii_uppercase()),
        }
    }

    /// Returns the name of the function.
    pub const fn word(self) -> &'static str {
        match self {
            CaseFold::Lower => "tolower",
            CaseFold::Upper => "toupper",
        }
    }
}
