//! Sources of pages: rows in key order. $1 table number, $2 rows at most.

use std::borrow::Cow;

use crate::plan::Projection;

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

/// The columns that a page reads.
pub const fn columns(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => FULL,
        Projection::SystemOnly => SYSTEM,
    }
}

/// Rows from ($3, $4) on and, if `bounded`, below ($5, $6). The parameters
/// after those are the buckets. One bucket is one index scan; several are
/// merged from one index scan each, since `bucket = ANY` would have to sort
/// all that is left of the table for every page.
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

/// Rows of one partition. $3 bucket, $4 pk, $5 rks.
pub const fn points_of_partition(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => concat!(
            "SELECT pk, rk, modified, properties FROM entities WHERE bucket = $3 AND pk = $4 AND rk = ANY($5) AND ",
            table_exists!("$1"),
            " ORDER BY pk, rk LIMIT $2"
        ),
        Projection::SystemOnly => concat!(
            "SELECT pk, rk, modified FROM entities WHERE bucket = $3 AND pk = $4 AND rk = ANY($5) AND ",
            table_exists!("$1"),
            " ORDER BY pk, rk LIMIT $2"
        ),
    }
}

/// Rows of several partitions. $3 buckets, $4 pks, $5 rks, side by side.
pub const fn points(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => concat!(
            "SELECT e.pk, e.rk, e.modified, e.properties \
             FROM unnest($3::bigint[], $4::text[], $5::text[]) AS u (bucket, pk, rk) \
             JOIN entities AS e ON e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk WHERE ",
            table_exists!("$1"),
            " ORDER BY e.pk, e.rk LIMIT $2"
        ),
        Projection::SystemOnly => concat!(
            "SELECT e.pk, e.rk, e.modified FROM unnest($3::bigint[], $4::text[], $5::text[]) AS u (bucket, pk, rk) \
             JOIN entities AS e ON e.bucket = u.bucket AND e.pk = u.pk AND e.rk = u.rk WHERE ",
            table_exists!("$1"),
            " ORDER BY e.pk, e.rk LIMIT $2"
        ),
    }
}

/// Those rows of a source that a filter keeps.
pub fn filtered(source: &str, filter: &str, projection: Projection, limit: &str) -> String {
    let columns = columns(projection);
    format!("SELECT {columns} FROM ({source}) AS r WHERE {filter} ORDER BY pk, rk LIMIT {limit}")
}

/// Those rows of a [`range`] that a filter keeps (`matches`), and by chance about
/// the `share` of the others, without their properties: however little is found, the
/// keys show how far the scan has come. Both count for the limit of $2 rows.
/// Looking up the key of the n-th row instead costs a sixth as much as the filter
/// again, and numbering the rows half as much.
pub fn walk(projection: Projection, bounded: bool, buckets: usize, filter: &str, share: &str) -> String {
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
                "(SELECT {columns}, ({filter}) IS TRUE AS matches FROM entities \
                 WHERE bucket = ${bucket} AND (pk, rk) >= ($3, $4){upper} AND {} \
                 AND (({filter}) OR random() < {share}) ORDER BY pk, rk LIMIT $2)",
                table_exists!("$1")
            )
        })
        .collect();
    format!(
        "SELECT pk, rk, modified{kept}, matches FROM ({}) AS seen ORDER BY pk, rk LIMIT $2",
        branches.join(" UNION ALL ")
    )
}
