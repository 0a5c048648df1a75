//! Reads entities and table names from JSON bodies (protocol §4.5).

use std::borrow::Cow;

use crate::codec::json_object;
use crate::codec::stored::ANNOTATION;
use crate::codec::validated::{Given, GivenProperties};
use crate::error::{Code, Error, Result};
use crate::model::entity::{Properties, counted_keys};
use crate::model::ticks::DateTimeError;
use crate::model::{EdmType, EdmValue, Ticks, lexical};

/// An entity in a body. Keys may be missing, because an update takes them from its URL. Only the JSON and the
/// types of values have been checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EntityBody<'a> {
    pub partition: Option<String>,
    pub row: Option<String>,
    /// JSON text of the Timestamp, which requests ignore.
    pub timestamp: Option<&'a str>,
    /// Whether the value or the annotation of a key has a type other than String. As recorded, such an insert is
    /// refused, and an update takes its keys from the URL.
    pub has_key_of_other_type: bool,
    /// Custom properties that are not null, in order.
    pub properties: GivenProperties<'a>,
    /// The error of the first value that does not fit its type. Errors in keys and in the number and names of
    /// properties take precedence (protocol §5.9), so the property stays in the list, with the value `false`.
    pub deferred_error: Option<Error>,
}

impl<'a> EntityBody<'a> {
    /// Adds a property, or defers its error. `None` stands for null.
    pub(crate) fn push(&mut self, name: Cow<'a, str>, value: Result<Option<Given<'a>>>) {
        match value {
            Ok(None) => {}
            Ok(Some(value)) => self.properties.push((name, value)),
            Err(deferred_error) => {
                self.deferred_error.get_or_insert(deferred_error);
                self.properties.push((name, Given::Read(EdmValue::Boolean(false))));
            }
        }
    }

    /// Reads a key, and records whether it has a type other than String.
    fn read_key(&mut self, raw: &str) -> Result<Option<String>> {
        if raw.starts_with('"') {
            let key = json_object::string(raw).ok_or(Code::InvalidInput)?;
            return Ok(Some(key.into_owned()));
        }
        if raw.starts_with(['{', '[']) {
            return Err(Code::InvalidInput.into());
        }
        self.has_key_of_other_type |= raw != "null";
        Ok(None)
    }

    /// Returns the size of the keys in the body.
    pub fn counted_keys(&self) -> usize {
        counted_keys(self.partition.as_deref().unwrap_or_default(), self.row.as_deref().unwrap_or_default())
    }

    /// Returns the properties, and copies those that borrow from the body.
    pub fn into_properties(self) -> Properties {
        self.properties.into_iter().map(|(name, value)| (name.into_owned(), value.into())).collect()
    }
}

/// Reads an entity.
///
/// # Errors
/// [`Code::BodyNotUnderstood`] for anything but a JSON object of scalars, and for two annotations of one
/// property; [`Code::DuplicatePropertiesSpecified`] or [`Code::DuplicateKeyPropertySpecified`];
/// [`Code::InvalidInput`] for keys that are objects or lists. As a deferred error, [`Code::BodyNotUnderstood`] for
/// unknown types and values that do not fit their type, [`Code::OutOfRangeInput`] for dates before 1601.
pub fn entity(body: &[u8]) -> Result<EntityBody<'_>> {
    let mut members = Members::parse(body)?;
    let mut entity = EntityBody::default();
    entity.properties.reserve_exact(members.values.len());
    for (name, raw) in std::mem::take(&mut members.values) {
        match name.as_ref() {
            "PartitionKey" => entity.partition = entity.read_key(raw)?,
            "RowKey" => entity.row = entity.read_key(raw)?,
            "Timestamp" => entity.timestamp = Some(raw),
            _ if raw.starts_with(['{', '[']) => return Err(Code::BodyNotUnderstood.into()),
            _ => {
                let annotated = members.annotation(&name);
                let value = annotated.and_then(|own| parse_value(&name, raw, members.string(raw), own));
                entity.push(name, value);
            }
        }
    }
    for part in ["PartitionKey", "RowKey"] {
        entity.has_key_of_other_type |= members.annotation(part)?.is_some_and(|t| t != EdmType::String);
    }
    Ok(entity)
}

