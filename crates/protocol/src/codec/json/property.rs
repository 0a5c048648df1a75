//! Prints one custom property as JSON (protocol §4.2 to §4.4).

use crate::codec::stored::{StoredField, push_annotation};
use crate::codec::strings::push_string;
use crate::model::{EdmType, EdmValue};

/// The values that are printed with a type annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Annotations {
    None,
    /// Values whose type JSON cannot express.
    Needed,
    /// Also all doubles, because a reader could mistake one for an integer.
    WithDoubles,
}

/// Appends one property and a comma. The text is copied from the stored form where JSON has the same text.
pub fn push_property(out: &mut String, annotations: Annotations, field: &StoredField<'_>) {
    push_name(out, annotations, field);
    match field.edm_type {
        EdmType::Double if !is_special_double(field.raw) => out.push_str(field.raw.trim_matches('"')),
        EdmType::String if field.escaped => match field.value() {
            Ok(EdmValue::String(text)) => push_string(out, &text),
            _ => out.push_str(field.raw),
        },
        _ => out.push_str(field.raw),
    }
    out.push(',');
}

/// Appends the part before the value of a property.
pub(crate) fn push_name(out: &mut String, annotations: Annotations, field: &StoredField<'_>) {
    if is_annotated(annotations, field) {
        push_annotation(out, &field.quoted[1..field.quoted.len() - 1], field.edm_type);
    }
    out.push_str(field.quoted);
    out.push(':');
}

fn is_annotated(annotations: Annotations, field: &StoredField<'_>) -> bool {
    let is_needed = match field.edm_type {
        EdmType::Binary | EdmType::DateTime | EdmType::Guid | EdmType::Int64 => true,
        EdmType::Double => annotations == Annotations::WithDoubles || is_special_double(field.raw),
        EdmType::String | EdmType::Boolean | EdmType::Int32 => false,
    };
    is_needed && annotations != Annotations::None
}

fn is_special_double(raw: &str) -> bool {
    raw.ends_with("N\"") || raw.ends_with("y\"")
}
