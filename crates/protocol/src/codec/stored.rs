//! The stored form of an entity's custom properties: one JSON object, readable in psql.
//!
//! | type | member | annotation `Name@odata.type` |
//! |---|---|---|
//! | String | string | none |
//! | Boolean | `true`, `false` | none |
//! | Int32 | number | none |
//! | Int64, DateTime, Guid, Binary | string in canonical form | always |
//! | Double | number; a string where jsonb would alter it (-0.0, NaN, infinities, exponents) | always |
//! | String with U+0000 | escaped string, see `escape` | `Edm.String` |
//!
//! jsonb reorders members, so an annotation may be anywhere in the object.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::json_object::{Member, each_stored_member, string, value_after, without_suffix};
use super::json_object::{push_plain, push_string};
use crate::error::{Code, Result};
use crate::model::entity::{BorrowedValue, Properties, PropertyOrder, StoredProperties, Value};
use crate::model::names::ordinal;
use crate::model::{EdmType, EdmValue, Ticks, lexical};

/// The suffix of the name of a property's annotation.
pub const ANNOTATION: &str = "@odata.type";

/// One property of a stored object. Its value is not decoded.
#[derive(Debug)]
pub struct StoredField<'a> {
    pub name: Cow<'a, str>,
    /// JSON text of the name, with its quotes.
    pub quoted: &'a str,
    pub edm_type: EdmType,
    /// JSON text of the value.
    pub raw: &'a str,
    /// Whether the value is a string in the form of [`escape`].
    pub escaped: bool,
}

/// Prints properties in stored form. Valid property names need no escapes.
pub fn encode<N: AsRef<str>, V: Value>(properties: &[(N, V)]) -> StoredProperties {
    let mut out = String::with_capacity(estimated_size(properties));
    out.push('{');
    for (name, value) in properties {
        if out.len() > 1 {
            out.push(',');
        }
        push_member(&mut out, name.as_ref(), value.view());
    }
    out.push('}');
    StoredProperties::from_stored_text(out)
}

fn push_member(out: &mut String, name: &str, value: BorrowedValue<'_>) {
    match value {
        BorrowedValue::Text { text, is_plain }
            if is_plain || memchr::memchr(0, text.as_bytes()).is_none() =>
        {
            push_name(out, name);
            if is_plain { push_plain(out, text) } else { push_string(out, text) }
        }
        BorrowedValue::Text { text, .. } => {
            push_annotation(out, name, EdmType::String);
            push_name(out, name);
            push_string(out, &escape(text));
        }
        BorrowedValue::Other(value) => {
            let edm_type = value.edm_type();
            if !has_type_of_json(edm_type) {
                push_annotation(out, name, edm_type);
            }
            push_name(out, name);
            push_value(out, value);
        }
    }
}

/// Returns whether the JSON value determines the type. A string may still have an annotation, see [`escape`].
const fn has_type_of_json(edm_type: EdmType) -> bool {
    matches!(edm_type, EdmType::String | EdmType::Boolean | EdmType::Int32)
}

fn push_name(out: &mut String, name: &str) {
    push_plain(out, name);
    out.push(':');
}

/// Appends a property's annotation and a comma. `name` must be escaped, unless it needs no escapes.
pub(crate) fn push_annotation(out: &mut String, name: &str, edm_type: EdmType) {
    out.push('"');
    out.push_str(name);
    out.push_str(ANNOTATION);
    out.push_str("\":\"");
    out.push_str(edm_type.name());
    out.push_str("\",");
}

/// Returns the names of the annotations that these properties lack. A merge must remove these annotations from the
/// stored object, in which the properties may have values of other types.
pub(crate) fn absent_annotations(properties: &StoredProperties) -> Result<Vec<String>> {
    let is_plain = |field: &StoredField<'_>| has_type_of_json(field.edm_type) && !field.escaped;
    let fields = fields(properties.as_str())?;
    Ok(fields.iter().filter(|f| is_plain(f)).map(|f| format!("{}{ANNOTATION}", f.name)).collect())
}

/// Estimates the size of properties in stored form, in bytes. Many escapes can exceed the estimate.
fn estimated_size<N: AsRef<str>, V: Value>(properties: &[(N, V)]) -> usize {
    let value = |value: BorrowedValue<'_>| match value {
        BorrowedValue::Text { text, .. } => text.len(),
        BorrowedValue::Other(EdmValue::Binary(b)) => 64 + b.len() / 3 * 4,
        BorrowedValue::Other(_) => 64,
    };
    properties.iter().fold(2, |sum, (name, v)| sum + 8 + 2 * name.as_ref().len() + value(v.view()))
}

