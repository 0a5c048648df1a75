//! Statements that read rows of a page in ascending order. [`in_order`] reverses it. $1 table number, $2 maximum
//! rows.

use std::borrow::Cow;

use crate::protocol::model::PageOrder;
use crate::protocol::plan::Projection;

macro_rules! range {
    ($columns:literal, $upper:literal, $bucket:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM entities WHERE bucket = ",
            $bucket,
            " AND (pk, rk) >= ($3, $4)",
            $upper,
            " AND ",
            table_exists!("$1"),
            " ORDER BY pk, rk LIMIT $2"
        )
    };
}

const FULL: &str = "pk, rk, modified, properties";
const SYSTEM: &str = "pk, rk, modified";

pub const fn columns(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => FULL,
        Projection::SystemOnly => SYSTEM,
    }
}

/// Returns this module's statement for the same rows in the given order.
pub fn in_order(text: Cow<'static, str>, order: PageOrder) -> Cow<'static, str> {
    match order {
        PageOrder::Ascending => text,
        PageOrder::Descending => text
            .replace("ORDER BY pk, rk", "ORDER BY pk DESC, rk DESC")
            .replace("ORDER BY e.pk, e.rk", "ORDER BY e.pk DESC, e.rk DESC")
            .into(),
    }
}

/// Rows from ($3, $4) on and, if `bounded`, below ($5, $6). The following parameters are the buckets. One bucket is
/// one index scan. Several buckets are merged from one index scan each, because `bucket = ANY` would sort the rest of
/// the table for every page.
pub fn range(projection: Projection, bounded: bool, buckets: usize) -> Cow<'static, str> {
    if buckets == 1 {
        return Cow::Borrowed(match (projection, bounded) {
            (Projection::Full, false) => range!("pk, rk, modified, properties", "", "$5"),
            (Projection::Full, true) => {
                range!("pk, rk, modified, properties", " AND (pk, rk) < ($5, $6)", "$7")
            }
            (Projection::SystemOnly, false) => range!("pk, rk, modified", "", "$5"),
            (Projection::SystemOnly, true) => range!("pk, rk, modified", " AND (pk, rk) < ($5, $6)", "$7"),
        });
    }
    let (one, first) = if bounded { ("$7", 7) } else { ("$5", 5) };
    let branch = range(projection, bounded, 1);
    let branches: Vec<String> = (first..first + buckets)
        .map(|n| format!("({})", branch.replace(&format!("bucket = {one} "), &format!("bucket = ${n} "))))
        .collect();
    let columns = columns(projection);
    Cow::Owned(format!(
        "SELECT {columns} FROM ({}) AS merged ORDER BY pk, rk LIMIT $2",
        branches.join(" UNION ALL ")
    ))
}

macro_rules! points {
    ($columns:literal, $from:literal, $order:literal) => {
        concat!("SELECT ", $columns, $from, table_exists!("$1"), " ORDER BY ", $order, " LIMIT $2")
    };
    ($projection:ident, $from:literal) => {
        match $projection {
            Projection::Full => points!("e.pk, e.rk, e.modified, e.properties", $from, "e.pk, e.rk"),
            Projection::SystemOnly => points!("e.pk, e.rk, e.modified", $from, "e.pk, e.rk"),
        }
    };
}

/// Rows of one partition. $3 bucket, $4 pk, $5 rks.
pub const fn points_of_partition(projection: Projection) -> &'static str {
    macro_rules! of {
        ($columns:literal) => {
            points!($columns, " FROM entities WHERE bucket = $3 AND pk = $4 AND rk = ANY($5) AND ", "pk, rk")
        };
    }
    match projection {
        Projection::Full => of!("pk, rk, modified, properties"),
        Projection::SystemOnly => of!("pk, rk, modified"),
    }
}