/// Reads the name of the table to create. Other members are ignored.
///
/// # Errors
/// [`Code::BodyNotUnderstood`], or [`Code::PropertiesNeedValue`] without a string under `TableName`
/// (UNVERIFIED which code Azure uses).
pub fn table_name(body: &[u8]) -> Result<String> {
    let members = Members::parse(body)?;
    let named = members.values.iter().find(|(name, _)| name == "TableName");
    match named.map(|(_, raw)| *raw) {
        Some(nested) if nested.starts_with(['{', '[']) => Err(Code::BodyNotUnderstood.into()),
        raw => raw
            .and_then(json_object::string)
            .map(Cow::into_owned)
            .ok_or_else(|| Code::PropertiesNeedValue.into()),
    }
}

/// Parses the value of a custom property. Returns `None` for null. `string` is the content of a string value.
fn parse_value<'a>(
    name: &str,
    raw: &'a str,
    string: Option<Cow<'a, str>>,
    annotated: Option<EdmType>,
) -> Result<Option<Given<'a>>> {
    let not_understood = || Error::from(Code::BodyNotUnderstood);
    let is_string = raw.starts_with('"');
    let text = match string {
        _ if raw == "null" => return Ok(None),
        Some(text) => text,
        None if is_string => return Err(not_understood()),
        None => Cow::Borrowed(raw),
    };
    let read = match (annotated, text) {
        // A borrowed string has no escapes.
        (None | Some(EdmType::String), Cow::Borrowed(text)) if is_string => {
            return Ok(Some(Given::Plain(text)));
        }
        (None, Cow::Owned(text)) if is_string => EdmValue::String(text),
        (None, text) => infer_value(&text)?,
        // Values of these types must be JSON strings.
        (Some(EdmType::String | EdmType::DateTime | EdmType::Guid | EdmType::Binary), _) if !is_string => {
            return Err(not_understood());
        }
        (Some(edm_type), text) => typed_value(name, edm_type, text)?,
    };
    Ok(Some(Given::Read(read)))
}

/// Parses a value of this type from its text.
///
/// # Errors
/// [`Code::BodyNotUnderstood`] for text that does not fit the type, [`Code::OutOfRangeInput`] for
/// dates before 1601.
pub fn typed_value(name: &str, edm_type: EdmType, text: Cow<'_, str>) -> Result<EdmValue> {
    let read = match edm_type {
        EdmType::DateTime => match Ticks::parse(&text) {
            Ok(ticks) => Some(EdmValue::DateTime(ticks)),
            Err(DateTimeError::OutOfRange(shown)) => return Err(out_of_range(name, &shown)),
            Err(DateTimeError::Malformed) => None,
        },
        EdmType::String => Some(EdmValue::String(text.into_owned())),
        EdmType::Boolean => lexical::parse_boolean(&text).map(EdmValue::Boolean),
        EdmType::Int32 => lexical::parse_integer(&text).map(EdmValue::Int32),
        EdmType::Int64 => lexical::parse_integer(&text).map(EdmValue::Int64),
        EdmType::Double => lexical::parse_double(&text).map(EdmValue::Double),
        EdmType::Guid => lexical::parse_guid(&text).map(EdmValue::Guid),
        EdmType::Binary => lexical::parse_binary(&text).map(EdmValue::Binary),
    };
    read.ok_or_else(|| Code::BodyNotUnderstood.into())
}

/// Parses a value that is neither annotated nor a string. As recorded, integers beyond 32 bits become doubles.
fn infer_value(text: &str) -> Result<EdmValue> {
    match text {
        "true" => Ok(EdmValue::Boolean(true)),
        "false" => Ok(EdmValue::Boolean(false)),
        number => lexical::parse_integer(number)
            .map(EdmValue::Int32)
            .or_else(|| lexical::parse_double(number).map(EdmValue::Double))
            .ok_or_else(|| Code::BodyNotUnderstood.into()),
    }
}

fn out_of_range(name: &str, shown: &str) -> Error {
    Error::with_message(
        Code::OutOfRangeInput,
        format!("The '{name}' parameter of value '{shown}' is out of range."),
    )
}

/// Returns the error of a duplicate member.
pub(crate) const fn duplicate_error(name: &str) -> Code {
    match name.as_bytes() {
        b"PartitionKey" | b"RowKey" => Code::DuplicateKeyPropertySpecified,
        _ => Code::DuplicatePropertiesSpecified,
    }
}

