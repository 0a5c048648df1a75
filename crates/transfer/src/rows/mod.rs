//! Entities in transfer, ranges of keys, selections of entities, and types that files do not state.

pub(super) mod range;
pub(super) mod selection;
pub(super) mod type_inference;

use std::borrow::Cow;

use crate::error::{TransferResult, failed};
use crate::protocol::codec::json::property::{Annotations, push_property};
use crate::protocol::codec::json::read as json_read;
use crate::protocol::codec::json_object::push_string;
use crate::protocol::codec::stored::{self, StoredField};
use crate::protocol::codec::validated::{Given, GivenProperties, ValidatedProperties};
use crate::protocol::error::{Code, Error};
use crate::protocol::model::entity::{BorrowedEntity, Properties, PropertyOrder, StoredProperties};
use crate::protocol::model::names::check_body_key;
use crate::protocol::model::{EdmValue, Key, Ticks};
use crate::protocol::plan::predicate::Prepared;

/// The version of an entity to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    Any,
    /// The version with this Timestamp.
    Time(Ticks),
    /// The version with this ETag.
    Tag(String),
}

#[derive(Debug, Clone)]
pub struct Row {
    pub key: Key,
    /// The Timestamp, if the source has one.
    pub modified: Option<Ticks>,
    /// The ETag, if an endpoint has sent it.
    pub tag: Option<String>,
    /// Properties that have been validated.
    pub properties: StoredProperties,
}

impl Row {
    /// Parses an entity from JSON with type annotations, as in answers and dumps.
    pub(crate) fn from_json(json: &str) -> Result<Self, String> {
        let body = json_read::entity(json.as_bytes()).map_err(|error| reason(json, &[], &error))?;
        if body.has_key_of_other_type {
            return Err(reason(json, &[], &Code::InvalidInput.into()));
        }
        let (Some(partition), Some(row)) = (body.partition, body.row) else {
            return Err("it has no PartitionKey and RowKey".into());
        };
        let modified = body.timestamp.map(parse_timestamp).transpose()?;
        let key = Key { partition, row };
        let given = &body.properties;
        let properties =
            validate(&key, given, body.deferred_error).map_err(|error| reason(json, given, &error))?;
        Ok(Self { key, modified, tag: None, properties })
    }

    /// Returns the bytes of the keys and properties in a database.
    pub(crate) fn bytes(&self) -> u64 {
        (self.key.partition.len() + self.key.row.len() + self.properties.as_str().len()) as u64
    }

    pub(crate) fn is_selected(&self, filter: &Prepared<'_>) -> TransferResult<bool> {
        let entity = BorrowedEntity {
            partition: &self.key.partition,
            row: &self.key.row,
            modified: self.modified.unwrap_or(Ticks::MIN),
            properties: self.properties.as_str(),
            order: self.properties.order(),
        };
        filter.matches(entity).map_err(|error| failed!("{}", error.text()))
    }

    /// Returns the condition that the entity has not changed.
    pub(crate) fn version(&self) -> Version {
        match (&self.tag, self.modified) {
            (Some(tag), _) => Version::Tag(tag.clone()),
            (None, Some(time)) => Version::Time(time),
            (None, None) => Version::Any,
        }
    }

    /// Appends the entity as JSON. Every value whose type is ambiguous is annotated, doubles included.
    pub(crate) fn push_json(&self, out: &mut String, with_timestamp: bool) -> Result<(), String> {
        out.push_str("{\"PartitionKey\":");
        push_string(out, &self.key.partition);
        out.push_str(",\"RowKey\":");
        push_string(out, &self.key.row);
        if let Some(modified) = self.modified.filter(|_| with_timestamp) {
            out.push_str(",\"Timestamp@odata.type\":\"Edm.DateTime\",\"Timestamp\":\"");
            out.push_str(&modified.to_seven_digits());
            out.push('"');
        }
        out.push(',');
        match self.members_as_sent() {
            Some(members) => out.push_str(members),
            None => self.push_properties(out).map_err(|error| error.text().to_owned())?,
        }
        out.truncate(out.trim_end_matches(',').len());
        out.push('}');
        Ok(())
    }