/// Appends a value that is not a string.
fn push_value(out: &mut String, value: &EdmValue) {
    match value {
        EdmValue::String(s) => push_string(out, s),
        EdmValue::Boolean(b) => out.push_str(if *b { "true" } else { "false" }),
        EdmValue::Int32(n) => out.push_str(&n.to_string()),
        EdmValue::Int64(n) => push_plain(out, &n.to_string()),
        EdmValue::DateTime(t) => {
            out.push('"');
            t.to_text().write(out, ":");
            out.push('"');
        }
        EdmValue::Guid(g) => push_plain(out, &lexical::format_guid(g)),
        EdmValue::Binary(b) => push_plain(out, &lexical::format_binary(b)),
        EdmValue::Double(d) => {
            let text = lexical::format_double(*d);
            let is_kept_by_jsonb = d.is_finite() && !text.contains('E') && text != "-0.0";
            if is_kept_by_jsonb { out.push_str(&text) } else { push_plain(out, &text) }
        }
    }
}

/// Escapes U+0000, which jsonb cannot store, as U+0001 U+0001, and U+0001 as U+0001 U+0002. Escaped texts have the same
/// order as the texts themselves.
pub fn escape(text: &str) -> String {
    text.replace('\u{1}', "\u{1}\u{2}").replace('\u{0}', "\u{1}\u{1}")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1}' => out.push(if chars.next() == Some('\u{1}') { '\u{0}' } else { '\u{1}' }),
            other => out.push(other),
        }
    }
    out
}

/// Returns the properties of a stored object, in the object's order.
///
/// # Errors
/// [`Code::InternalError`] for text that is not in stored form.
pub fn fields(stored: &str) -> Result<Vec<StoredField<'_>>> {
    if stored == "{}" {
        return Ok(Vec::new());
    }
    read_fields(stored).ok_or_else(|| Code::InternalError.into())
}

/// Returns the properties of a stored object in the order in which they are printed.
pub fn ordered_fields(stored: &str, order: PropertyOrder) -> Result<Vec<StoredField<'_>>> {
    let mut fields = fields(stored)?;
    if order == PropertyOrder::Ordinal {
        fields.sort_unstable_by(|a, b| ordinal(&a.name, &b.name));
    }
    Ok(fields)
}

fn read_fields(text: &str) -> Option<Vec<StoredField<'_>>> {
    let mut types = Vec::with_capacity(16);
    let mut fields = Vec::with_capacity(16);
    each_stored_member(text, |member| {
        let Member { name: quoted, value: raw, .. } = member;
        let name = member.decoded_name()?;
        if let Some(base) = without_suffix(&name, ANNOTATION) {
            types.push((base, EdmType::from_name(&string(raw)?)?));
        } else {
            let edm_type = unannotated_type(raw)?;
            fields.push(StoredField { name, quoted, edm_type, raw, escaped: false });
        }
        Some(())
    })?;
    annotate(&mut fields, &types);
    Some(fields)
}

/// Returns the type of a value without an annotation.
fn unannotated_type(raw: &str) -> Option<EdmType> {
    Some(match raw.as_bytes().first()? {
        b't' | b'f' => EdmType::Boolean,
        b'-' | b'0'..=b'9' => EdmType::Int32,
        b'"' => EdmType::String,
        _ => return None,
    })
}

/// Assigns the types in annotations to the fields. Fields and annotations have the same order in both
/// databases, so each search starts where the last annotation was found.
fn annotate(fields: &mut [StoredField<'_>], types: &[(Cow<'_, str>, EdmType)]) {
    let mut from = 0;
    for (name, edm_type) in types {
        let ahead = fields[from..].iter().position(|field| field.name == *name).map(|at| from + at);
        let found = ahead.or_else(|| fields[..from].iter().position(|field| field.name == *name));
        if let Some(at) = found {
            fields[at].edm_type = *edm_type;
            fields[at].escaped = *edm_type == EdmType::String;
            from = at + 1;
        }
    }
}

/// Decodes every property.
///
/// # Errors
/// [`Code::InternalError`] for text that is not in stored form.
pub fn decode(stored: &StoredProperties) -> Result<Properties> {
    fields(stored.as_str())?
        .into_iter()
        .map(|field| {
            let value = field.value()?;
            Ok((field.name.into_owned(), value))
        })
        .collect()
}