/// The members of a body, with annotations and other OData members separated.
struct Members<'a> {
    values: Vec<(Cow<'a, str>, &'a str)>,
    types: Vec<(Cow<'a, str>, &'a str)>,
    /// Whether the value is known to contain no escapes.
    is_plain: bool,
}

/// Maximum characters of a value in a report.
const MAX_REPORTED_CHARACTERS: usize = 100;

/// Describes the invalid member of a body for reports, with its name, its value and the expected type.
/// Returns `None` if no single member is at fault.
pub fn misfit(body: &[u8]) -> Option<String> {
    let members = Members::split(body).ok()?;
    if let Some(name) = members.duplicate_name() {
        return Some(format!("{name} stands twice"));
    }
    let misfit = |(name, raw): &(Cow<'_, str>, &str)| members.misfit(name, raw);
    members.values.iter().find_map(misfit)
}

impl Members<'_> {
    fn misfit(&self, name: &str, raw: &str) -> Option<String> {
        let not_of = |edm_type: EdmType| {
            let shown = json_object::string(raw).unwrap_or_else(|| raw.trim_matches('"').into());
            let shown: String = shown.chars().take(MAX_REPORTED_CHARACTERS).collect();
            let edm_type = edm_type.name().trim_start_matches("Edm.");
            let article = if edm_type.starts_with('I') { "an" } else { "a" };
            Some(format!("{name}: '{shown}' is not {article} {edm_type}"))
        };
        match name {
            "PartitionKey" | "RowKey" if raw == "null" || json_object::string(raw).is_some() => return None,
            "PartitionKey" | "RowKey" => return not_of(EdmType::String),
            "Timestamp" => return None,
            _ if raw.starts_with(['{', '[']) => return Some(format!("{name}: it is an object or a list")),
            _ => {}
        }
        let mut stated = self.types.iter().filter(|(of, _)| of == name).map(|(_, raw)| *raw);
        let annotated = match (stated.next(), stated.next()) {
            (Some(_), Some(_)) => return Some(format!("{name}{ANNOTATION} stands twice")),
            (Some(stated), None) => {
                match json_object::string(stated).and_then(|stated| EdmType::from_name(&stated)) {
                    None => return Some(format!("{name}: {stated} is not a type")),
                    known => known,
                }
            }
            _ => None,
        };
        match parse_value(name, raw, json_object::string(raw), annotated) {
            Ok(_) => None,
            Err(error) if error.code == Code::OutOfRangeInput => Some(error.text().to_owned()),
            Err(_) if raw.starts_with('"') => not_of(annotated.unwrap_or(EdmType::String)),
            Err(_) => not_of(annotated.unwrap_or(EdmType::Double)),
        }
    }
}

/// Maximum number of members that are searched one by one instead of sorted.
const MAX_LINEAR_SEARCH: usize = 16;

impl<'a> Members<'a> {
    fn with_room_for(values: usize) -> Self {
        Members { values: Vec::with_capacity(values), types: Vec::new(), is_plain: false }
    }

    /// Splits a body into its members. Performs no other checks.
    fn split(body: &'a [u8]) -> Result<Self> {
        let not_understood = || Error::from(Code::BodyNotUnderstood);
        let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
        // `with_room_for` allocates once, which is cheaper than to grow with the members.
        let body = std::str::from_utf8(body).map_err(|_| not_understood())?;
        let mut members = Members::with_room_for(16);
        let plain = json_object::each_plain_member(body, |member| {
            members.add(member.decoded_name()?, member.value);
            Some(())
        });
        members.is_plain = plain.is_some();
        if !members.is_plain {
            members = Members::with_room_for(0);
            let add = |name, raw| {
                members.add(name, raw);
                Ok(())
            };
            json_object::each_member(body, add).map_err(|_| not_understood())?;
        }
        Ok(members)
    }

    fn parse(body: &'a [u8]) -> Result<Self> {
        let mut members = Self::split(body)?;
        if let Some(name) = members.duplicate_name() {
            return Err(duplicate_error(name).into());
        }
        if members.types.len() > MAX_LINEAR_SEARCH {
            members.types.sort_by(|a, b| a.0.cmp(&b.0));
        }
        if members.is_annotated_twice() { Err(Code::BodyNotUnderstood.into()) } else { Ok(members) }
    }

