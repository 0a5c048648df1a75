//! Inferences about files: types of values, time zones of dates, short rows.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::model::{EdmType, Ticks, lexical};

/// Maximum properties, and remarks, that are remembered.
const MAX_REMEMBERED: usize = 10_000;
/// Maximum bytes of a remembered name; no property has a longer one.
const MAX_NAME_BYTES: usize = 3 * 255;
/// The types whose values are often stored as strings.
const OFTEN_STRINGS: [EdmType; 3] = [EdmType::DateTime, EdmType::Guid, EdmType::Binary];

/// How the values of a property were interpreted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferredTypes {
    /// Values without a type in the file.
    pub untyped: u64,
    /// The number of values of each stated or inferred type.
    pub types: BTreeMap<&'static str, u64>,
    /// Dates without a time zone, which were read as UTC.
    pub without_zone: u64,
    /// Values that were left out because they are not dates.
    no_dates: u64,
    looks: Looks,
}

/// The [`OFTEN_STRINGS`] types that all strings so far may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Looks {
    may_be: Option<[bool; OFTEN_STRINGS.len()]>,
    /// Whether some string has characters that distinguish base64 from words.
    is_base64: bool,
}

impl Looks {
    fn note(&mut self, text: &str) {
        let fits = |edm_type| match edm_type {
            EdmType::DateTime => Ticks::parse(text).is_ok(),
            EdmType::Guid => lexical::parse_guid(text).is_some(),
            _ => !text.is_empty() && lexical::parse_binary(text).is_some(),
        };
        let may_be = self.may_be.get_or_insert([true; OFTEN_STRINGS.len()]);
        for (may_be, edm_type) in may_be.iter_mut().zip(OFTEN_STRINGS) {
            *may_be = *may_be && fits(edm_type);
        }
        self.is_base64 |= text.contains(['=', '+', '/']);
    }

    fn common_type(&self) -> Option<EdmType> {
        let may_be = self.may_be?;
        let like = OFTEN_STRINGS.into_iter().zip(may_be).find(|(_, may_be)| *may_be)?.0;
        (like != EdmType::Binary || self.is_base64).then_some(like)
    }
}

impl InferredTypes {
    /// Whether some untyped values may have the type of others, such as a `3` among doubles.
    fn is_mixed(&self) -> bool {
        self.untyped > 0 && self.types.len() > 1
    }

    /// Returns the type that all untyped strings look like.
    pub fn looks_like(&self) -> Option<&'static str> {
        self.looks.common_type().map(short_name)
    }

    /// Whether there is a remark on the property.
    fn is_notable(&self) -> bool {
        self.untyped > 0 || self.without_zone > 0 || self.no_dates > 0 || self.looks.common_type().is_some()
    }

    /// Returns remarks on the property for people: all of them, or only possible mistakes.
    pub fn remarks(&self, property: &str, all: bool) -> Vec<String> {
        let mut remarks = Vec::new();
        let looks = self.looks_like();
        let types: Vec<String> = self.types.iter().map(|(name, values)| format!("{values} {name}")).collect();
        if self.untyped > 0 && (all || self.is_mixed()) {
            let hint = if self.is_mixed() { "; if it has one type, state it with --type" } else { "" };
            remarks.push(format!("no type in the file, read as {}{hint}", types.join(", ")));
        }
        if let Some(like) = looks {
            remarks.push(format!("read as String; looks like {like}: --type {property}={like}"));
        }
        if self.without_zone > 0 {
            remarks.push(format!("{} dates have no zone, and are read as UTC", self.without_zone));
        }
        if self.no_dates > 0 {
            remarks.push(format!("{} values are not dates, and were left out", self.no_dates));
        }
        remarks
    }
}

/// The inferences for all tables, by table and property.
#[derive(Debug, Default)]
pub struct Inferences {
    tables: BTreeMap<String, BTreeMap<String, InferredTypes>>,
    properties: usize,
    remarks: Vec<String>,
    /// Properties that got the type that was given for them.
    given: BTreeSet<String>,
}

impl Inferences {
    pub(crate) fn of<'a>(&'a mut self, table: &'a str) -> TableNotes<'a> {
        TableNotes { inferences: self, table }
    }

    /// Records a remark on the files, which is reported before anything is written.
    pub(crate) fn remark(&mut self, text: String) {
        if self.remarks.len() < MAX_REMEMBERED {
            self.remarks.push(text);
        }
    }

    /// Whether values of a property got the type that was given for them.
    pub(crate) fn has_given(&self, property: &str) -> bool {
        self.given.contains(property)
    }

    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the properties with remarks, by table and name.
    pub fn notable(&self) -> impl Iterator<Item = (&str, &str, &InferredTypes)> {
        self.tables.iter().flat_map(|(table, properties)| {
            let notable = properties.iter().filter(|(_, types)| types.is_notable());
            notable.map(move |(property, types)| (table.as_str(), property.as_str(), types))
        })
    }
}

/// Records the interpretation of a table's values.
pub(crate) struct TableNotes<'a> {
    inferences: &'a mut Inferences,
    table: &'a str,
}

impl TableNotes<'_> {
    pub(crate) fn value(&mut self, property: &str, edm_type: EdmType, is_stated: bool) {
        self.change(property, |types| {
            types.untyped += u64::from(!is_stated);
            *types.types.entry(short_name(edm_type)).or_default() += 1;
        });
    }

    /// Records that a value got the type that was given for the property.
    pub(crate) fn given(&mut self, property: &str) {
        if !self.inferences.given.contains(property) {
            self.inferences.given.insert(property.to_owned());
        }
    }

    /// Records a string that may be of another type.
    pub(crate) fn string(&mut self, property: &str, text: &str) {
        self.change(property, |types| types.looks.note(text));
    }

    pub(crate) fn without_zone(&mut self, property: &str) {
        self.change(property, |types| types.without_zone += 1);
    }

    /// Records a value that was left out because it is not a date.
    pub(crate) fn no_date(&mut self, property: &str) {
        self.change(property, |types| types.no_dates += 1);
    }

    fn change(&mut self, property: &str, change: impl FnOnce(&mut InferredTypes)) {
        let Inferences { tables, properties, .. } = &mut *self.inferences;
        if let Some(types) = tables.get_mut(self.table).and_then(|table| table.get_mut(property)) {
            return change(types);
        }
        if *properties < MAX_REMEMBERED && property.len() <= MAX_NAME_BYTES {
            *properties += 1;
            let table = tables.entry(self.table.to_owned()).or_default();
            change(table.entry(property.to_owned()).or_default());
        }
    }
}

/// Returns the name of a type for `--type`.
fn short_name(edm_type: EdmType) -> &'static str {
    edm_type.name().trim_start_matches("Edm.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_look_like_a_type_if_all_of_them_do() {
        let like = |texts: &[&str]| {
            let mut types = InferredTypes::default();
            texts.iter().for_each(|text| types.looks.note(text));
            types.looks_like()
        };
        assert_eq!(like(&["2020-01-02T03:04:05Z", "2020-01-02"]), Some("DateTime"));
        assert_eq!(like(&["0f8fad5b-d9cb-469f-a165-70867728950e"]), Some("Guid"));
        assert_eq!(like(&["AQI=", "word"]), Some("Binary"));
        for texts in
            [&[][..], &["word"], &[""], &["AQI=", ""], &["2020-01-02", "soon"], &["2020-01-02", "AQI="]]
        {
            assert_eq!(like(texts), None, "{texts:?}");
        }
    }
}
