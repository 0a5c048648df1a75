//! Reads entities and table names from Atom entries. Elements in other namespaces than those of Atom and the protocol
//! are refused.

use std::collections::HashSet;

use crate::codec::json::read::{EntityBody, duplicate_error, typed_value};
use crate::codec::validated::Given;
use crate::codec::xml::{self, Element, Namespace};
use crate::error::{Code, Error, Result};
use crate::model::{EdmType, EdmValue};

/// Reads an entity.
pub fn entity(body: &[u8]) -> Result<EntityBody<'static>> {
    let properties = properties(body)?;
    let mut entity = EntityBody::default();
    let mut names = HashSet::new();
    for element in &properties.children {
        if !names.insert(element.name.as_str()) {
            return Err(duplicate_error(&element.name).into());
        }
        match element.name.as_str() {
            "PartitionKey" | "RowKey" => take_key(&mut entity, element)?,
            "Timestamp" => {}
            _ if !element.children.is_empty() => return Err(Code::BodyNotUnderstood.into()),
            name => entity.push(name.to_owned().into(), value(element).map(|value| value.map(Given::Read))),
        }
    }
    Ok(entity)
}

/// Reads the name of a table to create.
pub fn table_name(body: &[u8]) -> Result<String> {
    let properties = properties(body)?;
    match properties.child("TableName") {
        Some(name) if !is_null(name)? => Ok(name.text.clone()),
        _ => Err(Code::PropertiesNeedValue.into()),
    }
}

fn properties(body: &[u8]) -> Result<Element> {
    let not_understood = || Error::from(Code::BodyNotUnderstood);
    let mut entry = xml::parse(body).map_err(|_| not_understood())?;
    if !entry.is(Namespace::Atom, "entry") || is_foreign(&entry) {
        return Err(not_understood());
    }
    let mut content = take_child(&mut entry, Namespace::Atom, "content").ok_or_else(not_understood)?;
    let properties =
        take_child(&mut content, Namespace::Metadata, "properties").ok_or_else(not_understood)?;
    if properties.children.iter().all(is_property) { Ok(properties) } else { Err(not_understood()) }
}

fn take_child(element: &mut Element, namespace: Namespace, name: &str) -> Option<Element> {
    element.children.iter_mut().find(|child| child.is(namespace, name)).map(std::mem::take)
}

/// Returns whether an element or one of its descendants is in a foreign namespace.
fn is_foreign(element: &Element) -> bool {
    element.namespace == Namespace::Foreign || element.children.iter().any(is_foreign)
}

/// Returns whether an element can be a property. An unknown attribute might be intended as its type.
fn is_property(element: &Element) -> bool {
    let known = |namespace| matches!(namespace, Namespace::Metadata | Namespace::Xml);
    element.namespace == Namespace::Data && element.attributes.iter().all(|a| known(a.namespace))
}

fn is_null(element: &Element) -> Result<bool> {
    element.attribute(Namespace::Metadata, "null").map_or(Ok(false), xml_boolean)
}

/// Parses a Boolean in XML's spelling, which may be a digit.
fn xml_boolean(text: &str) -> Result<bool> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Code::BodyNotUnderstood.into()),
    }
}

fn edm_type(element: &Element) -> Result<EdmType> {
    match element.attribute(Namespace::Metadata, "type") {
        None => Ok(EdmType::String),
        Some(name) => EdmType::from_name(name).ok_or_else(|| Code::BodyNotUnderstood.into()),
    }
}

fn take_key(entity: &mut EntityBody<'_>, element: &Element) -> Result<()> {
    let edm_type = edm_type(element)?;
    if is_null(element)? {
        return Ok(());
    }
    entity.has_key_of_other_type |= edm_type != EdmType::String;
    let key = if element.name == "RowKey" { &mut entity.row } else { &mut entity.partition };
    *key = Some(element.text.clone());
    Ok(())
}

