//! Index entries as SQLite expressions, which are deterministic and defined for every stored object. DDL takes no
//! table or property names as parameters. So only this module writes values into statements: Rowhouse's own numbers,
//! and names quoted by [`path`].

use std::fmt::Write as _;

use crate::bucket;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::{IndexKind, MAX_TEXT, PropertyIndex};
use crate::sqlite::catalog::tables::SPREAD;

pub(crate) fn name(index_no: i64) -> String {
    format!("property_index_{index_no}")
}

/// Creates the index, sorted by value and then by key.
pub(crate) fn definition(index: &PropertyIndex) -> String {
    let (name, entry, bucket) = (name(index.index_no), entry(index), bucket_of(index));
    format!("CREATE INDEX IF NOT EXISTS {name} ON entities ({entry}, pk, rk, bucket) WHERE bucket = {bucket}")
}

pub(crate) fn removal(index_no: i64) -> String {
    format!("DROP INDEX IF EXISTS {}", name(index_no))
}

/// Reads the keys of at most ?1 entries. The lower and the upper bound follow as parameters. A range without an upper
/// bound is read from the highest entry down.
pub(crate) fn lookup(index: &PropertyIndex, has_lower: bool, has_upper: bool) -> String {
    let (name, entry, bucket) = (name(index.index_no), entry(index), bucket_of(index));
    let mut text = format!("SELECT pk, rk FROM entities INDEXED BY {name} WHERE bucket = {bucket}");
    for (is_there, operator, parameter) in [(has_lower, ">=", "?2"), (has_upper, "<=", "?3")] {
        if is_there {
            // Writing to a string cannot fail.
            let _ = write!(text, " AND {entry} {operator} {parameter}");
        }
    }
    let order = if has_lower && !has_upper { " DESC" } else { "" };
    let _ = write!(text, " ORDER BY {entry}{order} LIMIT ?1");
    text
}

/// Reads the entry of the row with the key ?1, ?2.
pub(crate) fn value(index: &PropertyIndex) -> String {
    let (entry, bucket) = (entry(index), bucket_of(index));
    format!("SELECT {entry} FROM entities WHERE bucket = {bucket} AND pk = ?1 AND rk = ?2")
}

/// The entries of an index that a statement reads. A key bound requires equality of all preceding columns, because
/// SQLite cannot seek to a row value that begins with an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryBound {
    /// Entries without a value.
    Missing,
    /// Entries with this value.
    Equal,
    /// Entries behind this value.
    Behind,
    /// All entries with a value.
    Any,
}

/// The keys among equal entries that a statement reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyBound {
    /// Keys of this partition, from this row on.
    RowsFrom,
    /// Keys of the partitions behind this one.
    PartitionsBehind,
    Any,
}

/// Reads rows in the order of an index, with their entries. The named parameters `:entry`, `:pk`, `:rk` and the
/// bounds `:lower` and `:upper` occur only if needed.
pub(crate) fn ordered(
    index: &PropertyIndex,
    order: PageOrder,
    (entries, keys): (EntryBound, KeyBound),
    (has_lower, has_upper): (bool, bool),
) -> String {
    let (name, entry, bucket) = (name(index.index_no), entry(index), bucket_of(index));
    let (from, behind, direction) = match order {
        PageOrder::Ascending => (">=", ">", ""),
        PageOrder::Descending => ("<=", "<", " DESC"),
    };
    let mut text = format!(
        "SELECT pk, rk, modified, properties, {entry} FROM entities INDEXED BY {name} WHERE bucket = {bucket} AND {entry} "
    );
    text += &match entries {
        EntryBound::Missing => "IS NULL".to_owned(),
        EntryBound::Equal => "= :entry".to_owned(),
        EntryBound::Behind => format!("{behind} :entry"),
        EntryBound::Any => "IS NOT NULL".to_owned(),
    };
    for (is_there, condition) in [(has_lower, ">= :lower"), (has_upper, "<= :upper")] {
        if is_there {
            // Writing to a string cannot fail.
            let _ = write!(text, " AND {entry} {condition}");
        }
    }
    text += &match keys {
        KeyBound::RowsFrom => format!(" AND pk = :pk AND rk {from} :rk ORDER BY rk{direction}"),
        KeyBound::PartitionsBehind => format!(" AND pk {behind} :pk ORDER BY pk{direction}, rk{direction}"),
        KeyBound::Any if entries == EntryBound::Missing => format!(" ORDER BY pk{direction}, rk{direction}"),
        KeyBound::Any => format!(" ORDER BY {entry}{direction}, pk{direction}, rk{direction}"),
    };
    text
}

/// Reads the row with the key ?1, ?2 and its entry.
pub(crate) fn row(index: &PropertyIndex) -> String {
    let (entry, bucket) = (entry(index), bucket_of(index));
    format!(
        "SELECT pk, rk, modified, properties, {entry} FROM entities WHERE bucket = {bucket} AND pk = ?1 AND rk = ?2"
    )
}

fn bucket_of(index: &PropertyIndex) -> i64 {
    bucket::bucket(index.table_no, SPREAD, "")
}