/// Rows of several partitions of one bucket. $3 bucket; $4 pks, $5 rks, as parallel arrays.
pub const fn points_of_bucket(projection: Projection) -> &'static str {
    points!(
        projection,
        " FROM unnest($4::text[], $5::text[]) AS u (pk, rk) \
         JOIN entities AS e ON e.bucket = $3 AND e.pk = u.pk AND e.rk = u.rk WHERE "
    )
}

/// Rows of several partitions. $3 buckets, $4 pks, $5 rks, as parallel arrays.
pub const fn points(projection: Projection) -> &'static str {
    points!(
        projection,
        " FROM unnest($3::bigint[], $4::text[], $5::text[]) AS u (bucket, pk, rk) \
         JOIN entities AS e ON e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk WHERE "
    )
}

/// The rows of a source that match a filter. `empty` is the empty object. Concatenating it to the properties makes
/// one decompressed copy for all comparisons.
pub fn filtered(source: &str, filter: &str, projection: Projection, empty: &str, limit: &str) -> String {
    let columns = columns(projection);
    format!(
        "SELECT {columns} FROM (SELECT pk, rk, modified, properties || {empty} AS properties \
         FROM ({source}) AS r ORDER BY pk, rk OFFSET 0) AS w WHERE {filter} ORDER BY pk, rk LIMIT {limit}"
    )
}

/// A window: at most `limit` of the first $2 rows of a `range` that match a filter, and the key of the row after the
/// window, which does not count as a match.
pub fn window(
    projection: Projection,
    bounded: bool,
    buckets: usize,
    filter: &str,
    (empty, limit): (&str, &str),
) -> String {
    let (columns, no_properties) = match projection {
        Projection::Full => (FULL, ", NULL::jsonb"),
        Projection::SystemOnly => (SYSTEM, ""),
    };
    let kept = filtered(&range(Projection::Full, bounded, buckets), filter, projection, empty, limit);
    let keys = range(Projection::SystemOnly, bounded, buckets)
        .replace(SYSTEM, "pk, rk")
        .replace("LIMIT $2", "LIMIT $2 + 1");
    format!(
        "SELECT {columns}, true AS matches FROM ({kept}) AS kept UNION ALL \
         (SELECT pk, rk, NULL::bigint{no_properties}, false FROM ({keys}) AS keys ORDER BY pk, rk OFFSET $2 LIMIT 1)"
    )
}

/// A `walk` returns one in this many rows whether it matches or not, chosen by its version. The number is prime,
/// because versions of one batch are evenly spaced.
pub const WALK_STRIDE: usize = 127;

/// The rows of a `range` that match a filter (`matches`), and about one in [`WALK_STRIDE`] of the others, without
/// their properties. Even with few matches, the keys show how far the scan has come. Both count towards the limit of
/// $2 rows. For small rows, a walk takes three quarters of the time of a [`window`].
pub fn walk(projection: Projection, bounded: bool, buckets: usize, filter: &str) -> String {
    let first = if bounded { 7 } else { 5 };
    let upper = if bounded { " AND (pk, rk) < ($5, $6)" } else { "" };
    let columns = columns(projection);
    let kept = match projection {
        Projection::Full => ", CASE WHEN matches THEN properties END AS properties",
        Projection::SystemOnly => "",
    };
    let branches: Vec<String> = (first..first + buckets)
        .map(|bucket| {
            format!(
                "(SELECT {columns}, (modified % {WALK_STRIDE} <> 0 OR {filter}) AS matches FROM entities \
                 WHERE bucket = ${bucket} AND (pk, rk) >= ($3, $4){upper} AND {} \
                 AND (modified % {WALK_STRIDE} = 0 OR {filter}) ORDER BY pk, rk LIMIT $2)",
                table_exists!("$1")
            )
        })
        .collect();
    format!(
        "SELECT pk, rk, modified{kept}, matches FROM ({}) AS seen ORDER BY pk, rk LIMIT $2",
        branches.join(" UNION ALL ")
    )
}
