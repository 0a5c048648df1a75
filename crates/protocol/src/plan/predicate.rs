//! The typed predicate of a query and its evaluation (protocol §6.4). Tests of the SQL that stores generate from
//! predicates use this evaluation as the reference.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::codec::stored::{self, PropertyFinder};
use crate::error::Result;
use crate::model::edm::compare;
use crate::model::entity::BorrowedEntity;
use crate::model::{CaseFold, CompareOp, EdmValue, TextTest, Ticks};

/// The field of a comparison. System properties have declared types, custom properties have their stored
/// type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Field {
    PartitionKey,
    RowKey,
    Timestamp,
    Custom(String),
}

/// A condition on one entity. [`super::filter`] ensures that a literal has the declared type of the system property
/// with which it is compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// All parts hold; true if empty.
    All(Vec<Predicate>),
    /// At least one part holds; false if empty.
    Any(Vec<Predicate>),
    Not(Box<Predicate>),
    Always(bool),
    Compare {
        field: Field,
        op: CompareOp,
        literal: EdmValue,
    },
    /// A bare property: true only for a stored Boolean `true`.
    Flag(String),
    /// A test of a string after the change of case `fold`, if it is set. The test is false for a missing property
    /// and for other types.
    Text {
        field: Field,
        fold: Option<CaseFold>,
        test: TextTest,
        needle: String,
    },
    /// The entity has the custom property, with any type.
    Present(String),
}

/// The parts of an entity that a predicate reads.
pub struct EntityView<'a> {
    pub partition: &'a str,
    pub row: &'a str,
    pub modified: Ticks,
    /// The custom properties that the predicate names, ordered by name.
    pub properties: Vec<(&'a str, EdmValue)>,
}

/// The fixed cost of a comparison, in addition to the bytes that it may read.
const COMPARISON_COST: usize = 64;
/// Number of comparisons up to which a filter is not costly.
const CHEAP_COMPARISONS: usize = 16;

/// A predicate prepared for many entities.
pub struct Prepared<'p> {
    predicate: &'p Predicate,
    finders: Vec<PropertyFinder<'p>>,
    reads_only_properties: bool,
    comparisons: usize,
}

/// Texts of an entity after a change of case, each folded once.
type Folds<'e> = HashMap<(&'e Field, CaseFold), Cow<'e, str>>;

impl<'p> Prepared<'p> {
    pub fn new(predicate: &'p Predicate) -> Self {
        let (names, reads_only_properties) = (predicate.names(), predicate.reads_only_properties());
        let finders = names.into_iter().map(PropertyFinder::new).collect();
        Self { predicate, finders, reads_only_properties, comparisons: predicate.count_comparisons() }
    }

    /// Returns the cost of an evaluation for an entity of this size, in bytes that comparisons may read.
    pub const fn cost(&self, bytes: usize) -> usize {
        self.comparisons.saturating_mul(bytes.saturating_add(COMPARISON_COST))
    }

    /// Returns whether the evaluation takes longer than reading the entity.
    pub const fn is_costly(&self) -> bool {
        self.comparisons > CHEAP_COMPARISONS
    }

    /// Returns whether a stored entity satisfies the predicate.
    pub fn matches(&self, entity: BorrowedEntity<'_>) -> Result<bool> {
        let BorrowedEntity { partition, row, modified, properties, .. } = entity;
        let properties = stored::pick(properties.as_bytes(), &self.finders)?;
        Ok(self.predicate.eval(&EntityView { partition, row, modified, properties }))
    }

    /// Returns whether a table satisfies the predicate. Its lower-case name takes the place of the PartitionKey.
    pub fn matches_table(&self, name: &str, created: Ticks) -> bool {
        let properties = Vec::new();
        self.predicate.eval(&EntityView { partition: name, row: "", modified: created, properties })
    }

