//! Converts a filter expression to a predicate, with the property on the left of each comparison. Checks the types
//! of operands, and refuses the filters that Azure refuses (protocol §6.3).

use super::predicate::{Field, Predicate};
use crate::error::{Code, Error, Result};
use crate::model::{CompareOp, EdmType, EdmValue, TextTest};
use crate::odata::{Expr, Operand};

const NOT_A_BOOLEAN: &str = "The $filter expression must evaluate to a single boolean value.";

/// The resource that a filter selects from, which determines the meaning of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Entities,
    /// The lower-case `TableName` takes the place of the PartitionKey.
    Tables,
}

/// Converts an expression to a predicate.
///
/// # Errors
/// [`Code::NotImplemented`] for comparisons without exactly one property and one literal;
/// [`Code::FilterOperandKinds`] where declared types do not fit; [`Code::InvalidInput`] for a value in place
/// of a condition.
pub fn predicate(expr: &Expr, subject: Subject) -> Result<Predicate> {
    match expr {
        Expr::And(parts) => Ok(Predicate::All(connective_parts(parts, subject, "And")?)),
        Expr::Or(parts) => Ok(Predicate::Any(connective_parts(parts, subject, "Or")?)),
        Expr::Not(inner) => {
            let inner = condition(inner, subject).map_err(|problem| match problem {
                NotACondition::Type(found) => unary_type_error(found),
                NotACondition::Other(error) => error,
            })?;
            Ok(Predicate::Not(Box::new(inner)))
        }
        other => condition(other, subject).map_err(|problem| match problem {
            NotACondition::Type(_) => Error::with_message(Code::InvalidInput, NOT_A_BOOLEAN),
            NotACondition::Other(error) => error,
        }),
    }
}

/// The reason why an expression is not a condition.
enum NotACondition {
    /// The expression has this type instead of Boolean.
    Type(EdmType),
    Other(Error),
}

fn condition(expr: &Expr, subject: Subject) -> Result<Predicate, NotACondition> {
    match expr {
        Expr::Bare(operand) => bare_operand(operand, subject).map_err(NotACondition::Type),
        Expr::Compare { left, op, right } => {
            comparison(left, *op, right, subject).map_err(NotACondition::Other)
        }
        Expr::Call { test, operand, needle } => {
            text_test(operand, *test, needle, subject).map_err(NotACondition::Other)
        }
        Expr::In { operand, values } => any_of(operand, values, subject).map_err(NotACondition::Other),
        connective => predicate(connective, subject).map_err(NotACondition::Other),
    }
}

fn connective_parts(parts: &[Expr], subject: Subject, operator: &str) -> Result<Vec<Predicate>> {
    parts
        .iter()
        .enumerate()
        .map(|(position, part)| {
            condition(part, subject).map_err(|problem| match problem {
                NotACondition::Other(error) => error,
                NotACondition::Type(found) if position == 0 => {
                    binary_type_error(found, EdmType::Boolean, operator)
                }
                NotACondition::Type(found) => binary_type_error(EdmType::Boolean, found, operator),
            })
        })
        .collect()
}

fn bare_operand(operand: &Operand, subject: Subject) -> Result<Predicate, EdmType> {
    match operand {
        Operand::Literal(EdmValue::Boolean(value)) => Ok(Predicate::Always(*value)),
        Operand::Literal(other) => Err(other.edm_type()),
        Operand::Folded(..) | Operand::Null => Err(EdmType::String),
        Operand::Property(name) => match field(name, subject) {
            Field::Custom(name) => Ok(Predicate::Flag(name)),
            declared => Err(declared_type(&declared)),
        },
    }
}

fn comparison(left: &Operand, op: CompareOp, right: &Operand, subject: Subject) -> Result<Predicate> {
    let (name, op, literal) = match (left, right) {
        (Operand::Property(name), Operand::Literal(literal)) => (name, op, literal),
        (Operand::Literal(literal), Operand::Property(name)) => (name, op.mirrored(), literal),
        (Operand::Folded(..), Operand::Literal(literal)) => {
            return text_test(left, TextTest::Is(op), literal, subject);
        }
        (Operand::Literal(literal), Operand::Folded(..)) => {
            return text_test(right, TextTest::Is(op.mirrored()), literal, subject);
        }
        (Operand::Property(name), Operand::Null) | (Operand::Null, Operand::Property(name)) => {
            return presence(name, op, subject);
        }
        (Operand::Null, _) | (_, Operand::Null) => return Err(Code::InvalidInput.into()),
        _ => return Err(Code::NotImplemented.into()),
    };
    let field = field(name, subject);
    if !matches!(field, Field::Custom(_)) {
        let declared = declared_type(&field);
        if literal.edm_type() != declared {
            return Err(binary_type_error(declared, literal.edm_type(), operator_name(op)));
        }
    }
    let literal = match (subject, literal) {
        (Subject::Tables, EdmValue::String(name)) if field == Field::PartitionKey => {
            EdmValue::String(name.to_ascii_lowercase())
        }
        (_, literal) => literal.clone(),
    };
    Ok(Predicate::Compare { field, op, literal })
}

