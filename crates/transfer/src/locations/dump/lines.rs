//! The lines of a page.

use crate::contract::WritePage;
use crate::error::TransferResult;
use crate::locations::page_outcome::PageOutcome;
use crate::protocol::model::Key;
use crate::rows::row::Row;

/// The compression level: higher ones cost more time than they save.
pub(super) const LEVEL: i32 = 1;

/// The lines of a page.
#[derive(Default)]
pub(super) struct PageLines<'a> {
    pub text: String,
    /// In the order of the lines.
    pub keys: Vec<&'a Key>,
    /// How many entities have no text.
    pub rejected: u64,
}

impl<'a> PageLines<'a> {
    /// Returns the lines of a page.
    pub(super) fn of(page: &'a WritePage<'_>) -> TransferResult<Self> {
        let (mut lines, mut outcome) = (Self::default(), PageOutcome::new(page));
        let mut line = String::new();
        for row in &page.rows {
            line.clear();
            match row.push_json(&mut line, true) {
                Ok(()) => lines.push(row, &line),
                Err(reason) => outcome.reject(row, reason)?,
            }
        }
        Ok(Self { rejected: outcome.counts.rejected, ..lines })
    }

    fn push(&mut self, row: &'a Row, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.keys.push(&row.key);
    }
}
