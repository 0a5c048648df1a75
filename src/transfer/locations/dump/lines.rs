//! The lines of a page.

use crate::protocol::codec::strings::push_string;
use crate::protocol::model::Key;
use crate::transfer::contract::WritePage;
use crate::transfer::error::TransferResult;
use crate::transfer::locations::page_outcome::PageOutcome;
use crate::transfer::rows::row::Row;

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
    /// Returns the lines of a page. With `with_table`, each begins with the name of its table, as
    /// `odata.type`: no property can have that name.
    ///
    /// # Errors
    /// If a rejected entity cannot be recorded.
    pub(super) fn of(page: &'a WritePage<'_>, with_table: bool) -> TransferResult<Self> {
        let (mut lines, mut outcome) = (Self::default(), PageOutcome::new(page));
        let mut line = String::new();
        for row in &page.rows {
            line.clear();
            match row.push_json(&mut line, true) {
                Ok(()) => lines.push(row, &line, with_table.then_some(page.table)),
                Err(reason) => outcome.reject(row, reason)?,
            }
        }
        Ok(Self { rejected: outcome.counts.rejected, ..lines })
    }

    fn push(&mut self, row: &'a Row, line: &str, table: Option<&str>) {
        match table.zip(line.strip_prefix('{')) {
            Some((table, members)) => {
                self.text.push_str("{\"odata.type\":");
                push_string(&mut self.text, table);
                self.text.push(',');
                self.text.push_str(members);
            }
            None => self.text.push_str(line),
        }
        self.text.push('\n');
        self.keys.push(&row.key);
    }
}
