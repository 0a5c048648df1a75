//! Property indexes: catalogue, definitions and lookups.
//!
//! DDL takes no table or property names as parameters, and PostgreSQL uses an index only for statements that repeat
//! its expression. So this module writes values into statements: Rowhouse's own numbers, and names quoted by
//! `literal`.

use std::fmt::Write as _;

use crate::postgres::statements::pages::columns;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::PageOrder;
use crate::protocol::plan::Projection;
use crate::protocol::plan::index::{IndexKind, MAX_TEXT, PropertyIndex};

/// The table of entities and PostgreSQL's `relkind` of a plain table.
pub(crate) const ENTITIES: (&str, &str) = ("entities", "r");
/// The advisory lock of the process that builds or removes indexes in a database.
pub(crate) const LOCK_BUILDS: &str =
    "SELECT pg_try_advisory_lock(1380469080, 26) AS locked, pg_backend_pid() AS pid";
/// The sessions that block the session $1. Returns one empty row if there are none, and no row without that session.
pub(crate) const BLOCKERS: &str = "SELECT DISTINCT a.pid, a.application_name FROM pg_stat_activity AS s \
     LEFT JOIN pg_stat_activity AS a ON a.pid = ANY(pg_blocking_pids(s.pid)) WHERE s.pid = $1 ORDER BY a.pid";

/// Locks a table to serialize the addition of indexes and respreads.
pub(crate) const LOCK_TABLE: &str =
    "SELECT table_no, spread FROM tables WHERE account = $1 AND name_lower = $2 FOR UPDATE";
/// The tables that hold entities: one table or its partitions. $1 its name, $2 the `relkind` of plain tables.
pub(crate) const HOLDERS: &str = "SELECT c.oid::regclass::text AS name FROM pg_class AS c \
     WHERE c.oid = $1::regclass AND c.relkind = $2 UNION ALL \
     SELECT p.relid::regclass::text FROM pg_partition_tree($1::regclass) AS p WHERE p.isleaf \
     AND p.parentrelid IS NOT NULL ORDER BY name";
/// The indexes in the database whose names have this prefix, complete or not.
pub(crate) const PARTS: &str = "SELECT c.oid::regclass::text AS name, c.relname, i.indisvalid, \
     coalesce(pg_relation_size(c.oid), 0) AS bytes, coalesce(pg_stat_get_numscans(c.oid), 0) AS uses, \
     p.blocks_done::float8 / nullif(p.blocks_total, 0) AS progress, p.pid \
     FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid \
     LEFT JOIN pg_stat_progress_create_index AS p ON p.index_relid = c.oid \
     WHERE starts_with(c.relname, $1) ORDER BY c.relname";
/// Whether every table that holds entities has its complete part of the index: $1 and $2 as in [`HOLDERS`], $3 the
/// prefix of the parts' names, $4 their minimum number of columns.
pub(crate) const IS_COMPLETE: &str = "SELECT NOT EXISTS (SELECT 1 FROM (SELECT c.oid FROM pg_class AS c \
     WHERE c.oid = $1::regclass AND c.relkind = $2 UNION ALL SELECT p.relid FROM pg_partition_tree($1::regclass) AS p \
     WHERE p.isleaf AND p.parentrelid IS NOT NULL) AS h (oid) WHERE NOT EXISTS (SELECT 1 FROM pg_index AS i \
     JOIN pg_class AS n ON n.oid = i.indexrelid WHERE i.indrelid = h.oid AND i.indisvalid \
     AND i.indnkeyatts >= $4 AND starts_with(n.relname, $3))) AS found";
/// Bytes of an index in all shards of the table $1: $2 [`BYTES_OF_SHARD`], $3 the index, $4 [`SHARD`].
pub(crate) const BYTES_OF_SHARDS: &str = "SELECT coalesce(sum(result::bigint), 0)::bigint AS bytes \
     FROM run_command_on_shards(to_regclass($1), format($2, $3::text, $4::text))";
/// The query for each shard. The name of the shard's part of an index has the same suffix as the shard.
pub(crate) const BYTES_OF_SHARD: &str =
    "SELECT coalesce(pg_relation_size(to_regclass(%L || substring(%L from '_[0-9]+$'))), 0)";
/// The placeholder that Citus replaces with the name of a shard.
pub(crate) const SHARD: &str = "%s";
pub(crate) const CANCEL: &str = "SELECT pg_cancel_backend($1)";

