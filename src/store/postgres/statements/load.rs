//! Texts that store the entities of a copy, with its mark.
//!
//! $1 buckets, $2 pks, $3 rks, $4 versions and $5 properties, side by side and in the order of keys;
//! $6 the table's number.

macro_rules! load {
    ($conflict:literal) => {
        concat! {
            "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) \
SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]), \
unnest($5::jsonb[]) WHERE ", table_exists!("$6"), " ON CONFLICT ", $conflict,
        }
    };
}

/// Leaves out entities that exist.
pub const LOAD_NEW: &str = load!("DO NOTHING");
/// An entity that is equal keeps its version, so that a page may be stored again.
pub const LOAD: &str = load!(
    "(bucket, pk, rk) DO UPDATE SET modified = greatest(e.modified + 1, excluded.modified), \
     properties = excluded.properties \
     WHERE e.modified <> excluded.modified OR e.properties <> excluded.properties"
);
pub const MARK: &str = "INSERT INTO copy_marks (copy, range_no, pk, rk, written, unchanged, rejected) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (copy, range_no) DO UPDATE SET \
     pk = excluded.pk, rk = excluded.rk, written = excluded.written, unchanged = excluded.unchanged, \
     rejected = excluded.rejected";
pub const MARKS: &str =
    "SELECT range_no, pk, rk, written, unchanged, rejected FROM copy_marks WHERE copy = $1";
pub const FORGET_MARKS: &str = "DELETE FROM copy_marks WHERE copy = $1";