/// Returns the predicate of a text function, or of a comparison of text in a different case.
fn text_test(operand: &Operand, test: TextTest, needle: &EdmValue, subject: Subject) -> Result<Predicate> {
    let (fold, name) = match operand {
        Operand::Property(name) => (None, name),
        Operand::Folded(fold, name) => (Some(*fold), name),
        Operand::Literal(_) | Operand::Null => return Err(Code::NotImplemented.into()),
    };
    let field = field(name, subject);
    let declared = declared_type(&field);
    let EdmValue::String(needle) = needle else {
        return Err(binary_type_error(declared, needle.edm_type(), test_name(test)));
    };
    if declared != EdmType::String {
        return Err(binary_type_error(declared, EdmType::String, test_name(test)));
    }
    let (fold, needle) = match (subject, &field) {
        // Table names ignore case, as in comparisons.
        (Subject::Tables, Field::PartitionKey) => (None, needle.to_ascii_lowercase()),
        _ => (fold, needle.clone()),
    };
    Ok(match (test, fold) {
        (TextTest::Is(op), None) => Predicate::Compare { field, op, literal: EdmValue::String(needle) },
        _ => Predicate::Text { field, fold, test, needle },
    })
}

/// Returns the predicate of a list: the operand equals one of the values.
fn any_of(operand: &Operand, values: &[EdmValue], subject: Subject) -> Result<Predicate> {
    let equal =
        |value: &EdmValue| comparison(operand, CompareOp::Eq, &Operand::Literal(value.clone()), subject);
    values.iter().map(equal).collect::<Result<_>>().map(Predicate::Any)
}

/// Returns the predicate of a comparison with `null`, which tests whether the entity has the property.
fn presence(name: &str, op: CompareOp, subject: Subject) -> Result<Predicate> {
    let is_present = match field(name, subject) {
        Field::Custom(name) => Predicate::Present(name),
        _ => Predicate::Always(true),
    };
    match op {
        CompareOp::Ne => Ok(is_present),
        CompareOp::Eq => Ok(Predicate::Not(Box::new(is_present))),
        _ => Err(Code::InvalidInput.into()),
    }
}

fn field(name: &str, subject: Subject) -> Field {
    match (subject, name) {
        (Subject::Entities, "PartitionKey") | (Subject::Tables, "TableName") => Field::PartitionKey,
        (Subject::Entities, "RowKey") => Field::RowKey,
        (Subject::Entities, "Timestamp") => Field::Timestamp,
        // A table has no other properties, so they count as missing (UNVERIFIED).
        (_, custom) => Field::Custom(custom.into()),
    }
}

const fn declared_type(field: &Field) -> EdmType {
    match field {
        Field::Timestamp => EdmType::DateTime,
        _ => EdmType::String,
    }
}

/// Returns the name of a test for messages. Azure has only the operators, so the other names are our choice.
const fn test_name(test: TextTest) -> &'static str {
    match test {
        TextTest::StartsWith => "StartsWith",
        TextTest::EndsWith => "EndsWith",
        TextTest::Contains => "Contains",
        TextTest::Is(op) => operator_name(op),
    }
}

const fn operator_name(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "Equal",
        CompareOp::Ne => "NotEqual",
        CompareOp::Lt => "LessThan",
        CompareOp::Le => "LessThanOrEqual",
        CompareOp::Gt => "GreaterThan",
        CompareOp::Ge => "GreaterThanOrEqual",
    }
}

fn binary_type_error(left: EdmType, right: EdmType, operator: &str) -> Error {
    Error::with_message(
        Code::FilterOperandKinds,
        format!(
            "A binary operator with incompatible types was detected. Found operand types '{}' and '{}' \
             for operator kind '{operator}'.",
            left.name(),
            right.name(),
        ),
    )
}