/// The texts that contain no values.
pub(crate) const ALL: [&str; 7] =
    [LOCK_BUILDS, BLOCKERS, IS_COMPLETE, LOCK_TABLE, PARTS, BYTES_OF_SHARDS, CANCEL];

/// The name prefix of an index's parts.
pub(crate) fn prefix(index_no: i64) -> String {
    format!("property_index_{index_no}_")
}

/// The name of the part on one of the tables that hold entities.
pub(crate) fn part(index_no: i64, holder: usize) -> String {
    format!("{}{holder}", prefix(index_no))
}

/// Minimum columns of an index that supports ordered pages. Older versions of Rowhouse created indexes without keys.
pub(crate) const fn ordered_columns(spread: u16) -> i16 {
    if spread <= 1 { 3 } else { 4 }
}

/// Creates a part for all buckets of a table. The database has quoted `holder`. The keys after the entry are
/// shortened, because PostgreSQL refuses rows whose index entry exceeds a third of a page.
pub fn definition(index: &PropertyIndex, name: &str, holder: &str, spread: u16) -> String {
    let entry = format!("{}, {SHORT_KEYS}", entry(index));
    let first = index.table_no << 16;
    match i64::from(spread) - 1 {
        ..=0 => format!("CREATE INDEX CONCURRENTLY {name} ON {holder} ({entry}) WHERE bucket = {first}"),
        more => format!(
            "CREATE INDEX CONCURRENTLY {name} ON {holder} (bucket, {entry}) \
             WHERE bucket >= {first} AND bucket <= {}",
            first + more
        ),
    }
}

/// Removes a part. The database has quoted `name`.
pub(crate) fn removal(name: &str) -> String {
    format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")
}

/// Reads at most `limit` keys of entries of one bucket between bounds, which are placeholders. The ORDER BY makes
/// PostgreSQL use the index regardless of its statistics. A range without an upper bound is read from the highest
/// entry down.
pub fn lookup(
    index: &PropertyIndex,
    bucket: i64,
    lower: Option<&str>,
    upper: Option<&str>,
    limit: &str,
) -> String {
    let entry = entry(index);
    let mut text = format!("(SELECT pk, rk FROM entities WHERE bucket = {bucket}");
    for (operator, bound) in [(">=", lower), ("<=", upper)] {
        if let Some(bound) = bound {
            // Writing to a string cannot fail.
            let _ = write!(text, " AND {entry} {operator} {bound}");
        }
    }
    let order = if lower.is_some() && upper.is_none() { " DESC" } else { "" };
    let _ = write!(text, " ORDER BY {entry}{order} LIMIT {limit})");
    text
}

/// The prefixes of both keys in an index.
const SHORT_KEYS: &str = "left(pk, 64), left(rk, 64)";

/// Maximum characters of a key in an index.
const SHORT_CHARS: usize = 64;

/// Whether an index stores the whole key, and no longer key has the same prefix.
pub(crate) fn is_short(key: &str) -> bool {
    key.chars().nth(SHORT_CHARS - 1).is_none()
}

/// Returns the prefix of a key that an index stores.
pub(crate) fn short_key(key: &str) -> &str {
    key.char_indices().nth(SHORT_CHARS).map_or(key, |(end, _)| &key[..end])
}

/// Placeholders for the position where a page in the order of an index starts.
pub struct OrderedFrom {
    /// `None` for entities without an entry.
    pub entry: Option<String>,
    pub pk: String,
    pub rk: String,
    /// Whether the index stores both keys in full.
    pub is_short: bool,
}

/// The rows that a statement reads in the order of an index. Its texts are placeholders and fragments of them.
pub struct OrderedRows<'a> {
    pub index: &'a PropertyIndex,
    pub order: PageOrder,
    /// Whether the rows have an entry.
    pub has_entries: bool,
    pub lower: Option<String>,
    pub upper: Option<String>,
    pub from: Option<OrderedFrom>,
    /// The maximum number of examined rows. The last examined row is always returned, matching or not.
    pub limit: String,
    /// The maximum number of returned rows.
    pub matches: String,
}