    /// Returns whether a property has two annotations, which could contradict each other.
    fn is_annotated_twice(&self) -> bool {
        let types = &self.types;
        if types.len() > MAX_LINEAR_SEARCH {
            return types.windows(2).any(|pair| pair[0].0 == pair[1].0);
        }
        (1..types.len()).any(|at| types[..at].iter().any(|(name, _)| *name == types[at].0))
    }

    /// Returns the smallest duplicate name.
    fn duplicate_name(&self) -> Option<&str> {
        let has_twin = |at: usize| self.values[..at].iter().any(|(name, _)| *name == self.values[at].0);
        if self.values.len() <= MAX_LINEAR_SEARCH && !(1..self.values.len()).any(has_twin) {
            return None;
        }
        let mut names: Vec<&str> = self.values.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Returns the content of a string value.
    fn string(&self, raw: &'a str) -> Option<Cow<'a, str>> {
        if self.is_plain {
            raw.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed)
        } else {
            json_object::string(raw)
        }
    }

    /// Returns the text of a property's annotation.
    fn annotation_text(&self, name: &str) -> Option<&'a str> {
        if self.types.len() <= MAX_LINEAR_SEARCH {
            return self.types.iter().find(|(of, _)| of == name).map(|(_, raw)| *raw);
        }
        let found = self.types.binary_search_by(|(of, _)| of.as_ref().cmp(name)).ok()?;
        Some(self.types[found].1)
    }

    /// Returns the annotated type of a property.
    fn annotation(&self, name: &str) -> Result<Option<EdmType>> {
        let Some(raw) = self.annotation_text(name) else { return Ok(None) };
        self.string(raw)
            .and_then(|name| EdmType::from_name(&name))
            .map(Some)
            .ok_or_else(|| Code::BodyNotUnderstood.into())
    }
}