/// The entry of a row: NULL without the property, and the lowest entry for a different type.
fn entry(index: &PropertyIndex) -> String {
    if index.kind == IndexKind::Timestamp {
        return "modified".to_owned();
    }
    let name = &index.property;
    let value_path = path(name);
    let value = format!("json_extract(properties, {value_path})");
    let json = format!("json_type(properties, {value_path})");
    let named = format!("json_extract(properties, {})", path(&format!("{name}{ANNOTATION}")));
    let cases = match index.kind {
        IndexKind::Text => format!(
            "WHEN {named} IS NULL THEN CASE {json} WHEN 'text' THEN substr({value}, 1, {MAX_TEXT}) ELSE '' END \
             WHEN {named} = 'Edm.String' \
             THEN substr(substr({value}, 1, instr({value}, char(1)) - 1), 1, {MAX_TEXT}) ELSE ''"
        ),
        IndexKind::Number => format!(
            "WHEN {named} IS NULL \
             THEN CASE {json} WHEN 'integer' THEN CAST({value} AS REAL) ELSE -9e999 END \
             WHEN {named} = 'Edm.Int64' THEN CAST({value} AS REAL) \
             WHEN {named} = 'Edm.Double' THEN CASE {value} WHEN 'NaN' THEN NULL WHEN 'Infinity' THEN 9e999 \
             WHEN '-Infinity' THEN -9e999 ELSE CAST({value} AS REAL) END ELSE -9e999"
        ),
        IndexKind::Time => format!("WHEN {named} = 'Edm.DateTime' THEN rtrim({value}, 'Z') ELSE ''"),
        IndexKind::Guid => format!("WHEN {named} = 'Edm.Guid' THEN {value} ELSE ''"),
        IndexKind::Boolean => format!("WHEN {named} IS NULL AND {json} = 'true' THEN 1 ELSE 0"),
        IndexKind::Timestamp => String::new(),
    };
    format!("(CASE WHEN {json} IS NULL THEN NULL {cases} END)")
}

/// Quotes the path of a member as a literal. ASCII letters and digits are kept, and all other names become
/// hexadecimal, so no name can end the literal.
fn path(member: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.');
    if member.chars().all(is_plain) {
        return format!("'$.\"{member}\"'");
    }
    let digits = format!("$.\"{member}\"").bytes().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    format!("CAST(x'{digits}' AS TEXT)")
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::connections::open::open;
    use crate::sqlite::connections::options::{Location, SqliteOptions};

    fn database() -> Connection {
        open(&SqliteOptions::new(Location::Memory)).unwrap()
    }

    fn index(property: &str, kind: IndexKind) -> PropertyIndex {
        PropertyIndex { index_no: 7, table_no: 1, property: property.into(), kind }
    }

    #[test]
    fn names_cannot_leave_their_literal() {
        assert_eq!(path("Age_1"), "'$.\"Age_1\"'");
        for hostile in ["'", "a' OR 1=1 --", "\"", "a\\", "é", "a;b", "a\nb", "$", "\u{0}", "x') --"] {
            let path = path(hostile);
            let digits = path.strip_prefix("CAST(x'").and_then(|rest| rest.strip_suffix("' AS TEXT)"));
            assert!(digits.unwrap().bytes().all(|b| b.is_ascii_hexdigit()), "{path}");
            let read: String = database().query_row(&format!("SELECT {path}"), [], |row| row.get(0)).unwrap();
            assert_eq!(read, format!("$.\"{hostile}\""));
        }
    }

    #[test]
    fn ordered_reads_walk_the_index_without_sorting() {
        for kind in IndexKind::ALL {
            let (db, index) = (database(), index("Age", kind));
            db.execute_batch(&definition(&index)).unwrap();
            for order in [PageOrder::Ascending, PageOrder::Descending] {
                for (entries, keys) in [
                    (EntryBound::Missing, KeyBound::Any),
                    (EntryBound::Missing, KeyBound::RowsFrom),
                    (EntryBound::Missing, KeyBound::PartitionsBehind),
                    (EntryBound::Any, KeyBound::Any),
                    (EntryBound::Equal, KeyBound::RowsFrom),
                    (EntryBound::Equal, KeyBound::PartitionsBehind),
                    (EntryBound::Behind, KeyBound::Any),
                ] {
                    if kind == IndexKind::Timestamp && entries == EntryBound::Missing {
                        continue;
                    }
                    let bounded = entries != EntryBound::Missing;
                    let text = ordered(&index, order, (entries, keys), (bounded, bounded));
                    let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
                    let mut rows = explain.raw_query();
                    let plan: String = rows.next().unwrap().unwrap().get(3).unwrap();
                    assert!(
                        plan.contains("USING INDEX property_index_7"),
                        "{kind} {entries:?} {keys:?}: {plan}"
                    );
                    assert!(rows.next().unwrap().is_none(), "{kind} {entries:?} {keys:?}: a sort");
                }
            }
        }
    }

    #[test]
    fn lookups_read_the_index_and_nothing_else() {
        for kind in IndexKind::ALL {
            for property in ["Age", "Größe"] {
                let (db, index) = (database(), index(property, kind));
                db.execute_batch(&definition(&index)).unwrap();
                for (has_lower, has_upper) in [(true, true), (true, false), (false, true)] {
                    let text = format!("EXPLAIN QUERY PLAN {}", lookup(&index, has_lower, has_upper));
                    let mut explain = db.prepare(&text).unwrap();
                    let parameters = if has_upper { 3 } else { 2 };
                    for parameter in 1..=parameters {
                        explain.raw_bind_parameter(parameter, 1).unwrap();
                    }
                    let mut rows = explain.raw_query();
                    let plan: String = rows.next().unwrap().unwrap().get(3).unwrap();
                    let column = if kind == IndexKind::Timestamp { "modified" } else { "<expr>" };
                    assert!(
                        plan.contains(&format!("COVERING INDEX property_index_7 ({column}")),
                        "{kind}: {plan}"
                    );
                    assert!(rows.next().unwrap().is_none(), "{kind}: one step");
                }
                db.execute_batch(&removal(7)).unwrap();
            }
        }
    }
}
