//! Assembles an entity as JSON with type annotations. The texts of values are not changed.

use crate::protocol::codec::json_object;
use crate::protocol::codec::json_object::push_string;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::{EdmType, Ticks};
use crate::rows::Row;
use crate::rows::type_inference::TableNotes;

/// The name of the Timestamp in the output of `Get-AzTableRow`.
pub(super) const TIMESTAMP: &str = "TableTimestamp";
/// The name of the ETag in the output of `Get-AzTableRow`.
pub(super) const TAG: &str = "Etag";

/// Whether PowerShell wrote entities with these members: [`TIMESTAMP`] and [`TAG`] are then not properties.
pub(super) fn is_of_powershell(has: impl Fn(&str) -> bool) -> bool {
    has(TIMESTAMP) && has(TAG) && !has("Timestamp")
}

/// An entity that is assembled member by member.
pub(super) struct Assembly<'a> {
    json: String,
    notes: TableNotes<'a>,
}

impl<'a> Assembly<'a> {
    pub(super) const fn new(notes: TableNotes<'a>) -> Self {
        Self { json: String::new(), notes }
    }

    pub(super) const fn notes(&mut self) -> &mut TableNotes<'a> {
        &mut self.notes
    }

    pub(super) fn untyped(&mut self, name: &str, raw: &str) {
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
        push_string(&mut self.json, name);
        self.json.push(':');
        self.json.push_str(raw);
    }

    /// Adds the Timestamp. An invalid date is recorded and omitted, because the target can set its own Timestamp.
    pub(super) fn timestamp(&mut self, text: Option<&str>) {
        match text.filter(|text| Ticks::parse(text).is_ok()) {
            Some(text) => {
                let mut raw = String::new();
                push_string(&mut raw, text);
                self.untyped("Timestamp", &raw);
            }
            None => self.notes.no_date("Timestamp"),
        }
    }

    /// Adds a member whose annotation is a separate member.
    pub(super) fn annotated(&mut self, name: &str, stated: Option<EdmType>, raw: &str) -> Result<(), String> {
        match stated {
            Some(EdmType::DateTime) => self.date(name, raw)?,
            Some(number @ (EdmType::Int32 | EdmType::Int64 | EdmType::Double)) => {
                self.notes.value(name, number, true);
            }
            _ => {}
        }
        self.untyped(name, raw);
        Ok(())
    }

    /// Adds a value with its type, such as `Edm.Int32` or `Int32`.
    pub(super) fn typed(&mut self, name: &str, edm_type: &str, raw: &str) -> Result<(), String> {
        let known = known_type(edm_type).ok_or_else(|| format!("{name}: '{edm_type}' is not a type"))?;
        if known == EdmType::DateTime {
            self.date(name, raw)?;
        }
        if !matches!(name, "PartitionKey" | "RowKey" | "Timestamp") {
            self.untyped(&format!("{name}{ANNOTATION}"), &format!("\"{}\"", known.name()));
        }
        // The value is a number or Boolean without quotes, although its type is String.
        let is_bare = known == EdmType::String && !raw.starts_with(['"', 'n', '{', '[']);
        if is_bare {
            self.untyped(name, &format!("\"{raw}\""))
        } else {
            self.untyped(name, raw)
        }
        Ok(())
    }

    /// Adds a text of the given type, which is String by default.
    pub(super) fn text(&mut self, name: &str, edm_type: Option<&str>, text: &str) -> Result<(), String> {
        let mut raw = String::new();
        push_string(&mut raw, text);
        match edm_type {
            Some(edm_type) => self.typed(name, edm_type, &raw)?,
            None => self.untyped(name, &raw),
        }
        Ok(())
    }

    /// Records a date without a time zone, and refuses a date with more digits than Azure keeps.
    fn date(&mut self, name: &str, raw: &str) -> Result<(), String> {
        let Some(text) = json_object::string(raw) else { return Ok(()) };
        let (_, time) = text.split_once('T').unwrap_or((&text, ""));
        let fraction = time.split_once('.').map_or("", |(_, fraction)| fraction);
        let mut beyond = fraction.bytes().take_while(u8::is_ascii_digit).skip(7);
        if beyond.any(|digit| digit != b'0') {
            return Err(format!("{name}: '{text}' has more than seven digits of a second"));
        }
        if !time.contains(['Z', '+', '-']) && Ticks::parse(&text).is_ok() {
            self.notes.without_zone(name);
        }
        Ok(())
    }

    pub(super) fn row(mut self) -> Result<Row, String> {
        self.json.push_str(if self.json.is_empty() { "{}" } else { "}" });
        Row::from_json(&self.json)
    }
}

/// Returns the type with a name such as `Edm.Int32`, `Int32` or `GUID`.
pub(super) fn known_type(name: &str) -> Option<EdmType> {
    let short = name.rsplit('.').next()?;
    EdmType::ALL.into_iter().find(|known| known.name()["Edm.".len()..].eq_ignore_ascii_case(short))
}