    /// Appends each property with a comma.
    fn push_properties(&self, out: &mut String) -> crate::protocol::error::Result<()> {
        for field in stored::ordered_fields(self.properties.as_str(), self.properties.order())? {
            if field.escaped {
                // Printing decodes the value again. Decoding it here detects a value that is not in stored form.
                field.value()?;
            }
            push_property(out, Annotations::WithDoubles, &field);
        }
        Ok(())
    }

    /// Returns the stored members if they can be sent unchanged: in their order, without escaped strings, and
    /// without doubles that are stored as strings.
    fn members_as_sent(&self) -> Option<&str> {
        let text = self.properties.as_str();
        if self.properties.order() != PropertyOrder::AsStored || text.contains("\"Edm.String\"") {
            return None;
        }
        // A quote within a string has a backslash before it, so the match is an annotation.
        for (at, annotation) in text.match_indices("\"Edm.Double\",\"") {
            let (_, value) = text[at + annotation.len()..].split_once("\":")?;
            let mut start = value.chars();
            if start.next() == Some('"') && !matches!(start.next(), Some('N' | 'I')) {
                return None;
            }
        }
        text.strip_prefix('{')?.strip_suffix('}')
    }

    /// Returns the properties in display order.
    pub(crate) fn properties_in_order(&self) -> crate::protocol::error::Result<Properties> {
        let fields = stored::ordered_fields(self.properties.as_str(), self.properties.order())?;
        fields.iter().map(|field| Ok((field.name.clone().into_owned(), field.value()?))).collect()
    }

    /// Returns the entity as one line of JSON, for reports.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        match self.push_json(&mut out, true) {
            Ok(()) => out,
            Err(reason) => reason,
        }
    }

    /// Whether two entities have equal properties, in any order. Timestamps are not compared.
    pub(crate) fn has_properties_of(&self, other: &Self) -> bool {
        if self.properties.as_str() == other.properties.as_str() {
            return true;
        }
        match (self.sorted_fields(), other.sorted_fields()) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| is_equal(a, b)),
            _ => false,
        }
    }

    fn sorted_fields(&self) -> Option<Vec<StoredField<'_>>> {
        let mut fields = stored::fields(self.properties.as_str()).ok()?;
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Some(fields)
    }

    /// Returns the sorted names of the properties that differ.
    pub(crate) fn differing(&self, other: &Self) -> Vec<String> {
        let (Ok(mine), Ok(theirs)) = (stored::decode(&self.properties), stored::decode(&other.properties))
        else {
            return Vec::new();
        };
        let of = |all: &Properties, name: &str| {
            all.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
        };
        let mut names: Vec<String> = mine.iter().chain(&theirs).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| match (of(&mine, name), of(&theirs, name)) {
            (Some(a), Some(b)) => !is_same(&a, &b),
            _ => true,
        });
        names
    }
}

fn validate(
    key: &Key,
    properties: &GivenProperties<'_>,
    deferred_error: Option<Error>,
) -> crate::protocol::error::Result<StoredProperties> {
    for (part, value) in [("PartitionKey", &key.partition), ("RowKey", &key.row)] {
        let named = |error: Error| match error.code {
            Code::OutOfRangeInput => error,
            code => Error::with_message(code, format!("{part}: {}", error.text())),
        };
        check_body_key(part, value).map_err(named)?;
    }
    ValidatedProperties::new(key.counted_size(), properties, deferred_error)
        .map(ValidatedProperties::into_stored)
}

/// Returns the reason why an entity is refused, with the name of the member at fault, if there is one.
fn reason(json: &str, properties: &[(Cow<'_, str>, Given<'_>)], error: &Error) -> String {
    let refused_alone = |property: &(Cow<'_, str>, Given<'_>)| {
        let refused = ValidatedProperties::new(0, std::slice::from_ref(property), None).err()?;
        Some(format!("{}: {}", property.0, refused.text()))
    };
    let of_property = || properties.iter().find_map(refused_alone);
    let of_entity = || format!("{}: {}", error.code.facts().code, error.text());
    json_read::misfit(json.as_bytes()).or_else(of_property).unwrap_or_else(of_entity)
}

