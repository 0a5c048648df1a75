//! Reads one entity of a JSON file, in any of the ways to write its types.

use serde_json::{Map, Value, json};

use super::FileOptions;
use crate::codec::stored::ANNOTATION;
use crate::model::EdmType;
use crate::transfer::endpoint::Rejected;
use crate::transfer::row::Row;

/// The names of types in azure-table-archiver, by their numbers.
const ARCHIVER: [&str; 8] = ["String", "Binary", "Boolean", "DateTime", "Double", "Guid", "Int32", "Int64"];

/// Reads an entity: plain members with type annotations, or values as objects with their type.
/// `note` is called with the types of numbers, and whether the file states them.
pub(super) fn entity(
    value: &Value,
    options: &FileOptions,
    mut note: impl FnMut(&str, EdmType, bool),
) -> Result<Row, Rejected> {
    let reject = |reason: String| Rejected { entity: value.to_string(), reason };
    let Some(members) = value.as_object() else { return Err(reject("it is not a JSON object".into())) };
    let mut plain = Map::new();
    for (name, member) in members {
        // az lists the ETag as `etag`, which may be the name of a property too.
        let is_tag = name == "etag" && member.as_str().is_some_and(|tag| tag.starts_with("W/\""));
        if is_tag || name.starts_with("odata.") {
            continue;
        }
        if name == "Properties" && member.is_array() {
            listed(member, &mut plain).map_err(reject)?;
        } else {
            push(&mut plain, name, member, options, members, &mut note).map_err(reject)?;
        }
    }
    Row::from_json(&Value::Object(plain).to_string()).map_err(reject)
}

/// `[{"PropertyName", "PropertyType", "PropertyValue"}]`.
fn listed(properties: &Value, plain: &mut Map<String, Value>) -> Result<(), String> {
    for property in properties.as_array().into_iter().flatten() {
        let name = property["PropertyName"].as_str().ok_or("a property has no name")?;
        let number = property["PropertyType"].as_u64().and_then(|number| usize::try_from(number).ok());
        let edm_type =
            number.and_then(|number| ARCHIVER.get(number)).ok_or("a property has an unknown type")?;
        set(plain, name, edm_type, property["PropertyValue"].clone());
    }
    Ok(())
}

fn push(
    plain: &mut Map<String, Value>,
    name: &str,
    member: &Value,
    options: &FileOptions,
    all: &Map<String, Value>,
    note: &mut dyn FnMut(&str, EdmType, bool),
) -> Result<(), String> {
    match member {
        Value::Object(object) => {
            let (edm_type, value) = typed(name, object).ok_or_else(|| format!("{name} is an object"))?;
            set(plain, name, &edm_type, value);
        }
        Value::Array(bytes) => {
            let bytes: Option<Vec<u8>> =
                bytes.iter().map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
            let bytes = bytes.ok_or_else(|| format!("{name} is an array"))?;
            let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
            set(plain, name, "Binary", json!(text));
        }
        scalar => {
            let told = all.get(&format!("{name}{ANNOTATION}")).and_then(Value::as_str);
            let wanted = options.types.iter().find(|(wanted, _)| wanted == name);
            match (told, wanted, scalar) {
                (Some(told), ..) => {
                    if let Some(told) = EdmType::ALL.into_iter().find(|known| known.name() == told)
                        && matches!(told, EdmType::Int32 | EdmType::Int64 | EdmType::Double)
                    {
                        note(name, told, true);
                    }
                    plain.insert(name.to_owned(), scalar.clone());
                }
                (None, Some((_, wanted)), _) => set(plain, name, wanted.name(), scalar.clone()),
                (None, None, Value::Number(number)) => {
                    let inferred = inferred(number).ok_or_else(|| {
                        format!("{name} is beyond Int64; say which type it has, such as --type {name}=Double")
                    })?;
                    note(name, inferred, false);
                    set(plain, name, inferred.name(), scalar.clone());
                }
                _ => drop(plain.insert(name.to_owned(), scalar.clone())),
            }
        }
    }
    Ok(())
}

/// The type that a number without one most likely has.
fn inferred(number: &serde_json::Number) -> Option<EdmType> {
    match number.as_i64() {
        Some(small) if i32::try_from(small).is_ok() => Some(EdmType::Int32),
        Some(_) => Some(EdmType::Int64),
        None => number.is_f64().then_some(EdmType::Double),
    }
}

