//! Translates a predicate to SQL over the stored form, equivalent to `Predicate::eval`.
//!
//! The logic is two-valued: no fragment is ever null. A CASE guards each cast, because SQL does not define the
//! evaluation order of AND. Names and literals are parameters.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sqlx::postgres::PgArguments;
use sqlx::types::Json;
use sqlx::{Arguments, Encode, Postgres, Type};

use crate::Fault;
use crate::postgres::fault::StatementError;
use crate::protocol::codec::stored::{self, ANNOTATION};
use crate::protocol::model::{CaseFold, CompareOp, EdmType, EdmValue, TextTest, lexical};
use crate::protocol::plan::{Field, Predicate};

/// Maximum comparisons in a statement. Beyond this limit, Rowhouse evaluates the filter at lower cost. The limit also
/// bounds PostgreSQL's planning time and memory.
const MAX_COMPARISONS: usize = 16;

/// Whether PostgreSQL can evaluate the predicate: it has few comparisons and no U+0000, which text parameters cannot
/// hold.
pub(crate) fn is_pushable(predicate: &Predicate) -> bool {
    count(predicate).is_some_and(|n| n <= MAX_COMPARISONS)
}

fn count(predicate: &Predicate) -> Option<usize> {
    match predicate {
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().try_fold(0_usize, |sum, part| Some(sum + count(part)?))
        }
        Predicate::Not(inner) => count(inner),
        Predicate::Always(_) => Some(1),
        Predicate::Flag(name) | Predicate::Present(name) => (!name.contains('\u{0}')).then_some(1),
        Predicate::Text { field, test, needle, .. } => {
            // Escaped texts consist of U+0001 and U+0002. A substring of the escaped text may not be a substring of
            // the text.
            let last = match test {
                TextTest::Contains | TextTest::EndsWith => '\u{2}',
                TextTest::StartsWith | TextTest::Is(_) => '\u{0}',
            };
            (!has_nul_name(field) && !needle.contains(|c| c <= last)).then_some(1)
        }
        Predicate::Compare { field, literal, .. } => {
            let text = matches!(literal, EdmValue::String(text) if text.contains('\u{0}'));
            (!has_nul_name(field) && !text).then_some(1)
        }
    }
}

#[derive(Default)]
pub(crate) struct Binds(PgArguments);

impl Binds {
    pub(crate) fn add<'t, T>(&mut self, value: T) -> Result<String, StatementError>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.0.add(value).map_err(|_| Fault::Other)?;
        Ok(format!("${}", self.0.len()))
    }

    pub(crate) fn empty_object(&mut self) -> Result<String, StatementError> {
        self.add(Json(Map::<String, Value>::new()))
    }

    pub(crate) fn into_inner(self) -> PgArguments {
        self.0
    }
}

pub(crate) fn fragment(predicate: &Predicate, binds: &mut Binds) -> Result<String, StatementError> {
    Translation { binds, names: HashMap::new() }.predicate(predicate)
}

struct Translation<'b, 'p> {
    binds: &'b mut Binds,
    names: HashMap<&'p str, Property>,
}

#[derive(Clone)]
struct Property {
    value: String,
    text: String,
    annotation: String,
}