/// Decodes only the properties of the finders.
///
/// # Errors
/// [`Code::InternalError`] for text that is not in stored form.
pub fn pick<'n>(stored: &[u8], finders: &[PropertyFinder<'n>]) -> Result<Vec<(&'n str, EdmValue)>> {
    let mut picked = Vec::with_capacity(finders.len());
    for property in finders {
        if let Some(value) = property.value(stored) {
            picked.push((property.name, value.ok_or(Code::InternalError)?));
        }
    }
    Ok(picked)
}

/// A property to find in many stored objects.
#[derive(Debug)]
pub struct PropertyFinder<'n> {
    name: &'n str,
    member: Finder<'static>,
    annotation: Finder<'static>,
}

impl<'n> PropertyFinder<'n> {
    pub fn new(name: &'n str) -> Self {
        let finder = |suffix: &str| {
            let mut member = String::new();
            push_string(&mut member, &format!("{name}{suffix}"));
            member.push(':');
            Finder::new(&member).into_owned()
        };
        Self { name, member: finder(""), annotation: finder(ANNOTATION) }
    }

    /// Returns `None` without the property, and `Some(None)` for a value that is not in stored form.
    fn value(&self, stored: &[u8]) -> Option<Option<EdmValue>> {
        let raw = value_after(stored, &self.member)?;
        let read = || {
            let raw = raw?;
            let annotated = value_after(stored, &self.annotation);
            let edm_type = match annotated {
                None => unannotated_type(raw)?,
                Some(named) => EdmType::from_name(&string(named?)?)?,
            };
            let escaped = annotated.is_some() && edm_type == EdmType::String;
            StoredField { name: self.name.into(), quoted: "", edm_type, raw, escaped }.read()
        };
        Some(read())
    }
}