/// Returns the type and value of `{name: v, "EdmType": "Int32"}`, `{"EdmType": 6, "Int32Value": v}` or
/// `{"value": v, "edm_type": "Edm.Int64"}`.
fn typed(name: &str, object: &Map<String, Value>) -> Option<(String, Value)> {
    if let Some(edm_type) = object.get("edm_type").or_else(|| object.get("edmType")) {
        return Some((edm_type.as_str()?.to_owned(), object.get("value")?.clone()));
    }
    match object.get("EdmType")? {
        Value::Number(number) => {
            let edm_type = *ARCHIVER.get(usize::try_from(number.as_u64()?).ok()?)?;
            let value = object.iter().find(|(member, _)| member.ends_with("Value"))?.1;
            Some((edm_type.to_owned(), value.clone()))
        }
        Value::String(edm_type) => Some((edm_type.clone(), object.get(name)?.clone())),
        _ => None,
    }
}

/// Adds a property with its type. A value whose type JSON writes as a string is converted to one.
fn set(plain: &mut Map<String, Value>, name: &str, edm_type: &str, value: Value) {
    let short = edm_type.trim_start_matches("Edm.");
    let known = EdmType::ALL.iter().find(|known| known.name()["Edm.".len()..].eq_ignore_ascii_case(short));
    let full = known.map_or_else(|| edm_type.to_owned(), |known| known.name().to_owned());
    let is_key = matches!(name, "PartitionKey" | "RowKey" | "Timestamp");
    let value = match (known, value) {
        (Some(EdmType::Int64 | EdmType::String), Value::Number(number)) => Value::String(number.to_string()),
        (Some(EdmType::Int32), Value::String(text)) => {
            text.parse::<i32>().map_or(Value::String(text), Value::from)
        }
        (Some(EdmType::Boolean), Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::String(text),
        },
        (_, other) => other,
    };
    if !is_key {
        plain.insert(format!("{name}{ANNOTATION}"), Value::String(full));
    }
    plain.insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::super::FileFormat;
    use super::*;

    fn read(value: Value, types: &[(&str, EdmType)]) -> Result<String, String> {
        let types = types.iter().map(|(name, edm_type)| ((*name).to_owned(), *edm_type)).collect();
        let options = FileOptions { format: FileFormat::Json, table: None, types };
        entity(&value, &options, |_, _, _| {})
            .map(|row| row.properties.as_str().to_owned())
            .map_err(|rejected| rejected.reason)
    }

    #[test]
    fn every_way_to_write_types_is_read() {
        let int64 = Ok(r#"{"L@odata.type":"Edm.Int64","L":"5"}"#.to_owned());
        for (value, types) in [
            (json!({ "PartitionKey": "a", "RowKey": "b", "L@odata.type": "Edm.Int64", "L": "5" }), &[][..]),
            (
                json!({ "PartitionKey": "a", "RowKey": "b", "odata.etag": "x", "L": 5 }),
                &[("L", EdmType::Int64)],
            ),
            (json!({ "PartitionKey": "a", "RowKey": "b", "L": { "L": 5, "EdmType": "Int64" } }), &[]),
            (json!({ "PartitionKey": "a", "RowKey": "b", "L": { "EdmType": 7, "Int64Value": 5 } }), &[]),
            (
                json!({ "PartitionKey": "a", "RowKey": "b", "L": { "value": 5, "edm_type": "Edm.Int64" } }),
                &[],
            ),
            (
                json!({ "PartitionKey": "a", "RowKey": "b", "Properties": [
                    { "PropertyName": "L", "PropertyType": 7, "PropertyValue": "5" },
                ] }),
                &[],
            ),
        ] {
            assert_eq!(read(value.clone(), types), int64, "{value}");
        }
        let guid = json!({ "PartitionKey": "a", "RowKey": "b", "G": {
            "G": "0F8FAD5B-D9CB-469F-A165-70867728950E", "EdmType": "GUID" } });
        assert!(read(guid, &[]).is_ok_and(|text| text.contains("0f8fad5b") && text.contains("Edm.Guid")));
        let bytes = json!({ "PartitionKey": "a", "RowKey": "b", "X": [0, 1, 255] });
        assert!(read(bytes, &[]).is_ok_and(|text| text.contains("AAH/")));
        for wrong in
            [json!(5), json!({ "RowKey": "b" }), json!({ "PartitionKey": "a", "RowKey": "b", "X": [300] })]
        {
            assert!(read(wrong.clone(), &[]).is_err(), "{wrong}");
        }
    }
}
