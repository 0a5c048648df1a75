//! Custom properties of a body, validated and then converted to stored form.

use std::borrow::Cow;

use super::stored;
use crate::error::{Error, Result};
use crate::model::EdmValue;
use crate::model::entity::{self, BorrowedValue, StoredProperties, Value};
use crate::model::names::ordinal;

/// The value of a property in a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Given<'a> {
    /// A string that needs no escapes in JSON.
    Plain(&'a str),
    /// A value of any type, which may be a string that needs escapes.
    Read(EdmValue),
}

/// Custom properties in the order of a body, with unique names.
pub type GivenProperties<'a> = Vec<(Cow<'a, str>, Given<'a>)>;

impl Value for Given<'_> {
    fn view(&self) -> BorrowedValue<'_> {
        match self {
            Given::Plain(text) => BorrowedValue::Text { text, is_plain: true },
            Given::Read(value) => value.view(),
        }
    }
}

impl From<Given<'_>> for EdmValue {
    fn from(given: Given<'_>) -> Self {
        match given {
            Given::Plain(text) => EdmValue::String(text.to_owned()),
            Given::Read(value) => value,
        }
    }
}

/// Custom properties that satisfy every rule that can be checked without the database (protocol §5.7). They are kept
/// as one text in stored form, which takes less memory than their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValidatedProperties {
    stored: StoredProperties,
    count: usize,
    size: usize,
}

impl ValidatedProperties {
    /// Checks properties and encodes them. `keys` is the size of the entity's keys. `deferred_error` is an error that
    /// the parser found. It is returned only if the number and the names of the properties are valid.
    ///
    /// # Errors
    /// In the order of protocol §5.9: those of [`entity::check_names`], the deferred error, those of
    /// [`entity::check_size`], and those of [`entity::check_values`].
    pub fn new<N: AsRef<str>, V: Value>(
        keys: usize,
        properties: &[(N, V)],
        deferred_error: Option<Error>,
    ) -> Result<Self> {
        let size = check(keys, properties, deferred_error)?;
        Ok(Self::of(properties, size))
    }

    /// Does the same as [`ValidatedProperties::new`], but orders the properties by name.
    pub(crate) fn in_ordinal_order<N: AsRef<str>, V: Value>(
        keys: usize,
        properties: &mut [(N, V)],
        deferred_error: Option<Error>,
    ) -> Result<Self> {
        let size = check(keys, properties, deferred_error)?;
        properties.sort_unstable_by(|(a, _), (b, _)| ordinal(a.as_ref(), b.as_ref()));
        Ok(Self::of(properties, size))
    }

    fn of<N: AsRef<str>, V: Value>(properties: &[(N, V)], size: usize) -> Self {
        Self { stored: stored::encode(properties), count: properties.len(), size }
    }

    /// Returns the properties in stored form.
    pub const fn stored(&self) -> &StoredProperties {
        &self.stored
    }

    pub fn into_stored(self) -> StoredProperties {
        self.stored
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the size of the properties, see [`entity::counted`].
    pub(crate) const fn size(&self) -> usize {
        self.size
    }
}

/// Checks properties and returns their size.
fn check<N: AsRef<str>, V: Value>(
    keys: usize,
    properties: &[(N, V)],
    deferred_error: Option<Error>,
) -> Result<usize> {
    entity::check_names(properties)?;
    deferred_error.map_or(Ok(()), Err)?;
    let size = entity::counted(properties);
    entity::check_size(keys, size)?;
    entity::check_values(properties)?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::read;
    use crate::codec::json_object::push_string;
    use crate::error::Code;
    use crate::model::names::{MAX_ENTITY, MAX_STRING};
    use proptest::prelude::*;

    #[test]
    fn faults_come_in_their_order() {
        let deferred_error = || Some(Error::from(Code::BodyNotUnderstood));
        let long = "x".repeat(MAX_STRING + 1);
        let code = |keys, name: &str, deferred_error| {
            ValidatedProperties::new(keys, &[(name, Given::Plain(&long))], deferred_error).map_err(|e| e.code)
        };
        assert_eq!(code(MAX_ENTITY, "bad name", deferred_error()), Err(Code::PropertyNameInvalid));
        assert_eq!(code(MAX_ENTITY, "P", deferred_error()), Err(Code::BodyNotUnderstood));
        assert_eq!(code(MAX_ENTITY, "P", None), Err(Code::EntityTooLarge));
        assert_eq!(code(0, "P", None), Err(Code::PropertyValueTooLarge));
    }

    #[test]
    fn beyond_a_quarter_of_the_limit_the_size_is_exact() {
        let text = |letters: usize| Given::Read(EdmValue::String("é".repeat(letters)));
        let size = |texts: usize, letters: usize| {
            let names: Vec<String> = (0..texts).map(|n| format!("P{n:02}")).collect();
            ValidatedProperties::new(0, &names.iter().map(|n| (n, text(letters))).collect::<Vec<_>>(), None)
                .unwrap()
                .size()
        };
        let exact = |texts: usize, letters: usize| texts * (8 + 6 + 4 + 2 * letters);
        assert_eq!(size(1, 10), exact(1, 10) + 20);
        assert_eq!(size(15, MAX_STRING), exact(15, MAX_STRING));
        assert!(size(2, MAX_STRING) >= exact(2, MAX_STRING) && size(2, MAX_STRING) <= MAX_ENTITY / 4);
    }

    proptest! {
        #[test]
        fn what_is_copied_is_what_would_be_printed(texts in prop::collection::vec(any::<String>(), 0..6)) {
            let mut body = String::from("{");
            for (n, text) in texts.iter().enumerate() {
                body.push_str(if n > 0 { "," } else { "" });
                body.push_str(&format!("\"P{n}\":"));
                push_string(&mut body, text);
            }
            body.push('}');
            let read = read::entity(body.as_bytes()).unwrap();
            let sent = ValidatedProperties::new(0, &read.properties, None).unwrap();
            let copied = read.into_properties();
            for ((_, value), text) in copied.iter().zip(&texts) {
                prop_assert_eq!(value, &EdmValue::String(text.clone()));
            }
            prop_assert_eq!(copied.len(), texts.len());
            prop_assert_eq!(ValidatedProperties::new(0, &copied, None).unwrap(), sent);
        }
    }
}
