//! Prints one custom property as JSON (protocol §4.2 to §4.4).

use crate::protocol::codec::stored::{self, StoredField};
use crate::protocol::codec::strings::push_string;
use crate::protocol::model::{EdmType, EdmValue};

/// Appends one property and a comma, copied from the stored form where JSON has the same text.
/// `annotations`: whether to print types that JSON cannot tell.
pub(crate) fn push_property(out: &mut String, annotations: bool, field: &StoredField<'_>) {
    push_name(out, annotations, field);
    match field.edm_type {
        EdmType::Double if !is_annotated(field) => out.push_str(field.raw.trim_matches('"')),
        EdmType::String if field.escaped => match field.value() {
            Ok(EdmValue::String(text)) => push_string(out, &text),
            _ => out.push_str(field.raw),
        },
        _ => out.push_str(field.raw),
    }
    out.push(',');
}

/// Appends the part before the value of a property.
pub(crate) fn push_name(out: &mut String, annotations: bool, field: &StoredField<'_>) {
    if annotations && is_annotated(field) {
        push_annotation(out, field);
    }
    out.push_str(field.quoted);
    out.push(':');
}

fn is_annotated(field: &StoredField<'_>) -> bool {
    match field.edm_type {
        EdmType::Binary | EdmType::DateTime | EdmType::Guid | EdmType::Int64 => true,
        EdmType::Double => is_special_double(field.raw),
        EdmType::String | EdmType::Boolean | EdmType::Int32 => false,
    }
}

fn is_special_double(raw: &str) -> bool {
    raw.ends_with("N\"") || raw.ends_with("y\"")
}

fn push_annotation(out: &mut String, field: &StoredField<'_>) {
    out.push_str(&field.quoted[..field.quoted.len() - 1]);
    out.push_str(stored::ANNOTATION);
    out.push_str("\":\"");
    out.push_str(field.edm_type.name());
    out.push_str("\",");
}