impl<'a> Members<'a> {
    /// Adds a member. `X@odata.type` is an annotation. `X@odata.type@odata.type` and every other `odata.`
    /// member is ignored, because clients send back what they have read.
    fn add(&mut self, name: Cow<'a, str>, raw: &'a str) {
        if name.starts_with("odata.") {
            return;
        }
        // Most names contain no `@`, so the first test usually decides.
        if !name.contains('@') {
            self.values.push((name, raw));
        } else if let Some(base) = json_object::without_suffix(&name, ANNOTATION) {
            if !base.contains('@') {
                self.types.push((base, raw));
            }
        } else if !name.contains("@odata.") {
            self.values.push((name, raw));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn properties(body: &str) -> Properties {
        entity(body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {e}")).into_properties()
    }
    fn refused(body: &str) -> Code {
        entity(body.as_bytes())
            .map_or_else(|error| error, |body| body.deferred_error.expect("a deferred error"))
            .code
    }
    fn one(json: &str) -> EdmValue {
        properties(&format!("{{{json}}}")).remove(0).1
    }

    #[test]
    fn types_are_inferred_as_recorded() {
        assert_eq!(one(r#""P":"x""#), EdmValue::String("x".into()));
        assert_eq!(one(r#""P":true"#), EdmValue::Boolean(true));
        assert_eq!(one(r#""P":-2147483648"#), EdmValue::Int32(i32::MIN));
        assert_eq!(one(r#""P":2147483648"#), EdmValue::Double(2_147_483_648.0));
        assert_eq!(one(r#""P":3.0"#), EdmValue::Double(3.0));
        assert_eq!(one(r#""P":1e2"#), EdmValue::Double(100.0));
        assert_eq!(properties(r#"{"P":null}"#), vec![]);
    }

    #[test]
    fn annotations_convert_and_may_stand_on_either_side() {
        let int64 = EdmValue::Int64(5);
        assert_eq!(one(r#""P@odata.type":"Edm.Int64","P":"5""#), int64);
        assert_eq!(one(r#""P":"5","P@odata.type":"Edm.Int64""#), int64);
        assert_eq!(one(r#""P":5,"P@odata.type":"Edm.Int64""#), int64);
        assert_eq!(one(r#""P":1,"P@odata.type":"Edm.Double""#), EdmValue::Double(1.0));
        assert_eq!(
            one(r#""P":"1.23456789012346e+24","P@odata.type":"Edm.Double""#),
            EdmValue::Double(1.23456789012346e24)
        );
        assert_eq!(one(r#""P":"12345","P@odata.type":"Edm.Int32""#), EdmValue::Int32(12345));
        assert_eq!(one(r#""P":"False","P@odata.type":"Edm.Boolean""#), EdmValue::Boolean(false));
        assert_eq!(one(r#""P":"AQIy","P@odata.type":"Edm.Binary""#), EdmValue::Binary(vec![1, 2, 50]));
        assert_eq!(
            one(r#""P":"a","P@odata.type":"Edm.String","P@odata.type@odata.type":"Edm.String""#),
            EdmValue::String("a".into())
        );
    }

    #[test]
    fn odata_members_and_the_timestamp_are_ignored() {
        let body = r#"{"odata.metadata":"x","odata.etag":1,"odata.type":{},"PartitionKey":"p","RowKey":"",
            "PartitionKey@odata.type":"Edm.String","Timestamp":"0001-01-01T00:00:00Z","ETag":"mine"}"#;
        let entity = entity(body.as_bytes()).unwrap();
        assert_eq!((entity.partition.as_deref(), entity.row.as_deref()), (Some("p"), Some("")));
        assert_eq!(entity.into_properties(), vec![("ETag".into(), EdmValue::String("mine".into()))]);
    }

    #[test]
    fn what_is_no_entity_is_refused() {
        for body in [
            "",
            "[]",
            "5",
            "{",
            "{\"a\":1}x",
            r#"{"a":{}}"#,
            r#"{"a":[1]}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":1,"a@odata.type":"Edm.Decimal"}"#,
            r#"{"a":1,"a@odata.type":5}"#,
            r#"{"a":"x","a@odata.type":"Edm.Int32"}"#,
            r#"{"a":2147483648,"a@odata.type":"Edm.Int32"}"#,
            r#"{"a":1.5,"a@odata.type":"Edm.Int64"}"#,
            r#"{"a":1e999}"#,
            r#"{"a":"1e999","a@odata.type":"Edm.Double"}"#,
            r#"{"a":"zz","a@odata.type":"Edm.Guid"}"#,
            r#"{"a":"=","a@odata.type":"Edm.Binary"}"#,
            r#"{"a":"tomorrow","a@odata.type":"Edm.DateTime"}"#,
            r#"{"a":5,"a@odata.type":"Edm.String"}"#,
            r#"{"a":5,"a@odata.type":"Edm.Binary"}"#,
        ] {
            assert_eq!(refused(body), Code::BodyNotUnderstood, "{body}");
        }
        assert_eq!(refused(&format!("{{\"a\":{}", "[".repeat(100_000))), Code::BodyNotUnderstood);
        assert_eq!(refused(r#"{"a":1,"a":1}"#), Code::DuplicatePropertiesSpecified);
        assert_eq!(
            refused(r#"{"PartitionKey":"a","PartitionKey":"a"}"#),
            Code::DuplicateKeyPropertySpecified
        );
        assert_eq!(refused(r#"{"PartitionKey":[]}"#), Code::InvalidInput);
        for other in ["5", "1.5", "true"] {
            let body = format!(r#"{{"PartitionKey":{other}}}"#);
            assert!(entity(body.as_bytes()).unwrap().has_key_of_other_type, "{other}");
        }
        assert!(!entity(br#"{"PartitionKey":null}"#).unwrap().has_key_of_other_type);
        assert!(entity(br#"{"RowKey":"5","RowKey@odata.type":"Edm.Int32"}"#).unwrap().has_key_of_other_type);
        assert_eq!(refused(r#"{"RowKey":"5","RowKey@odata.type":"Edm.None"}"#), Code::BodyNotUnderstood);
        assert!(entity(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn early_dates_are_out_of_range_by_name() {
        let body = r#"{"Born":"0001-01-01T00:00:00Z","Born@odata.type":"Edm.DateTime"}"#;
        let error = entity(body.as_bytes()).unwrap().deferred_error.unwrap();
        assert_eq!(error.code, Code::OutOfRangeInput);
        assert_eq!(error.text(), "The 'Born' parameter of value '01/01/0001 00:00:00' is out of range.");
    }

    #[test]
    fn table_names_come_from_their_member() {
        assert_eq!(table_name(br#"{"TableName":"abc","X":1}"#).as_deref(), Ok("abc"));
        for body in ["{}", r#"{"TableName":null}"#, r#"{"TableName":5}"#] {
            assert_eq!(table_name(body.as_bytes()).unwrap_err().code, Code::PropertiesNeedValue, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = entity(&body);
        }
    }
}