impl StoredField<'_> {
    /// Decodes the value.
    ///
    /// # Errors
    /// [`Code::InternalError`] for a value that is not in stored form.
    pub fn value(&self) -> Result<EdmValue> {
        self.read().ok_or_else(|| Code::InternalError.into())
    }

    fn read(&self) -> Option<EdmValue> {
        let text = || -> Option<Cow<'_, str>> { string(self.raw) };
        Some(match self.edm_type {
            EdmType::String if self.escaped => EdmValue::String(unescape(&text()?)),
            EdmType::String => EdmValue::String(text()?.into_owned()),
            EdmType::Boolean => EdmValue::Boolean(lexical::parse_boolean(self.raw)?),
            EdmType::Int32 => EdmValue::Int32(self.raw.parse().ok()?),
            EdmType::Int64 => EdmValue::Int64(text()?.parse().ok()?),
            EdmType::DateTime => EdmValue::DateTime(Ticks::parse(&text()?).ok()?),
            EdmType::Guid => EdmValue::Guid(lexical::parse_guid(&text()?)?),
            EdmType::Binary => EdmValue::Binary(lexical::parse_binary(&text()?)?),
            EdmType::Double if self.raw.starts_with('"') => {
                EdmValue::Double(lexical::parse_double(&text()?)?)
            }
            EdmType::Double => EdmValue::Double(lexical::parse_double(self.raw)?),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    /// Generates any value that the model allows.
    pub(crate) fn any_value() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            any::<String>().prop_map(EdmValue::String),
            "[\u{0}-\u{2}a\"\\\\]{0,6}".prop_map(EdmValue::String),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(EdmValue::Binary),
            any::<bool>().prop_map(EdmValue::Boolean),
            (Ticks::MIN.raw()..=Ticks::MAX.raw())
                .prop_map(|raw| EdmValue::DateTime(Ticks::from_raw(raw).unwrap())),
            any::<u64>().prop_map(|bits| EdmValue::Double(f64::from_bits(bits))),
            (-1000_i32..1000).prop_map(|n| EdmValue::Double(f64::from(n) / 8.0)),
            any::<u128>().prop_map(|bits| EdmValue::Guid(Uuid::from_u128(bits))),
            any::<i32>().prop_map(EdmValue::Int32),
            any::<i64>().prop_map(EdmValue::Int64),
        ]
    }

    /// Compares values; NaN equals itself, and the two zeros differ.
    pub(crate) fn same(a: &EdmValue, b: &EdmValue) -> bool {
        match (a, b) {
            (EdmValue::Double(a), EdmValue::Double(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            _ => a == b,
        }
    }

    #[test]
    fn the_stored_form_is_plain_json_where_json_can_tell_the_type() {
        let stored = encode(&[
            ("S", EdmValue::String("é\"\n".into())),
            ("B", EdmValue::Boolean(true)),
            ("I", EdmValue::Int32(-5)),
            ("L", EdmValue::Int64(5_432_873_627_392)),
            ("D", EdmValue::Double(3.0)),
            ("E", EdmValue::Double(1e300)),
            ("Z", EdmValue::Double(-0.0)),
            ("N", EdmValue::String("a\u{0}\u{1}".into())),
        ]);
        assert_eq!(
            stored.as_str(),
            "{\"S\":\"é\\\"\\n\",\"B\":true,\"I\":-5,\"L@odata.type\":\"Edm.Int64\",\"L\":\"5432873627392\",\
             \"D@odata.type\":\"Edm.Double\",\"D\":3.0,\"E@odata.type\":\"Edm.Double\",\"E\":\"1E+300\",\
             \"Z@odata.type\":\"Edm.Double\",\"Z\":\"-0.0\",\
             \"N@odata.type\":\"Edm.String\",\"N\":\"a\\u0001\\u0001\\u0001\\u0002\"}"
        );
    }

    #[test]
    fn annotations_may_stand_anywhere_and_spaces_do_not_matter() {
        let stored = StoredProperties::from_stored_text(
            "{\"L\": \"5\", \"D\": 1.5, \"D@odata.type\": \"Edm.Double\", \"L@odata.type\": \"Edm.Int64\"}"
                .into(),
        );
        assert_eq!(
            decode(&stored).unwrap(),
            vec![("L".into(), EdmValue::Int64(5)), ("D".into(), EdmValue::Double(1.5))]
        );
        assert_eq!(
            pick(stored.as_str().as_bytes(), &[PropertyFinder::new("D"), PropertyFinder::new("X")]).unwrap(),
            vec![("D", EdmValue::Double(1.5))]
        );
    }

    #[test]
    fn damaged_rows_are_an_error_not_a_panic() {
        for text in [
            "",
            "[]",
            "{\"a\":null}",
            "{\"a\":[1]}",
            "{\"a\":1.5}",
            "{\"a@odata.type\":\"Edm.X\",\"a\":1}",
            "{\"a@odata.type\":\"Edm.Guid\",\"a\":\"zz\"}",
            "{\"a@odata.type\":\"Edm.Int64\",\"a\":5}",
        ] {
            assert!(decode(&StoredProperties::from_stored_text(text.into())).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_entity_reads_back_unaltered(values in prop::collection::vec(any_value(), 0..8)) {
            let properties: Properties =
                values.into_iter().enumerate().map(|(i, v)| (format!("P{i}"), v)).collect();
            let stored = encode(&properties);
            prop_assert!(!stored.as_str().contains("\\u0000"));
            let back = decode(&stored).unwrap();
            prop_assert_eq!(back.len(), properties.len());
            for ((n1, v1), (n2, v2)) in back.iter().zip(&properties) {
                prop_assert!(n1 == n2 && same(v1, v2), "{:?} became {:?}", v2, v1);
            }
        }

        #[test]
        fn what_is_looked_for_is_what_reading_everything_finds(
            values in prop::collection::vec(any_value(), 0..8),
            lure in "[P0-9\":@odata.type,{}\\\\]{0,24}",
            spaced: bool,
        ) {
            let mut properties: Properties =
                values.into_iter().enumerate().map(|(i, v)| (format!("P{i}"), v)).collect();
            properties.insert(0, ("Lure".into(), EdmValue::String(lure)));
            let members = "\"P0\": 1, \"P1@odata.type\":\"Edm.Guid\"";
            properties.push(("P".into(), EdmValue::String(members.into())));
            let mut text = encode(&properties).as_str().to_owned();
            if spaced {
                // The text as jsonb prints it.
                let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
                text = parsed.to_string().replace("\":", "\": ");
            }
            let numbered = (0..10).map(|i| format!("P{i}"));
            let names: Vec<String> = numbered.chain(["P".into(), "Lure".into()]).collect();
            let finders: Vec<PropertyFinder<'_>> = names.iter().map(|name| PropertyFinder::new(name)).collect();
            let all = decode(&StoredProperties::from_stored_text(text.clone())).unwrap();
            let mut picked = pick(text.as_bytes(), &finders).unwrap();
            picked.sort_by(|a, b| a.0.cmp(b.0));
            prop_assert_eq!(picked.len(), all.len());
            for (name, value) in picked {
                let (_, other) = all.iter().find(|(n, _)| n == name).unwrap();
                prop_assert!(same(&value, other), "{}: {:?} is {:?}", name, value, other);
            }
        }

        #[test]
        fn escaping_keeps_the_order(a in "[\u{0}-\u{3}a]{0,5}", b in "[\u{0}-\u{3}a]{0,5}") {
            prop_assert_eq!(escape(&a).cmp(&escape(&b)), a.cmp(&b));
            prop_assert_eq!(unescape(&escape(&a)), a);
        }
    }
}