fn unary_type_error(found: EdmType) -> Error {
    Error::with_message(
        Code::FilterOperandKinds,
        format!(
            "A unary operator with an incompatible type was detected. Found operand type '{}' for operator \
             kind 'Not'.",
            found.name()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CaseFold;
    use crate::odata::{Grammar, parse};

    fn planned(text: &str, subject: Subject) -> Result<Predicate> {
        let grammar = Grammar { max_comparisons: 100, extended: true };
        predicate(&parse(text, grammar).unwrap(), subject)
    }
    fn compare(field: Field, op: CompareOp, literal: EdmValue) -> Predicate {
        Predicate::Compare { field, op, literal }
    }

    #[test]
    fn literals_on_the_left_mirror_the_operator() {
        let n = |op| compare(Field::Custom("N".into()), op, EdmValue::Int32(3));
        assert_eq!(planned("3 lt N", Subject::Entities), Ok(n(CompareOp::Gt)));
        assert_eq!(planned("3 ge N", Subject::Entities), Ok(n(CompareOp::Le)));
        assert_eq!(planned("3 eq N", Subject::Entities), Ok(n(CompareOp::Eq)));
    }

    #[test]
    fn a_comparison_needs_one_property_and_one_literal() {
        for text in ["a eq b", "1 eq 2"] {
            assert_eq!(planned(text, Subject::Entities).unwrap_err().code, Code::NotImplemented, "{text}");
        }
    }

    #[test]
    fn declared_types_are_enforced_with_the_services_words() {
        let prefix = "A binary operator with incompatible types was detected. Found operand types ";
        for (text, rest) in [
            ("PartitionKey and a eq 1", "'Edm.String' and 'Edm.Boolean' for operator kind 'And'."),
            ("a eq 1 or RowKey", "'Edm.Boolean' and 'Edm.String' for operator kind 'Or'."),
            ("PartitionKey eq 1", "'Edm.String' and 'Edm.Int32' for operator kind 'Equal'."),
            (
                "Timestamp ge '2020'",
                "'Edm.DateTime' and 'Edm.String' for operator kind 'GreaterThanOrEqual'.",
            ),
            ("a eq 1 and 5", "'Edm.Boolean' and 'Edm.Int32' for operator kind 'And'."),
        ] {
            let error = planned(text, Subject::Entities).unwrap_err();
            assert_eq!((error.code, error.text()), (Code::FilterOperandKinds, &*format!("{prefix}{rest}")));
        }
        assert_eq!(planned("not RowKey", Subject::Entities).unwrap_err().code, Code::FilterOperandKinds);
        for value in ["PartitionKey", "'x'", "1L", "(1)", "guid'00000000-0000-0000-0000-000000000000'"] {
            let error = planned(value, Subject::Entities).unwrap_err();
            assert_eq!((error.code, error.text()), (Code::InvalidInput, NOT_A_BOOLEAN), "{value}");
        }
    }

    #[test]
    fn bare_booleans_are_conditions() {
        assert_eq!(planned("true", Subject::Entities), Ok(Predicate::Always(true)));
        assert_eq!(planned("Flag", Subject::Entities), Ok(Predicate::Flag("Flag".into())));
    }

    #[test]
    fn extended_queries_have_their_meaning() {
        let text =
            |field, fold, test, needle: &str| Predicate::Text { field, fold, test, needle: needle.into() };
        let a = || Field::Custom("A".into());
        let present = || Predicate::Present("A".into());
        for (filter, meant) in [
            ("startswith(A,'x')", text(a(), None, TextTest::StartsWith, "x")),
            ("substringof('x',RowKey)", text(Field::RowKey, None, TextTest::Contains, "x")),
            ("'x' lt tolower(A)", text(a(), Some(CaseFold::Lower), TextTest::Is(CompareOp::Gt), "x")),
            ("A ne null", present()),
            ("null eq A", Predicate::Not(Box::new(present()))),
            ("RowKey ne null", Predicate::Always(true)),
            ("Timestamp eq null", Predicate::Not(Box::new(Predicate::Always(true)))),
            (
                "PartitionKey in ('a','b')",
                Predicate::Any(
                    ["a", "b"]
                        .map(|key| compare(Field::PartitionKey, CompareOp::Eq, EdmValue::String(key.into())))
                        .into(),
                ),
            ),
        ] {
            assert_eq!(planned(filter, Subject::Entities), Ok(meant), "{filter}");
        }
        let name = text(Field::PartitionKey, None, TextTest::StartsWith, "my");
        assert_eq!(planned("startswith(toupper(TableName),'My')", Subject::Tables), Ok(name));
        let equal = compare(Field::PartitionKey, CompareOp::Eq, EdmValue::String("my".into()));
        assert_eq!(planned("toupper(TableName) eq 'MY'", Subject::Tables), Ok(equal));
        for (filter, code) in [
            ("startswith(PartitionKey,5)", Code::FilterOperandKinds),
            ("startswith(Timestamp,'x')", Code::FilterOperandKinds),
            ("contains(A,5)", Code::FilterOperandKinds),
            ("tolower(A) eq 5", Code::FilterOperandKinds),
            ("RowKey in ('a',5)", Code::FilterOperandKinds),
            ("A lt null", Code::InvalidInput),
            ("1 eq null", Code::InvalidInput),
            ("tolower(A) eq null", Code::InvalidInput),
            ("tolower(A)", Code::InvalidInput),
            ("tolower(A) eq B", Code::NotImplemented),
        ] {
            assert_eq!(planned(filter, Subject::Entities).map_err(|error| error.code), Err(code), "{filter}");
        }
    }

    #[test]
    fn table_names_compare_in_lower_case() {
        let expected = compare(Field::PartitionKey, CompareOp::Eq, EdmValue::String("mytable".into()));
        assert_eq!(planned("TableName eq 'MyTable'", Subject::Tables), Ok(expected));
        assert!(matches!(
            planned("PartitionKey eq 'x'", Subject::Tables),
            Ok(Predicate::Compare { field: Field::Custom(_), .. })
        ));
    }
}