    /// Returns whether an entity with these stored properties satisfies the predicate, or `None` if the
    /// evaluation needs other parts of the entity.
    pub fn matches_properties(&self, stored: &[u8]) -> Result<Option<bool>> {
        if !self.reads_only_properties {
            return Ok(None);
        }
        let properties = stored::pick(stored, &self.finders)?;
        Ok(Some(self.predicate.eval(&EntityView {
            partition: "",
            row: "",
            modified: Ticks::MIN,
            properties,
        })))
    }
}

impl Predicate {
    /// Evaluates the predicate with the two-valued logic of protocol §6.4: comparisons with a missing
    /// property are false, and `not` is plain negation.
    pub fn eval(&self, view: &EntityView<'_>) -> bool {
        self.holds(view, &mut Folds::new())
    }

    fn holds<'e>(&'e self, view: &'e EntityView<'_>, folds: &mut Folds<'e>) -> bool {
        match self {
            Predicate::All(parts) => parts.iter().all(|p| p.holds(view, folds)),
            Predicate::Any(parts) => parts.iter().any(|p| p.holds(view, folds)),
            Predicate::Not(inner) => !inner.holds(view, folds),
            Predicate::Always(value) => *value,
            Predicate::Flag(name) => {
                matches!(find(view, name), Some(EdmValue::Boolean(true)))
            }
            Predicate::Compare { field, op, literal } => match field {
                Field::PartitionKey => compare_text(view.partition, *op, literal),
                Field::RowKey => compare_text(view.row, *op, literal),
                Field::Timestamp => compare(&EdmValue::DateTime(view.modified), *op, literal),
                Field::Custom(name) => find(view, name).is_some_and(|stored| compare(stored, *op, literal)),
            },
            Predicate::Text { field, fold, test, needle } => {
                text_field(view, field).is_some_and(|text| match fold {
                    Some(fold) => {
                        let folded = folds.entry((field, *fold)).or_insert_with(|| fold.apply(text));
                        test.holds(folded, needle)
                    }
                    None => test.holds(text, needle),
                })
            }
            Predicate::Present(name) => find(view, name).is_some(),
        }
    }

    /// Calls `visit` for every part that is not a connective.
    fn for_each_test<'a>(&'a self, visit: &mut impl FnMut(&'a Predicate)) {
        match self {
            Predicate::All(parts) | Predicate::Any(parts) => {
                parts.iter().for_each(|part| part.for_each_test(visit))
            }
            Predicate::Not(inner) => inner.for_each_test(visit),
            test => visit(test),
        }
    }

    fn count_comparisons(&self) -> usize {
        let mut count = 0;
        self.for_each_test(&mut |_| count += 1);
        count
    }

    /// Returns whether the predicate reads only custom properties.
    fn reads_only_properties(&self) -> bool {
        let mut all = true;
        self.for_each_test(&mut |test| {
            if let Predicate::Compare { field, .. } | Predicate::Text { field, .. } = test {
                all &= matches!(field, Field::Custom(_));
            }
        });
        all
    }

    /// Returns the names of the custom properties that the predicate reads, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.for_each_test(&mut |test| {
            if let Predicate::Flag(name)
            | Predicate::Present(name)
            | Predicate::Compare { field: Field::Custom(name), .. }
            | Predicate::Text { field: Field::Custom(name), .. } = test
            {
                names.push(name.as_str());
            }
        });
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn find<'a>(view: &'a EntityView<'_>, name: &str) -> Option<&'a EdmValue> {
    let at = view.properties.binary_search_by_key(&name, |(known, _)| *known).ok()?;
    view.properties.get(at).map(|(_, value)| value)
}

/// Returns the text of a field, or `None` if the field has none.
fn text_field<'a>(view: &'a EntityView<'_>, field: &Field) -> Option<&'a str> {
    match field {
        Field::PartitionKey => Some(view.partition),
        Field::RowKey => Some(view.row),
        Field::Timestamp => None,
        Field::Custom(name) => match find(view, name) {
            Some(EdmValue::String(text)) => Some(text),
            _ => None,
        },
    }
}

