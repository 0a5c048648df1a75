//! Statements that store the entities of a copy with its mark.
//!
//! $1 buckets, $2 pks, $3 rks, $4 versions and $5 properties as parallel arrays in key order; $6 the table's number.
//! The forms `_IN_BUCKET` are for one bucket, $1, of entities that Citus distributes, see
//! [`entities`](super::entities).

macro_rules! load {
    ($rows:expr, $conflict:expr) => {
        concat!(
            "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) SELECT ",
            $rows,
            " ON CONFLICT ",
            $conflict
        )
    };
}

macro_rules! rows {
    (each) => {
        concat!(
            "unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]), \
             unnest($5::jsonb[]) WHERE ",
            table_exists!("$6")
        )
    };
    (in_bucket) => {
        concat!(
            "b.bucket, u.pk, u.rk, u.modified, u.properties FROM buckets AS b, \
         unnest($2::text[], $3::text[], $4::bigint[], $5::jsonb[]) AS u (pk, rk, modified, properties) \
         WHERE ",
            bucket_admits!("$6")
        )
    };
}

/// Equal entities keep their version, so that a page may be stored again.
macro_rules! unless_equal {
    () => {
        concat!(
            "(bucket, pk, rk) DO UPDATE SET modified = ",
            later_version!(),
            ", properties = excluded.properties \
             WHERE e.modified <> excluded.modified OR e.properties <> excluded.properties"
        )
    };
}

statements! {
    /// Skips existing entities.
    pub const LOAD_NEW: &str = load!(rows!(each), "DO NOTHING");
    pub const LOAD_NEW_IN_BUCKET: &str = load!(rows!(in_bucket), "DO NOTHING");
    pub const LOAD: &str = load!(rows!(each), unless_equal!());
    pub const LOAD_IN_BUCKET: &str = load!(rows!(in_bucket), unless_equal!());
    pub const MARK: &str = "INSERT INTO copy_marks (copy, range_no, pk, rk, written, unchanged, rejected) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (copy, range_no) DO UPDATE SET \
         pk = excluded.pk, rk = excluded.rk, written = excluded.written, unchanged = excluded.unchanged, \
         rejected = excluded.rejected";
}

#[cfg(test)]
mod tests {
    use crate::protocol::model::Ticks;

    #[test]
    fn versions_end_where_time_ends() {
        assert!(super::LOAD.contains(&format!("least(e.modified + 1, {})", Ticks::MAX.raw())));
    }
}
