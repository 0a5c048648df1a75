//! JSON files: an array of entities, an object with a list of entities, or one entity on each line.

use std::path::Path;

use crate::contract::Rejected;
use crate::error::TransferResult;
use crate::formats::assembly::{Assembly, TAG, TIMESTAMP, is_of_powershell, known_type};
use crate::formats::files::{FileOptions, MAX_ENTITY_TEXT};
use crate::formats::splitter::{Object, Splitter};
use crate::formats::staging::Staging;
use crate::protocol::codec::json_object;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::{EdmType, IfMatch, Ticks};
use crate::rows::Row;
use crate::rows::type_inference::TableNotes;

/// The members that may hold the list of entities.
const LISTS: [&[u8]; 3] = [br#""value""#, br#""items""#, br#""entities""#];

pub(super) fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let mut file = Splitter::open(path)?;
    let mut documents = Documents { options, staging };
    while let Some(first) = file.peek()? {
        match first {
            b'[' => documents.list(&mut file)?,
            b'{' => documents.object(&mut file)?,
            _ => return Err(file.wrong("it is not JSON: an entity is expected")),
        }
    }
    Ok(())
}

const NO_KEYS: &str = "it has no PartitionKey and RowKey";

struct Documents<'a, 's> {
    options: &'a FileOptions,
    staging: &'s mut Staging,
}

/// The content of an object that has been read.
#[derive(Default)]
struct ObjectText {
    json: Vec<u8>,
    has_key: bool,
    /// Whether the object has a list of entities, which `json` omits.
    has_list: bool,
    has_empty_list: bool,
}

impl Documents<'_, '_> {
    fn list(&mut self, file: &mut Splitter) -> TransferResult<()> {
        file.elements(|file| self.add(&file.value()?))
    }

    fn add(&mut self, json: &[u8]) -> TransferResult<()> {
        let reject = |reason| Rejected::from_bytes(json, reason);
        match Object::parse(json) {
            Ok(object) if !object.has_key() => self.staging.add_non_entity(reject(NO_KEYS.to_owned())),
            Ok(object) => {
                let row = entity(&object, self.options, self.staging.notes());
                self.staging.add(row.map_err(reject))
            }
            Err(reason) if json.starts_with(b"{") => self.staging.add(Err(reject(reason))),
            Err(reason) => self.staging.add_non_entity(reject(reason)),
        }
    }

    /// Stages an entity, or the list of entities in an object. An object with neither is rejected.
    fn object(&mut self, file: &mut Splitter) -> TransferResult<()> {
        let mut read = ObjectText::default();
        file.members(|file, name| {
            read.has_key |= matches!(name, br#""PartitionKey""# | br#""RowKey""#);
            let may_be_list = !read.has_key && LISTS.contains(&name) && file.peek()? == Some(b'[');
            let value = if may_be_list { self.list_or_bytes(file, &mut read)? } else { Some(file.value()?) };
            value.map_or(Ok(()), |value| read.push(name, &value, file))
        })?;
        read.json.extend_from_slice(if read.json.is_empty() { b"{}" } else { b"}" });
        match (read.has_key, read.has_list) {
            (true, true) => Err(file.wrong("an entity has a list of objects")),
            (false, true) => check_is_last_file(&read.json).map_err(|reason| file.wrong(&reason)),
            (false, false) if read.has_empty_list => {
                check_is_last_file(&read.json).map_err(|reason| file.wrong(&reason))
            }
            (_, false) => self.add(&read.json),
        }
    }

    /// Stages a list of entities, or returns the text of another list.
    fn list_or_bytes(
        &mut self,
        file: &mut Splitter,
        read: &mut ObjectText,
    ) -> TransferResult<Option<Vec<u8>>> {
        let (mut text, mut is_list) = (vec![b'['], false);
        file.elements(|file| {
            is_list |= text.len() == 1 && file.peek()? == Some(b'{');
            if is_list {
                return self.add(&file.value()?);
            }
            if text.len() > 1 {
                text.push(b',');
            }
            text.append(&mut file.value()?);
            check_length(&text, file)
        })?;
        read.has_list |= is_list;
        read.has_empty_list |= !is_list && text.len() == 1;
        text.push(b']');
        Ok((!is_list).then_some(text))
    }
}

impl ObjectText {
    fn push(&mut self, name: &[u8], value: &[u8], file: &Splitter) -> TransferResult<()> {
        let before: &[u8] = if self.json.is_empty() { b"{" } else { b"," };
        [before, name, b":", value].iter().for_each(|part| self.json.extend_from_slice(part));
        check_length(&self.json, file)
    }
}

fn check_length(text: &[u8], file: &Splitter) -> TransferResult<()> {
    let is_within = text.len() as u64 <= MAX_ENTITY_TEXT;
    is_within
        .then_some(())
        .ok_or_else(|| file.wrong(&format!("an entity of more than {MAX_ENTITY_TEXT} bytes")))
}

/// Checks that the members beside a list do not state that another file continues the list.
fn check_is_last_file(json: &[u8]) -> Result<(), String> {
    let beside = Object::parse(json)?;
    let marker = beside.get("nextMarker").is_some_and(|next| next.starts_with('{') && next.contains('"'));
    let link = beside.iter().any(|(name, next)| name.ends_with("odata.nextLink") && next != "null");
    match (marker, link) {
        (false, false) => Ok(()),
        _ => Err("the list continues in another file: it has a nextMarker or odata.nextLink".into()),
    }
}

const TICKS_OF_MICROSECOND: u64 = 10;
/// The names of types by the numbers that some files state.
const NUMBERED: [&str; 8] = ["String", "Binary", "Boolean", "DateTime", "Double", "Guid", "Int32", "Int64"];

/// Converts an entity: plain members with type annotations, or values as objects with their types.
pub(super) fn entity(
    object: &Object<'_>,
    options: &FileOptions,
    notes: TableNotes<'_>,
) -> Result<Row, String> {
    // A file that annotates some values omits the other annotations on purpose.
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

/// Whether the member `etag` is the ETag that az lists, and not a property. The ETag has the same time as the
/// Timestamp, which az truncates to microseconds.
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
        if is_system {
            self.entity.untyped(name, raw);
        } else if let Some(stated) = self.object.get(&format!("{name}{ANNOTATION}")) {
            let stated = json_object::string(stated).and_then(|stated| known_type(&stated));
            return self.entity.annotated(name, stated, raw);
        } else if let Some(given) = self.options.type_of(name) {
            self.entity.notes().given(name);
            return self.entity.typed(name, given.name(), raw);
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

/// Returns the most likely type of a number without a stated type.
fn inferred(number: &str) -> Option<EdmType> {
    match number.parse::<i64>() {
        // Integers have no negative zero.
        Ok(0) if number.starts_with('-') => Some(EdmType::Double),
        Ok(small) if i32::try_from(small).is_ok() => Some(EdmType::Int32),
        Ok(_) => Some(EdmType::Int64),
        Err(_) => number.contains(['.', 'e', 'E']).then_some(EdmType::Double),
    }
}

/// Returns the type and value of `{name: v, "EdmType": "Int32"}`, `{"EdmType": 6, "Int32Value": v}` or
/// `{"value": v, "edm_type": "Edm.Int64"}`.
fn typed<'a>(name: &str, raw: &'a str) -> Result<(String, &'a str), String> {
    let object = Object::parse(raw.as_bytes()).map_err(|reason| format!("{name}: {reason}"))?;
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