fn value(element: &Element) -> Result<Option<EdmValue>> {
    let edm_type = edm_type(element)?;
    if is_null(element)? {
        return Ok(None);
    }
    let text = match edm_type {
        // The PHP SDK sends digits.
        EdmType::Boolean if matches!(element.trimmed(), "0" | "1") => {
            return Ok(Some(EdmValue::Boolean(element.trimmed() == "1")));
        }
        EdmType::String => element.text.clone(),
        // Binary values may contain line breaks.
        EdmType::Binary => element.text.split_whitespace().collect(),
        _ => element.trimmed().to_owned(),
    };
    typed_value(&element.name, edm_type, text.into()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Ticks;

    fn entry(properties: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?><entry \
             xmlns:d=\"http://schemas.microsoft.com/ado/2007/08/dataservices\" \
             xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\" \
             xmlns=\"http://www.w3.org/2005/Atom\"><title /><updated>2011-01-01T00:00:00Z</updated><author><name />\
             </author><id /><content type=\"application/xml\"><m:properties>{properties}</m:properties></content></entry>"
        )
    }
    fn read(properties: &str) -> Result<EntityBody<'static>, Code> {
        let read = entity(entry(properties).as_bytes()).map_err(|e| e.code)?;
        read.deferred_error.as_ref().map_or(Ok(()), |deferred_error| Err(deferred_error.code))?;
        Ok(read)
    }

    #[test]
    fn entities_read_with_their_types() {
        let read = read(
            "<d:PartitionKey>p</d:PartitionKey><d:RowKey></d:RowKey><d:Timestamp m:type=\"Edm.DateTime\">0001-01-01T00:00:00\
             </d:Timestamp><d:S xml:space=\"preserve\"> a&lt;b </d:S><d:E/><d:N m:null=\"true\"/>\
             <d:I m:type=\"Edm.Int32\">5</d:I><d:L m:type=\"Edm.Int64\">-7</d:L><d:D m:type=\"Edm.Double\">INF</d:D>\
             <d:B m:type=\"Edm.Boolean\">true</d:B><d:X m:type=\"Edm.Binary\">AQ\nI=</d:X>\
             <d:T m:type=\"Edm.DateTime\">2011-01-01T00:00:00</d:T>",
        )
        .unwrap();
        assert_eq!((read.partition.as_deref(), read.row.as_deref()), (Some("p"), Some("")));
        let properties = read.into_properties();
        let named: Vec<(&str, &EdmValue)> = properties.iter().map(|(n, v)| (n.as_str(), v)).collect();
        assert_eq!(
            named,
            [
                ("S", &EdmValue::String(" a<b ".into())),
                ("E", &EdmValue::String(String::new())),
                ("I", &EdmValue::Int32(5)),
                ("L", &EdmValue::Int64(-7)),
                ("D", &EdmValue::Double(f64::INFINITY)),
                ("B", &EdmValue::Boolean(true)),
                ("X", &EdmValue::Binary(vec![1, 2])),
                ("T", &EdmValue::DateTime(Ticks::parse("2011-01-01").unwrap())),
            ]
        );
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for (properties, code) in [
            ("<d:A/><d:A/>", Code::DuplicatePropertiesSpecified),
            ("<d:A m:type=\"Edm.Decimal\">1</d:A>", Code::BodyNotUnderstood),
            ("<d:A m:type=\"Edm.Int32\">x</d:A>", Code::BodyNotUnderstood),
            ("<d:A><d:B/></d:A>", Code::BodyNotUnderstood),
            ("<d:T m:type=\"Edm.DateTime\">0001-01-01T00:00:00Z</d:T>", Code::OutOfRangeInput),
        ] {
            assert_eq!(read(properties), Err(code), "{properties}");
        }
        for body in ["", "<x/>", "<entry/>", "<entry><content/></entry>", "{}"] {
            assert!(entity(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(table_name(entry("<d:TableName>abc</d:TableName>").as_bytes()).as_deref(), Ok("abc"));
        assert!(table_name(entry("<d:TableName m:null=\"true\"/>").as_bytes()).is_err());
        assert!(table_name(entry("").as_bytes()).is_err());
    }
}