impl<'p> Translation<'_, 'p> {
    fn predicate(&mut self, predicate: &'p Predicate) -> Result<String, StatementError> {
        Ok(match predicate {
            Predicate::All(parts) => self.join(parts, " AND ", "true")?,
            Predicate::Any(parts) => self.join(parts, " OR ", "false")?,
            Predicate::Not(inner) => format!("(NOT {})", self.predicate(inner)?),
            Predicate::Always(value) => constant(*value),
            Predicate::Flag(name) => {
                let property = self.property(name)?;
                format!("coalesce({} = 'true'::jsonb, false)", property.value)
            }
            Predicate::Compare { field, op, literal } => match (field, literal) {
                (Field::PartitionKey, EdmValue::String(text)) => self.compare("pk", *op, text.as_str())?,
                (Field::RowKey, EdmValue::String(text)) => self.compare("rk", *op, text.as_str())?,
                (Field::Timestamp, EdmValue::DateTime(at)) => self.compare("modified", *op, at.raw())?,
                (Field::Custom(name), literal) => self.custom(name, *op, literal)?,
                _ => constant(op.holds_on_type_mismatch()),
            },
            Predicate::Text { field, fold, test, needle } => self.text(field, *fold, *test, needle)?,
            Predicate::Present(name) => format!("({} IS NOT NULL)", self.property(name)?.value),
        })
    }

    /// A test of a text, false for values of other types.
    fn text(
        &mut self,
        field: &'p Field,
        fold: Option<CaseFold>,
        test: TextTest,
        needle: &str,
    ) -> Result<String, StatementError> {
        match field {
            Field::PartitionKey => self.text_test("pk", fold, test, needle),
            Field::RowKey => self.text_test("rk", fold, test, needle),
            Field::Timestamp => Ok(constant(false)),
            Field::Custom(name) => {
                let property = self.property(name)?;
                Ok(case(&self.strings(&property, fold, test, needle)?, "ELSE false END"))
            }
        }
    }

    /// Returns the test of the form and the test of the text, for both stored forms of a String.
    fn strings(
        &mut self,
        property: &Property,
        fold: Option<CaseFold>,
        test: TextTest,
        needle: &str,
    ) -> Result<Vec<(String, String)>, StatementError> {
        let text = &property.text;
        let plain = self.text_test(text, fold, test, needle)?;
        let escaped = self.text_test(text, fold, test, &stored::escape(needle))?;
        Ok(vec![(property.is_plain("string"), plain), (property.is_annotated(EdmType::String), escaped)])
    }

    /// `lower` and `upper` change only ASCII letters in this collation.
    fn text_test(
        &mut self,
        text: &str,
        fold: Option<CaseFold>,
        test: TextTest,
        needle: &str,
    ) -> Result<String, StatementError> {
        let text = format!("{text} COLLATE \"C\"");
        let text = match fold {
            None => text,
            Some(CaseFold::Lower) => format!("lower({text})"),
            Some(CaseFold::Upper) => format!("upper({text})"),
        };
        if let TextTest::Is(op) = test {
            return self.compare(&text, op, needle);
        }
        let needle = self.binds.add(needle)?;
        Ok(match test {
            TextTest::StartsWith => format!("starts_with({text}, {needle})"),
            TextTest::Contains => format!("(strpos({text}, {needle}) > 0)"),
            _ => format!("(right({text}, length({needle})) = {needle})"),
        })
    }

    fn join(&mut self, parts: &'p [Predicate], word: &str, empty: &str) -> Result<String, StatementError> {
        if parts.is_empty() {
            return Ok(empty.into());
        }
        let parts: Vec<String> = parts.iter().map(|part| self.predicate(part)).collect::<Result<_, _>>()?;
        Ok(format!("({})", parts.join(word)))
    }

    /// Tests comparable types first, then the missing property, then every other type.
    fn custom(&mut self, name: &'p str, op: CompareOp, literal: &EdmValue) -> Result<String, StatementError> {
        let property = self.property(name)?;
        let otherwise = if op.holds_on_type_mismatch() {
            format!("WHEN {} IS NULL THEN false ELSE true END", property.value)
        } else {
            "ELSE false END".to_owned()
        };
        Ok(case(&self.alternatives(&property, op, literal)?, &otherwise))
    }

    /// Returns the type test and the comparison for each stored type that is comparable with the literal.
    fn alternatives(
        &mut self,
        property: &Property,
        op: CompareOp,
        literal: &EdmValue,
    ) -> Result<Vec<(String, String)>, StatementError> {
        let text = format!("{} COLLATE \"C\"", property.text);
        let typed = |edm_type| property.is_annotated(edm_type);
        let int4 = format!("({})::int4", property.value);
        let int8 = format!("{}::int8", property.text);
        Ok(match literal {
            EdmValue::String(s) => self.strings(property, None, TextTest::Is(op), s)?,
            EdmValue::Boolean(b) => {
                let value = format!("({})::boolean", property.value);
                vec![(property.is_plain("boolean"), self.compare(&value, op, *b)?)]
            }
            EdmValue::Int32(n) => vec![
                (property.is_plain("number"), self.compare(&int4, op, *n)?),
                (typed(EdmType::Int64), self.compare(&int8, op, i64::from(*n))?),
                (typed(EdmType::Double), self.double(property, op, f64::from(*n))?),
            ],
            EdmValue::Int64(n) => vec![
                (typed(EdmType::Int64), self.compare(&int8, op, *n)?),
                (typed(EdmType::Double), self.double(property, op, *n as f64)?),
            ],
            EdmValue::Double(d) => vec![(typed(EdmType::Double), self.double(property, op, *d)?)],
            EdmValue::DateTime(at) => {
                // Without the Z, dates with trimmed fractions sort as text.
                let value = format!("rtrim({}, 'Z') COLLATE \"C\"", property.text);
                let literal = at.to_canonical();
                let literal = literal.trim_end_matches('Z');
                vec![(typed(EdmType::DateTime), self.compare(&value, op, literal)?)]
            }
            EdmValue::Guid(guid) => {
                vec![(typed(EdmType::Guid), self.compare(&text, op, lexical::format_guid(guid))?)]
            }
            EdmValue::Binary(bytes) => {
                let value = format!("decode({}, 'base64')", property.text);
                vec![(typed(EdmType::Binary), self.compare(&value, op, bytes.as_slice())?)]
            }
        })
    }

    /// In PostgreSQL, NaN equals itself and exceeds all other values. Here NaN is unequal to everything.
    fn double(&mut self, property: &Property, op: CompareOp, literal: f64) -> Result<String, StatementError> {
        let not_a_number = constant(op.holds(None));
        if literal.is_nan() {
            return Ok(not_a_number);
        }
        let text = &property.text;
        let comparison = self.compare(&format!("{text}::float8"), op, literal)?;
        Ok(format!("CASE WHEN {text} = 'NaN' THEN {not_a_number} ELSE {comparison} END"))
    }

    fn compare<T>(&mut self, value: &str, op: CompareOp, literal: T) -> Result<String, StatementError>
    where
        T: for<'t> Encode<'t, Postgres> + Type<Postgres>,
    {
        Ok(format!("({value} {} {})", operator(op), self.binds.add(literal)?))
    }

    fn property(&mut self, name: &'p str) -> Result<Property, StatementError> {
        if let Some(known) = self.names.get(name) {
            return Ok(known.clone());
        }
        let value = self.binds.add(name)?;
        let annotation = self.binds.add(format!("{name}{ANNOTATION}"))?;
        let property = Property {
            value: format!("(properties -> {value})"),
            text: format!("(properties ->> {value})"),
            annotation: format!("(properties ->> {annotation})"),
        };
        self.names.insert(name, property.clone());
        Ok(property)
    }
}