fn compare_text(stored: &str, op: CompareOp, literal: &EdmValue) -> bool {
    match literal {
        EdmValue::String(literal) => op.holds(Some(stored.cmp(literal.as_str()))),
        _ => op.holds_on_type_mismatch(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Key, Stored};

    fn entity() -> Stored {
        Stored {
            key: Key::new("p", "r"),
            modified: Ticks::parse("2020-01-01T00:00:00Z").unwrap(),
            properties: stored::encode(&[
                ("Yes", EdmValue::Boolean(true)),
                ("No", EdmValue::Boolean(false)),
                ("N", EdmValue::Int32(5)),
            ]),
        }
    }

    fn holds(predicate: &Predicate) -> bool {
        Prepared::new(predicate).matches((&entity()).into()).unwrap()
    }

    fn custom(name: &str, op: CompareOp, literal: EdmValue) -> Predicate {
        Predicate::Compare { field: Field::Custom(name.into()), op, literal }
    }

    #[test]
    fn missing_properties_compare_false_even_unequal() {
        for op in CompareOp::ALL {
            let missing = custom("Missing", op, EdmValue::Int32(1));
            assert!(!holds(&missing), "{op:?}");
            assert!(holds(&Predicate::Not(Box::new(missing))), "{op:?}");
        }
    }

    #[test]
    fn bare_properties_need_a_stored_true() {
        for (name, expected) in [("Yes", true), ("No", false), ("N", false), ("Missing", false)] {
            assert_eq!(holds(&Predicate::Flag(name.into())), expected, "{name}");
        }
    }

    #[test]
    fn properties_alone_decide_where_nothing_else_is_looked_at() {
        let entity = entity();
        let by_properties = |predicate: &Predicate| {
            Prepared::new(predicate).matches_properties(entity.properties.as_str().as_bytes()).unwrap()
        };
        let number = |op| custom("N", op, EdmValue::Int32(5));
        let flag = |name: &str| Predicate::Flag(name.into());
        let nested = |inner| Predicate::Any(vec![flag("No"), Predicate::Not(Box::new(inner))]);
        for op in CompareOp::ALL {
            for predicate in [number(op), nested(number(op)), Predicate::All(vec![flag("Yes"), number(op)])] {
                assert_eq!(by_properties(&predicate), Some(holds(&predicate)), "{predicate:?}");
            }
        }
        let key =
            |field| Predicate::Compare { field, op: CompareOp::Eq, literal: EdmValue::String("p".into()) };
        for field in [Field::PartitionKey, Field::RowKey, Field::Timestamp] {
            for predicate in
                [key(field.clone()), nested(key(field.clone())), Predicate::All(vec![flag("No"), key(field)])]
            {
                assert_eq!(by_properties(&predicate), None, "{predicate:?}");
            }
        }
    }

    #[test]
    fn a_text_is_folded_once_for_all_calls_of_an_entity() {
        let contains = |needle: &str| Predicate::Text {
            field: Field::Custom("T".into()),
            fold: Some(CaseFold::Lower),
            test: TextTest::Contains,
            needle: needle.into(),
        };
        let calls = Predicate::Any((0..600).map(|n| contains(&format!("x{n}"))).collect());
        let view = EntityView {
            partition: "",
            row: "",
            modified: Ticks::MIN,
            properties: vec![("T", EdmValue::String("ABC".into()))],
        };
        let mut folds = Folds::new();
        assert!(!calls.holds(&view, &mut folds));
        assert_eq!(folds.into_values().collect::<Vec<_>>(), ["abc"]);
        assert!(contains("bc").eval(&view));
        assert_eq!(Prepared::new(&calls).cost(1000), 600 * (1000 + COMPARISON_COST));
    }

    #[test]
    fn connectives_are_plain_boolean() {
        let yes = || Predicate::Always(true);
        let no = || Predicate::Always(false);
        assert!(holds(&Predicate::All(vec![])));
        assert!(!holds(&Predicate::Any(vec![])));
        assert!(holds(&Predicate::Any(vec![no(), yes()])));
        assert!(!holds(&Predicate::All(vec![yes(), no()])));
        assert!(holds(&Predicate::Not(Box::new(no()))));
    }
}