impl OrderedRows<'_> {
    /// Rows of some buckets, each in the order of the index.
    pub fn of_buckets(&self, buckets: impl Iterator<Item = i64>) -> String {
        let branches: Vec<String> =
            buckets.map(|bucket| self.branch(&format!("entities WHERE bucket = {bucket}"))).collect();
        branches.join(" UNION ALL ")
    }

    /// Rows with known keys. `buckets`, `pks` and `rks` are parallel arrays.
    pub(crate) fn of_points(&self, buckets: &str, pks: &str, rks: &str) -> String {
        self.branch(&format!(
            "unnest({buckets}::bigint[], {pks}::text[], {rks}::text[]) AS u (b, p, r) \
             JOIN entities ON bucket = u.b AND pk = u.p AND rk = u.r WHERE true"
        ))
    }

    fn branch(&self, source: &str) -> String {
        format!(
            "(SELECT pk, rk, modified, properties, {} AS entry, left(pk, 64) AS short_pk, left(rk, 64) AS short_rk \
             FROM {source}{} AND {} ORDER BY {} LIMIT {})",
            entry(self.index),
            self.conditions(&entry(self.index)),
            table_exists!("$1"),
            self.terms(),
            self.limit
        )
    }

    /// The first rows of some buckets in order, without a filter. The text has the entry once, so it is short enough
    /// to stay prepared.
    pub fn every_row(&self, buckets: impl Iterator<Item = i64>, projection: Projection) -> String {
        let (columns, terms, limit) = (columns(projection), self.terms(), &self.limit);
        let (entry, conditions) = (entry(self.index), self.conditions("entry"));
        let branch = |bucket: i64| {
            format!(
                "(SELECT {columns}, entry, short_pk, short_rk FROM (SELECT bucket, pk, rk, modified, properties, \
                 {entry} AS entry, left(pk, 64) AS short_pk, left(rk, 64) AS short_rk FROM entities) AS e \
                 WHERE bucket = {bucket}{conditions} AND {} ORDER BY {terms} LIMIT {limit})",
                table_exists!("$1")
            )
        };
        let branches: Vec<String> = buckets.map(branch).collect();
        if branches.len() == 1 {
            return branches.concat();
        }
        let rows = branches.join(" UNION ALL ");
        format!("(SELECT {columns}, entry FROM ({rows}) AS s ORDER BY {terms} LIMIT {limit})")
    }

    fn conditions(&self, entry: &str) -> String {
        let mut text = format!(" AND {entry} IS {}NULL", if self.has_entries { "NOT " } else { "" });
        for (operator, bound) in [(">=", &self.lower), ("<=", &self.upper)] {
            if let Some(bound) = bound {
                // Writing to a string cannot fail.
                let _ = write!(text, " AND {entry} {operator} {bound}");
            }
        }
        if let Some(OrderedFrom { entry: value, pk, rk, is_short }) = &self.from {
            let operator = if self.order == PageOrder::Ascending { ">=" } else { "<=" };
            let short = format!("left({pk}, {SHORT_CHARS}), left({rk}, {SHORT_CHARS})");
            let (columns, values) = match value {
                Some(value) => (format!("{entry}, {SHORT_KEYS}"), format!("{value}, {short}")),
                None => (SHORT_KEYS.to_owned(), short),
            };
            let _ = write!(text, " AND ({columns}) {operator} ({values})");
            // This condition finds the place in the index. Keys longer than the prefix need an exact condition too.
            if !is_short {
                let _ = write!(text, " AND ({columns}, pk, rk) {operator} ({values}, {pk}, {rk})");
            }
        }
        text
    }

    fn terms(&self) -> String {
        let direction = if self.order == PageOrder::Ascending { "" } else { " DESC" };
        let columns = ["entry", "short_pk", "short_rk", "pk", "rk"];
        columns.map(|column| format!("{column}{direction}")).join(", ")
    }

    /// The first rows of `source` in order that match the filter, each with its number among all rows. `empty` is as
    /// for [`filtered`](super::pages::filtered).
    pub fn filtered(&self, source: &str, filter: &str, projection: Projection, empty: &str) -> String {
        let (terms, limit, matches) = (self.terms(), &self.limit, &self.matches);
        let columns = columns(projection);
        format!(
            "SELECT {columns}, entry, number FROM (SELECT pk, rk, modified, properties, entry, short_pk, short_rk, \
             row_number() OVER () AS number FROM (SELECT pk, rk, modified, properties || {empty} AS properties, \
             entry, short_pk, short_rk FROM ({source}) AS s ORDER BY {terms} LIMIT {limit}) AS r \
             ORDER BY {terms}) AS w WHERE {filter} OR number = {limit} ORDER BY {terms} LIMIT {matches}"
        )
    }
}

