//! What a target cannot represent.

use crate::protocol::codec::stored;
use crate::protocol::model::TableName;
use crate::rows::row::Row;

/// Maximum bytes of a RowKey in Cosmos DB.
const MAX_COSMOS_ROW_KEY: usize = 255;
/// Names that properties cannot have in Cosmos DB.
const COSMOS_NAMES: [&str; 4] = ["id", "rid", "etag", "ResourceId"];

/// Returns why Cosmos DB cannot hold an entity.
pub(crate) fn not_in_cosmos(row: &Row) -> Option<String> {
    let bytes = row.key.row.len();
    if bytes > MAX_COSMOS_ROW_KEY {
        return Some(format!("its RowKey has {bytes} bytes; Cosmos DB allows {MAX_COSMOS_ROW_KEY}"));
    }
    let fields = stored::fields(row.properties.as_str()).ok()?;
    let taken = fields.iter().find(|field| COSMOS_NAMES.contains(&field.name.as_ref()))?;
    Some(format!("Cosmos DB allows no property named {}", taken.name))
}

/// Returns why tables cannot be copied under the names that they have in the target; empty if they
/// can. Cosmos DB has case-sensitive names, and accepts others than Azure Tables.
pub fn name_problems(names: &[(String, String)], to_cosmos: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, (source, target)) in names.iter().enumerate() {
        if !to_cosmos && TableName::parse(target).is_err() {
            problems.push(format!("{target:?} is not a valid table name in TO; give --rename {source}=NAME"));
        }
        let is_same = |other: &str| match to_cosmos {
            true => other == target,
            false => other.eq_ignore_ascii_case(target),
        };
        if let Some((other, _)) = names[..at].iter().find(|(_, other)| is_same(other)) {
            problems.push(format!(
                "{other} and {source} would be the same table in TO; give --rename {source}=NAME"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cosmos_does_not_take_is_found() {
        let reason = |json: &str| not_in_cosmos(&Row::from_json(json).unwrap());
        assert_eq!(reason(r#"{"PartitionKey":"a","RowKey":"b","Id":1,"ETAG":"x"}"#), None);
        let taken = reason(r#"{"PartitionKey":"a","RowKey":"b","A":1,"etag":"x"}"#);
        assert!(taken.is_some_and(|reason| reason.contains("etag")));
        let long = format!(r#"{{"PartitionKey":"a","RowKey":"{}"}}"#, "é".repeat(128));
        assert!(reason(&long).is_some_and(|reason| reason.contains("256")));
    }

    #[test]
    fn names_that_clash_or_are_not_allowed_are_found() {
        let names: Vec<(String, String)> = [("People", "People"), ("people", "people"), ("a-b", "a-b")]
            .map(|(source, target)| (source.to_owned(), target.to_owned()))
            .to_vec();
        let problems = name_problems(&names, false);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("People and people") && problems[1].contains("a-b"));
        assert!(name_problems(&names, true).is_empty());
    }
}
