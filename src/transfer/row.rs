//! An entity that is transferred, and the comparison of two.

use serde::Deserialize;

use crate::codec::json::read::{self as json_read};
use crate::codec::strings::push_string;
use crate::codec::{property_order, stored};
use crate::model::entity::{Properties, StoredProperties};
use crate::model::{EdmType, EdmValue, Key, Ticks};

/// An entity that is transferred from a source to a target.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub key: Key,
    /// Its Timestamp, if the source has one.
    pub modified: Option<Ticks>,
    pub properties: StoredProperties,
}

#[derive(Deserialize)]
struct TimestampMember<'a> {
    #[serde(rename = "Timestamp", borrow)]
    timestamp: Option<std::borrow::Cow<'a, str>>,
}

impl Row {
    /// Reads an entity from JSON with type annotations, as in answers and dumps.
    ///
    /// # Errors
    /// Why it is invalid.
    pub(crate) fn from_json(json: &str) -> Result<Self, String> {
        let body = json_read::entity(json.as_bytes()).map_err(|error| error.text().to_owned())?;
        if let Some(flaw) = body.flaw {
            return Err(flaw.text().to_owned());
        }
        let (Some(partition), Some(row)) = (body.partition, body.row) else {
            return Err("it has no PartitionKey and RowKey".into());
        };
        let members: TimestampMember<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let modified = members.timestamp.as_deref().map(Ticks::parse).transpose();
        let modified = modified.map_err(|_| "its Timestamp is not a date")?;
        Ok(Self { key: Key::new(partition, row), modified, properties: stored::encode(&body.properties) })
    }

    /// Appends the entity as JSON. Every value whose type a reader could mistake is annotated, doubles
    /// included.
    ///
    /// # Errors
    /// If it is not in stored form.
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
        let fields = property_order::fields(self.properties.as_str(), self.properties.order());
        let fields = fields.map_err(|error| error.text().to_owned())?;
        for field in fields {
            out.push(',');
            let text = match field.escaped {
                true => text_of(field.value().map_err(|error| error.text().to_owned())?),
                false => None,
            };
            if !matches!(field.edm_type, EdmType::String | EdmType::Boolean | EdmType::Int32) {
                out.push_str(&field.quoted[..field.quoted.len() - 1]);
                out.push_str(stored::ANNOTATION);
                out.push_str("\":\"");
                out.push_str(field.edm_type.name());
                out.push_str("\",");
            }
            out.push_str(field.quoted);
            out.push(':');
            match text {
                Some(text) => push_string(out, &text),
                None if field.edm_type == EdmType::Double => push_double(out, field.raw),
                None => out.push_str(field.raw),
            }
        }
        out.push('}');
        Ok(())
    }

    /// Returns the properties in display order.
    ///
    /// # Errors
    /// If the entity is not in stored form.
    pub(crate) fn properties_in_order(&self) -> crate::error::Result<Properties> {
        let fields = property_order::fields(self.properties.as_str(), self.properties.order())?;
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
        let decoded = |row: &Self| {
            let mut properties = stored::decode(&row.properties).ok()?;
            properties.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            Some(properties)
        };
        decoded(self).zip(decoded(other)).is_some_and(|(a, b)| is_equal(&a, &b))
    }

    /// Returns the names of properties that differ, sorted.
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

/// Appends a stored double. Those with exponents, and those that JSON has no number for, are stored as
/// strings.
fn push_double(out: &mut String, raw: &str) {
    let is_number = raw.trim_matches('"').bytes().last().is_some_and(|byte| byte.is_ascii_digit());
    out.push_str(if is_number { raw.trim_matches('"') } else { raw });
}

fn is_equal(a: &Properties, b: &Properties) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((n, v), (m, w))| n == m && is_same(v, w))
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

/// Returns the text of a string.
fn text_of(value: EdmValue) -> Option<String> {
    match value {
        EdmValue::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::stored::tests::{any_value, same};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_survives_the_way_through_json(values in prop::collection::vec(any_value(), 0..6)) {
            let properties: Properties =
                values.into_iter().enumerate().map(|(at, value)| (format!("P{at}"), value)).collect();
            let modified = Ticks::from_raw(638_000_000_000_000_001);
            let row = Row { key: Key::new("it's", "é"), modified, properties: stored::encode(&properties) };
            let mut json = String::new();
            row.push_json(&mut json, true).unwrap();
            let back = Row::from_json(&json).unwrap();
            prop_assert_eq!((&back.key, back.modified), (&row.key, row.modified));
            let decoded = stored::decode(&back.properties).unwrap();
            prop_assert!(decoded.iter().zip(&properties).all(|((n, v), (m, w))| n == m && same(v, w)), "{}", json);
            prop_assert!(row.has_properties_of(&back), "{}", json);
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