fn parse_timestamp(json: &str) -> Result<Ticks, String> {
    let text: Cow<'_, str> = serde_json::from_str(json).map_err(|_| "its Timestamp is not a date")?;
    Ticks::parse(&text).map_err(|_| "its Timestamp is not a date".to_owned())
}

/// Whether two properties are equal. Databases may print equal texts differently.
fn is_equal(a: &StoredField<'_>, b: &StoredField<'_>) -> bool {
    let has_same_text = || a.raw == b.raw && a.edm_type == b.edm_type && a.escaped == b.escaped;
    let has_same_value = || a.value().ok().zip(b.value().ok()).is_some_and(|(a, b)| is_same(&a, &b));
    a.name == b.name && (has_same_text() || has_same_value())
}

/// Whether two values are identical to the last bit; all NaN are equal.
fn is_same(a: &EdmValue, b: &EdmValue) -> bool {
    match (a, b) {
        (EdmValue::Double(a), EdmValue::Double(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn any_value() -> impl Strategy<Value = EdmValue> {
        let ticks = Ticks::MIN.raw()..=Ticks::MAX.raw();
        prop_oneof![
            ".{0,8}".prop_map(EdmValue::String),
            "[\u{0}-\u{2}\"\\\\]{0,6}".prop_map(EdmValue::String),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(EdmValue::Binary),
            any::<bool>().prop_map(EdmValue::Boolean),
            any::<i32>().prop_map(EdmValue::Int32),
            any::<i64>().prop_map(EdmValue::Int64),
            any::<u64>().prop_map(|bits| EdmValue::Double(f64::from_bits(bits))),
            prop::sample::select(vec![-0.0, 0.5, 3.0]).prop_map(EdmValue::Double),
            ticks.prop_filter_map("no time", Ticks::from_raw).prop_map(EdmValue::DateTime),
            any::<u128>().prop_map(|bits| EdmValue::Guid(Uuid::from_u128(bits))),
        ]
    }

    proptest! {
        #[test]
        fn every_value_survives_the_way_through_json(values in prop::collection::vec(any_value(), 0..6)) {
            let properties: Properties =
                values.into_iter().enumerate().map(|(at, value)| (format!("P{at}"), value)).collect();
            let modified = Ticks::from_raw(638_000_000_000_000_001);
            let row = Row { key: Key::new("it's", "é"), modified, tag: None, properties: stored::encode(&properties) };
            let mut json = String::new();
            row.push_json(&mut json, true).unwrap();
            let back = Row::from_json(&json).unwrap();
            prop_assert_eq!((&back.key, back.modified), (&row.key, row.modified));
            let decoded = stored::decode(&back.properties).unwrap();
            prop_assert!(decoded.iter().zip(&properties).all(|((n, v), (m, w))| n == m && is_same(v, w)), "{}", json);
            prop_assert!(row.has_properties_of(&back), "{}", json);
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_named() {
        for (json, reason) in [
            (r#"{"PartitionKey":5,"RowKey":"r"}"#, "PartitionKey: '5' is not a String"),
            (r#"{"PartitionKey":"p","RowKey":true}"#, "RowKey: 'true' is not a String"),
            (r#"{"PartitionKey":"p","RowKey":null}"#, "it has no PartitionKey and RowKey"),
        ] {
            assert_eq!(Row::from_json(json).unwrap_err(), reason);
        }
    }

    #[test]
    fn differences_are_named() {
        let row = |json: &str| Row::from_json(json).unwrap();
        let a = row(r#"{"PartitionKey":"a","RowKey":"b","A":1,"B":"x","C":true}"#);
        let b = row(r#"{"PartitionKey":"a","RowKey":"b","C":true,"B":"x","A":1}"#);
        assert!(a.has_properties_of(&b));
        let c = row(r#"{"PartitionKey":"a","RowKey":"b","A@odata.type":"Edm.Int64","A":"1","B":"x","D":1}"#);
        assert!(!a.has_properties_of(&c));
        assert_eq!(a.differing(&c), ["A", "C", "D"]);
        assert!(Row::from_json(r#"{"PartitionKey":"a"}"#).is_err());
        assert!(
            Row::from_json(r#"{"PartitionKey":"a","RowKey":"b","A@odata.type":"Edm.Guid","A":"x"}"#).is_err()
        );
    }
}
