//! Reads one entity of a JSON file, in any of the ways to write its types.

use super::assembly::{Assembly, TAG, TIMESTAMP, is_of_powershell, known_type};
use super::object::Object;
use super::options::FileOptions;
use crate::protocol::codec::json_object;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::{EdmType, IfMatch, Ticks};
use crate::rows::row::Row;
use crate::rows::type_inference::TableNotes;

/// Ticks of a microsecond.
const TICKS_OF_MICROSECOND: u64 = 10;
/// The types of values whose type is a number.
const NUMBERED: [&str; 8] = ["String", "Binary", "Boolean", "DateTime", "Double", "Guid", "Int32", "Int64"];

/// Reads an entity: plain members with type annotations, or values as objects with their type.
pub(super) fn entity(
    object: &Object<'_>,
    options: &FileOptions,
    notes: TableNotes<'_>,
) -> Result<Row, String> {
    // Whoever annotates some values means the others to be what they are.
    let has_types = object.iter().any(|(name, _)| name.ends_with(ANNOTATION));
    let mut reading = EntityReading { object, options, has_types, entity: Assembly::new(notes) };
    let is_of_powershell = is_of_powershell(|name| object.get(name).is_some());
    for (name, raw) in object.iter() {
        let is_tag = (name == TAG && is_of_powershell) || (name == "etag" && is_tag_of(object));
        let name = if name == TIMESTAMP && is_of_powershell { "Timestamp" } else { name };
        if !is_tag && !name.starts_with("odata.") {
            reading.member(name, raw)?;
        }
    }
    reading.entity.row()
}

/// Whether the member `etag` is the ETag of the entity, as az lists it, and no property: it has the time that the
/// Timestamp has, which az cuts to microseconds.
fn is_tag_of(object: &Object<'_>) -> bool {
    let tag = object.string("etag").and_then(|tag| version_of(&tag));
    let modified = object.string("Timestamp").and_then(|time| Ticks::parse(&time).ok());
    tag.zip(modified).is_some_and(|(tag, modified)| tag.raw().abs_diff(modified.raw()) < TICKS_OF_MICROSECOND)
}

fn version_of(tag: &str) -> Option<Ticks> {
    match IfMatch::parse(Some(tag)) {
        Ok(IfMatch::Version(version)) => version,
        _ => None,
    }
}

/// An entity that is being read.
struct EntityReading<'a> {
    object: &'a Object<'a>,
    options: &'a FileOptions,
    has_types: bool,
    entity: Assembly<'a>,
}

impl EntityReading<'_> {
    fn member(&mut self, name: &str, raw: &str) -> Result<(), String> {
        match raw.as_bytes() {
            _ if name == "Timestamp" => {
                let value = typed(name, raw).map_or(raw, |(_, value)| value);
                self.entity.timestamp(json_object::string(value).as_deref());
                Ok(())
            }
            [b'{', ..] => {
                let (edm_type, value) = typed(name, raw)?;
                self.entity.typed(name, &edm_type, value)
            }
            [b'[', ..] => {
                let bytes: Vec<u8> = serde_json::from_str(raw)
                    .map_err(|_| format!("{name}: is a list, but not a list of bytes"))?;
                let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
                self.entity.text(name, Some("Binary"), &text)
            }
            _ => self.scalar(name, raw),
        }
    }

    fn scalar(&mut self, name: &str, raw: &str) -> Result<(), String> {
        let is_system = matches!(name, "PartitionKey" | "RowKey") || name.contains('@');
        let wanted = self.options.types.iter().find(|(wanted, _)| wanted == name);
        if is_system {
            self.entity.untyped(name, raw);
        } else if let Some(stated) = self.object.get(&format!("{name}{ANNOTATION}")) {
            let stated = json_object::string(stated).and_then(|stated| known_type(&stated));
            return self.entity.annotated(name, stated, raw);
        } else if let Some((_, wanted)) = wanted {
            self.entity.notes().given(name);
            return self.entity.typed(name, wanted.name(), raw);
        } else if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            let inferred = inferred(raw).ok_or_else(|| {
                format!("{name}: {raw} is beyond Int64; give its type, such as --type {name}=Double")
            })?;
            self.entity.notes().value(name, inferred, false);
            return self.entity.typed(name, inferred.name(), raw);
        } else {
            if let Some(text) = json_object::string(raw).filter(|_| !self.has_types) {
                self.entity.notes().string(name, &text);
            }
            self.entity.untyped(name, raw);
        }
        Ok(())
    }
}

/// The type that a number without one most likely has.
fn inferred(number: &str) -> Option<EdmType> {
    match number.parse::<i64>() {
        // No integer has a sign and no value.
        Ok(0) if number.starts_with('-') => Some(EdmType::Double),
        Ok(small) if i32::try_from(small).is_ok() => Some(EdmType::Int32),
        Ok(_) => Some(EdmType::Int64),
        Err(_) => number.contains(['.', 'e', 'E']).then_some(EdmType::Double),
    }
}

/// Returns the type and value of `{name: v, "EdmType": "Int32"}`, `{"EdmType": 6, "Int32Value": v}` or
/// `{"value": v, "edm_type": "Edm.Int64"}`.
fn typed<'a>(name: &str, raw: &'a str) -> Result<(String, &'a str), String> {
    let object = Object::of(raw.as_bytes()).map_err(|reason| format!("{name}: {reason}"))?;
    let of = || {
        if let Some(edm_type) = object.string("edm_type").or_else(|| object.string("edmType")) {
            return Some((edm_type.into_owned(), object.get("value")?));
        }
        let stated = object.get("EdmType")?;
        if let Ok(number) = stated.parse::<usize>() {
            let edm_type = *NUMBERED.get(number)?;
            let value = object.iter().find(|(member, _)| member.ends_with("Value"))?.1;
            return Some((edm_type.to_owned(), value));
        }
        Some((json_object::string(stated)?.into_owned(), object.get(name)?))
    };
    of().ok_or_else(|| format!("{name}: is an object without a type and a value"))
}