impl Property {
    /// Tests for a value of this JSON type without an annotation.
    fn is_plain(&self, kind: &str) -> String {
        format!("jsonb_typeof({}) = '{kind}' AND {} IS NULL", self.value, self.annotation)
    }

    fn is_annotated(&self, edm_type: EdmType) -> String {
        format!("{} = '{}'", self.annotation, edm_type.name())
    }
}

/// Returns the comparison behind the first test that holds, or `end`.
fn case(alternatives: &[(String, String)], end: &str) -> String {
    let when = |(test, comparison): &(String, String)| format!("WHEN {test} THEN {comparison} ");
    format!("CASE {}{end}", alternatives.iter().map(when).collect::<String>())
}

/// Whether a parameter cannot hold the field's name.
fn has_nul_name(field: &Field) -> bool {
    matches!(field, Field::Custom(name) if name.contains('\u{0}'))
}

fn constant(value: bool) -> String {
    if value { "true" } else { "false" }.into()
}

const fn operator(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::Ne => "<>",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// Returns the SQL of a filter and its number of parameters. The outer `None` means that PostgreSQL does not evaluate
/// the filter; the inner `None`, that SQL cannot express the filter. For fuzz targets only.
#[cfg(fuzzing)]
pub fn sql_of(predicate: &Predicate) -> Option<Option<(String, usize)>> {
    let mut binds = Binds::default();
    is_pushable(predicate).then(|| Some((fragment(predicate, &mut binds).ok()?, binds.into_inner().len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(name: &str, op: CompareOp, literal: EdmValue) -> Predicate {
        Predicate::Compare { field: Field::Custom(name.into()), op, literal }
    }

    fn sql(predicate: &Predicate) -> String {
        fragment(predicate, &mut Binds::default()).unwrap()
    }

    #[test]
    fn names_and_literals_are_parameters_whatever_they_hold() {
        let evil = "x' OR 1=1 --";
        let predicate = Predicate::All(vec![
            custom(evil, CompareOp::Eq, EdmValue::String(evil.into())),
            Predicate::Flag(evil.into()),
        ]);
        assert_eq!(
            sql(&predicate),
            "(CASE WHEN jsonb_typeof((properties -> $1)) = 'string' AND (properties ->> $2) IS NULL \
             THEN ((properties ->> $1) COLLATE \"C\" = $3) WHEN (properties ->> $2) = 'Edm.String' \
             THEN ((properties ->> $1) COLLATE \"C\" = $4) ELSE false END AND \
             coalesce((properties -> $1) = 'true'::jsonb, false))"
        );
    }

    #[test]
    fn connectives_and_constants() {
        use Predicate::*;
        assert_eq!(sql(&All(vec![])), "true");
        assert_eq!(sql(&Any(vec![])), "false");
        assert_eq!(sql(&Not(Box::new(Any(vec![Always(true), Always(false)])))), "(NOT (true OR false))");
    }

    #[test]
    fn values_that_a_parameter_cannot_hold_are_not_pushed() {
        let nul = || EdmValue::String("a\u{0}".into());
        assert!(!is_pushable(&Predicate::Not(Box::new(custom("A", CompareOp::Eq, nul())))));
        assert!(!is_pushable(&Predicate::Flag("\u{0}".into())));
        assert!(is_pushable(&custom("A", CompareOp::Eq, EdmValue::Binary(vec![0]))));
    }
}
