//! The types of numbers that files do not tell.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::codec::stored::ANNOTATION;
use crate::model::EdmType;

/// Maximum properties that are remembered.
const MAX_PROPERTIES: usize = 10_000;

/// The types that a property of numbers has in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InferredTypes {
    /// Values that have no type in the file.
    pub untyped: u64,
    /// How many values have, or were taken to have, each type.
    pub types: BTreeMap<&'static str, u64>,
}

impl InferredTypes {
    /// Whether some values may be of another type than they were read as, as others are: a `3` among
    /// doubles.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.untyped > 0 && self.types.len() > 1
    }

    /// Returns the types with their numbers of values, for people.
    pub(crate) fn shown(&self) -> String {
        let types: Vec<String> =
            self.types.iter().map(|(edm_type, values)| format!("{values} {edm_type}")).collect();
        types.join(", ")
    }
}

/// The types of the properties of all tables, by table and property.
#[derive(Debug, Default)]
pub(crate) struct Inferences(BTreeMap<(String, String), InferredTypes>);

impl Inferences {
    /// Notes the type of a value.
    pub(crate) fn note(&mut self, table: &str, property: &str, edm_type: EdmType, is_told: bool) {
        let key = (table.to_owned(), property.to_owned());
        if self.0.len() >= MAX_PROPERTIES && !self.0.contains_key(&key) {
            return;
        }
        let types = self.0.entry(key).or_default();
        types.untyped += u64::from(!is_told);
        *types.types.entry(edm_type.name().trim_start_matches("Edm.")).or_default() += 1;
    }

    /// Notes the types of the numbers of an entity with annotations.
    pub(crate) fn note_numbers(&mut self, table: &str, members: &Map<String, Value>) {
        for (name, value) in members.iter().filter(|(name, _)| !name.contains('@')) {
            let told = members.get(&format!("{name}{ANNOTATION}")).and_then(Value::as_str);
            let told = EdmType::ALL.into_iter().find(|known| told == Some(known.name()));
            let is_number =
                |known: &EdmType| matches!(known, EdmType::Int32 | EdmType::Int64 | EdmType::Double);
            match (told, value) {
                (Some(told), _) if is_number(&told) => self.note(table, name, told, true),
                (None, Value::Number(number)) => {
                    let small = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                    let edm_type = if small { EdmType::Int32 } else { EdmType::Double };
                    self.note(table, name, edm_type, false);
                }
                _ => {}
            }
        }
    }

    /// Returns the properties with values that have no type in the file, by table and name.
    pub(crate) fn untyped(&self) -> impl Iterator<Item = (&str, &str, &InferredTypes)> {
        let some = self.0.iter().filter(|(_, types)| types.untyped > 0);
        some.map(|((table, property), types)| (table.as_str(), property.as_str(), types))
    }
}