/// Reads the entry of the row with the bucket $1 and the key $2, $3.
pub(crate) fn value(index: &PropertyIndex) -> String {
    format!("SELECT {} FROM entities WHERE bucket = $1 AND pk = $2 AND rk = $3", entry(index))
}

/// The entry of a row: NULL without the property, and the lowest entry for a different type.
fn entry(index: &PropertyIndex) -> String {
    if index.kind == IndexKind::Timestamp {
        return "modified".to_owned();
    }
    let name = literal(&index.property);
    let (json, value) = (format!("(properties -> {name})"), format!("(properties ->> {name})"));
    let named = format!("(properties ->> {})", literal(&format!("{}{ANNOTATION}", index.property)));
    let cases = match index.kind {
        IndexKind::Text => format!(
            "WHEN {named} IS NULL THEN CASE jsonb_typeof({json}) WHEN 'string' THEN left({value}, {MAX_TEXT}) ELSE '' END \
             WHEN {named} = 'Edm.String' THEN left(split_part({value}, chr(1), 1), {MAX_TEXT}) ELSE ''"
        ),
        IndexKind::Number => format!(
            "WHEN {named} IS NULL THEN CASE jsonb_typeof({json}) WHEN 'number' THEN {value}::float8 \
             ELSE '-Infinity'::float8 END WHEN {named} = 'Edm.Int64' THEN {value}::float8 \
             WHEN {named} = 'Edm.Double' THEN CASE {value} WHEN 'NaN' THEN NULL ELSE {value}::float8 END \
             ELSE '-Infinity'::float8"
        ),
        IndexKind::Time => {
            format!("WHEN {named} = 'Edm.DateTime' THEN left(rtrim({value}, 'Z'), {MAX_TEXT}) ELSE ''")
        }
        IndexKind::Guid => format!("WHEN {named} = 'Edm.Guid' THEN left({value}, {MAX_TEXT}) ELSE ''"),
        IndexKind::Boolean => format!(
            "WHEN {named} IS NULL AND jsonb_typeof({json}) = 'boolean' THEN {json}::boolean ELSE false"
        ),
        IndexKind::Timestamp => String::new(),
    };
    let collation = match index.kind {
        IndexKind::Text | IndexKind::Time | IndexKind::Guid => " COLLATE \"C\"",
        IndexKind::Number | IndexKind::Boolean | IndexKind::Timestamp => "",
    };
    format!("(CASE WHEN {json} IS NULL THEN NULL {cases} END{collation})")
}

/// Quotes a name as a literal. ASCII letters and digits are kept, and all other characters become code points, so no
/// name can end the literal.
fn literal(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.');
    if name.chars().all(is_plain) {
        return format!("'{name}'");
    }
    let escaped = name.chars().fold(String::new(), |mut text, c| {
        let _ = if is_plain(c) { write!(text, "{c}") } else { write!(text, "\\+{:06x}", u32::from(c)) };
        text
    });
    format!("U&'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_literal() {
        assert_eq!(literal("Age_1"), "'Age_1'");
        assert_eq!(literal("Age@odata.type"), "'Age@odata.type'");
        assert_eq!(literal("é"), "U&'\\+0000e9'");
        for hostile in
            ["'", "a' OR 1=1 --", "\\", "\\'", "\"", "a;b", "$$", "\n", "\u{0}", "\u{10ffff}", "E'"]
        {
            let literal = literal(hostile);
            let inner = literal.strip_prefix("U&'").and_then(|rest| rest.strip_suffix('\'')).unwrap();
            for escape in inner.split('\\').skip(1) {
                assert!(escape.starts_with('+') && escape.len() >= 7, "{literal}");
            }
            let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.' | '+' | '\\');
            assert!(inner.chars().all(is_safe), "{literal}");
        }
    }

    #[test]
    fn lookups_name_their_bucket_and_bind_their_bounds() {
        let index = PropertyIndex { index_no: 1, table_no: 1, property: "N".into(), kind: IndexKind::Guid };
        let text = lookup(&index, 65536, Some("$2"), Some("$3"), "$1");
        assert!(text.contains("WHERE bucket = 65536 AND"));
        assert!(
            text.contains(" >= $2 AND ") && text.contains(" <= $3 ORDER BY ") && text.ends_with(" LIMIT $1)")
        );
        assert_eq!(part(1, 0), "property_index_1_0");
    }
}
