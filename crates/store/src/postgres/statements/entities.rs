//! Statements that read and write entities by key.
//!
//! Each statement has up to three forms. `one` is for one row of one request: $1 bucket, $2 pk, $3 rk, $4 table
//! number. `each` is for one row of each of several independent requests: parallel arrays of the same four
//! parameters, in key order so that two statements cannot deadlock. `many` is for rows of one partition: $1 bucket,
//! $2 pk, $3 rks in order, $4 table number. Writes add $5, the versions, and $6, the properties.
//!
//! # Forms for Citus
//!
//! To route a statement to one server, Citus requires a condition on one bucket. So `in_bucket` replaces `each`: $1
//! and $4 are one value, for requests of one bucket. Statements check the existence of the table, except those that
//! insert rows. Citus routes an INSERT .. SELECT to one server only if its bucket comes from a row of a table with
//! the same distribution, and if it reads nothing else. So the forms `one_routed`, `many_routed` and `in_bucket`
//! select the rows to insert from `buckets`, which has a row for each bucket, and [`CHECK_TABLE`](super::CHECK_TABLE)
//! runs before them. A table that is deleted after the check is deleted during the write, as if the write had come
//! first, and the purge removes the inserted row.
//!
//! A row of `buckets` may be missing or stale, except during a [respread](super::respread) of its table: then the row
//! names the only number for inserts. If the row is missing, as for a new bucket, the insert stores nothing,
//! [`ADD_BUCKET`](super::ADD_BUCKET) adds the row, and the write is repeated. If any version of Rowhouse deleted the
//! table, the check detects it, because table numbers are never reused. The purge removes the rows of `buckets` with
//! the last trace of a table.
//!
//! One macro describes all forms of each kind of write. `e` is the alias of `entities` with its dot, or empty. All
//! texts are built at compile time.

/// The condition for a form's rows of `entities`.
macro_rules! key_matches {
    (one, $e:literal) => {
        concat!($e, "bucket = $1 AND ", $e, "pk = $2 AND ", $e, "rk = $3")
    };
    (many, $e:literal) => {
        concat!($e, "bucket = $1 AND ", $e, "pk = $2 AND ", $e, "rk = ANY($3)")
    };
    (each, $e:literal) => {
        concat!($e, "bucket = u.bucket AND ", $e, "pk = u.pk AND ", $e, "rk = u.rk")
    };
    (in_bucket, $e:literal) => {
        concat!($e, "bucket = $1 AND ", $e, "pk = u.pk AND ", $e, "rk = u.rk")
    };
}

/// The requests whose table exists, as rows `u`. `types` and `names` describe the parameters after the first four.
macro_rules! requests {
    (each, $types:literal, $numbered:literal, $names:literal) => {
        concat! {
            "unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]", $types, ")", $numbered,
            " AS u (bucket, pk, rk, table_no", $names, ") JOIN tables AS t ON t.table_no = u.table_no",
        }
    };
    (in_bucket, $types:literal, $numbered:literal, $names:literal) => {
        concat! {
            "unnest($2::text[], $3::text[]", $types, ")", $numbered,
            " AS u (pk, rk", $names, ") JOIN tables AS t ON t.table_no = $4",
        }
    };
}

/// The same rows, with the index `n` of each request.
macro_rules! numbered_requests {
    // A single request needs no index.
    (one, $types:literal, $names:literal) => {
        ""
    };
    ($form:ident, $types:literal, $names:literal) => {
        requests!($form, $types, " WITH ORDINALITY", $names)
    };
}

/// Inserts rows if their table exists or, in the forms for Citus, if their row of `buckets` does. Callers append the
/// ON CONFLICT clause.
macro_rules! insert {
    ($form:ident, $into:literal) => {
        concat!("INSERT INTO ", $into, " (bucket, pk, rk, modified, properties) SELECT ", insert!($form))
    };
    (one) => {
        concat!("$1, $2, $3, $5, $6 WHERE ", table_exists!("$4"))
    };
    (one_routed) => {
        concat!("b.bucket, $2::text, $3::text, $5::bigint, $6::jsonb FROM buckets AS b WHERE ", bucket_admits!("$4"))
    };
    // PostgreSQL would materialize arrays in `FROM` before reading the first row.
    (many) => {
        concat! {
            "$1, $2, unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) WHERE ", table_exists!("$4"),
        }
    };
    (many_routed) => {
        concat!(
            "b.bucket, $2::text, unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) \
             FROM buckets AS b WHERE ",
            bucket_admits!("$4")
        )
    };
    (each) => {
        concat! {
            "u.bucket, u.pk, u.rk, u.modified, u.properties FROM ",
            requests!(each, ", $5::bigint[], $6::jsonb[]", "", ", modified, properties"),
        }
    };
    (in_bucket) => {
        concat! {
            "b.bucket, u.pk, u.rk, u.modified, u.properties FROM buckets AS b, \
             unnest($2::text[], $3::text[], $5::bigint[], $6::jsonb[]) AS u (pk, rk, modified, properties) \
             WHERE ", bucket_admits!("$4"),
        }
    };
}

/// Upserts rows: existing rows get `properties` and `modified`.
macro_rules! insert_or {
    ($form:ident, $properties:literal, $modified:expr) => {
        concat! {
            insert!($form, "entities AS e"), " ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = ",
            $properties, ", modified = ", $modified, " RETURNING ", insert_or!($form),
        }
    };
    // Identifies the rows and returns their versions.
    (one) => {
        "modified"
    };
    (one_routed) => {
        "modified"
    };
    (many) => {
        "rk, modified"
    };
    (many_routed) => {
        "rk, modified"
    };
    (each) => {
        "bucket, pk, rk, modified"
    };
    (in_bucket) => {
        "bucket, pk, rk, modified"
    };
}

macro_rules! upsert {
    ($form:ident) => {
        insert_or!($form, "excluded.properties", later_version!())
    };
}

/// Inserts rows or merges into existing rows. $7: annotations that the stored row must not have, joined by commas;
/// $8: the maximum number of its members. Rows that do not meet these conditions are skipped, but the forms of many
/// rows fail as a whole.
macro_rules! insert_or_merge {
    (one) => {
        insert_or_merge!(one, "$7::text", "$8::int")
    };
    (one_routed) => {
        insert_or_merge!(one_routed, "$7::text", "$8::int")
    };
    // The guard finds its write by the version, because `excluded` has no other part of the write. Versions are
    // unique.
    (each) => {
        insert_or_merge!(numbered each)
    };
    (in_bucket) => {
        insert_or_merge!(numbered in_bucket)
    };
    (numbered $form:ident) => {
        insert_or_merge!(
            $form,
            "($7::text[])[array_position($5::bigint[], excluded.modified)]",
            "($8::int[])[array_position($5::bigint[], excluded.modified)]"
        )
    };
    (many) => {
        insert_or_merge!(whole many)
    };
    (many_routed) => {
        insert_or_merge!(whole many_routed)
    };
    (whole $form:ident) => {
        insert_or_merge!($form, value_or_failure!(
            merges_for_certain!("$7::text", "$8::int"),
            later_version!(),
            "e.modified"
        ))
    };
    ($form:ident, $annotations:literal, $room:literal) => {
        insert_or_merge!($form, concat! {
            later_version!(), " WHERE ", merges_for_certain!($annotations, $room),
        })
    };
    ($form:ident, $modified:expr) => {
        insert_or!($form, "e.properties || excluded.properties", $modified)
    };
}

/// Changes existing rows with the version `wanted` (null: any) and a further guard. `requests` is for a form with
/// several requests.
macro_rules! guarded_change {
    (one, $e:literal, $change:expr, $requests:expr, $wanted:literal, $guard:expr) => {
        concat! {
            $change, " WHERE ", key_matches!(one, $e), " AND ", $e, "modified = coalesce(", $wanted, ", ",
            $e, "modified)", $guard, " AND ", table_exists!("$4"), " RETURNING ", $e, "modified",
        }
    };
    ($form:ident, $e:literal, $change:expr, $requests:expr, $wanted:literal, $guard:expr) => {
        concat! {
            $change, $requests, " WHERE ", key_matches!($form, $e), " AND ", $e, "modified = coalesce(u.wanted, ",
            $e, "modified)", $guard, " RETURNING u.n, ", $e, "modified",
        }
    };
}

/// Sets properties and version. The version is the given one or, if the stored version is not older, the tick after
/// the stored version. `kept` is the part of the properties that stays.
macro_rules! set {
    (one, $e:literal, $kept:literal) => {
        concat!(" SET properties = ", $kept, "$6, modified = greatest(", next_version!($e), ", $5)")
    };
    ($form:ident, $e:literal, $kept:literal) => {
        concat!(
            " SET properties = ",
            $kept,
            "u.properties, modified = greatest(",
            next_version!($e),
            ", u.modified)"
        )
    };
}

/// Replaces rows. $7: the required versions; null for any.
macro_rules! update {
    ($form:ident, $entities:literal, $e:literal) => {
        guarded_change!($form, $e, concat!("UPDATE ", $entities, set!($form, $e, "")), concat! {
            " FROM ",
            numbered_requests!($form, ", $5::bigint[], $6::jsonb[], $7::bigint[]", ", modified, properties, wanted, n"),
        }, "$7", "")
    };
}

/// Merges into rows. $7 and $8 as in [`insert_or_merge`]; $11: the required versions; null for any.
macro_rules! merge {
    ($form:ident, $annotations:literal, $room:literal) => {
        guarded_change!(
            $form,
            "e.",
            concat!("UPDATE entities AS e", set!($form, "e.", "e.properties || ")),
            concat! {
                " FROM ",
                numbered_requests!(
                    $form,
                    ", $5::bigint[], $6::jsonb[], $7::text[], $8::int[], $11::bigint[]",
                    ", modified, properties, annotations, room, wanted, n"
                ),
            },
            "$11",
            concat!(" AND ", merges_for_certain!($annotations, $room))
        )
    };
}

/// Deletes rows. $5: the required versions; null for any.
macro_rules! delete {
    ($form:ident, $entities:literal, $e:literal) => {
        guarded_change!(
            $form,
            $e,
            concat!("DELETE FROM ", $entities),
            concat! {
                " USING ", numbered_requests!($form, ", $5::bigint[]", ", wanted, n"),
            },
            "$5",
            ""
        )
    };
}

statements! {
    // One row.

    /// Returns one row if the table exists; its entity columns are null if there is no entity.
    pub const READ: &str = "SELECT e.modified, e.properties FROM tables t \
         LEFT JOIN entities e ON e.bucket = $1 AND e.pk = $2 AND e.rk = $3 WHERE t.table_no = $4";
    pub const LOCK_ONE: &str = concat! {
        "SELECT modified, properties FROM entities WHERE ", key_matches!(one, ""), " AND ", table_exists!("$4"),
        " FOR UPDATE",
    };
    pub const INSERT: &str = concat!(insert!(one, "entities"), " ON CONFLICT DO NOTHING RETURNING modified");
    pub const UPSERT: &str = upsert!(one);
    pub const UPDATE: &str = update!(one, "entities", "");
    pub const MERGE: &str = merge!(one, "$7::text", "$8::int");
    pub const INSERT_OR_MERGE: &str = insert_or_merge!(one);
    pub const DELETE: &str = delete!(one, "entities", "");

    pub const INSERT_ROUTED: &str =
        concat!(insert!(one_routed, "entities"), " ON CONFLICT DO NOTHING RETURNING modified");
    pub const UPSERT_ROUTED: &str = upsert!(one_routed);
    pub const INSERT_OR_MERGE_ROUTED: &str = insert_or_merge!(one_routed);

    // One row for each of several requests.

    /// Returns an indexed row for each request whose table exists. The entity columns are null if there is no entity.
    pub const READ_EACH: &str = concat! {
        "SELECT u.n, e.modified, e.properties FROM ", numbered_requests!(each, "", ", n"),
        " LEFT JOIN entities AS e ON ", key_matches!(each, "e."),
    };
    /// Versions are unique, so they identify the rows.
    pub const INSERT_EACH: &str =
        concat!(insert!(each, "entities"), " ON CONFLICT DO NOTHING RETURNING modified");
    pub const UPSERT_EACH: &str = upsert!(each);
    pub const UPDATE_EACH: &str = update!(each, "entities AS e", "e.");
    pub const MERGE_EACH: &str = merge!(each, "u.annotations", "u.room");
    pub const INSERT_OR_MERGE_EACH: &str = insert_or_merge!(each);
    pub const DELETE_EACH: &str = delete!(each, "entities AS e", "e.");

    // Several requests of one bucket.

    pub const READ_IN_BUCKET: &str = concat! {
        "SELECT u.n, e.modified, e.properties FROM ", numbered_requests!(in_bucket, "", ", n"),
        " LEFT JOIN entities AS e ON ", key_matches!(in_bucket, "e."),
    };
    pub const INSERT_IN_BUCKET: &str =
        concat!(insert!(in_bucket, "entities"), " ON CONFLICT DO NOTHING RETURNING modified");
    pub const UPSERT_IN_BUCKET: &str = upsert!(in_bucket);
    pub const UPDATE_IN_BUCKET: &str = update!(in_bucket, "entities AS e", "e.");
    pub const MERGE_IN_BUCKET: &str = merge!(in_bucket, "u.annotations", "u.room");
    pub const INSERT_OR_MERGE_IN_BUCKET: &str = insert_or_merge!(in_bucket);
    pub const DELETE_IN_BUCKET: &str = delete!(in_bucket, "entities AS e", "e.");

    // Rows of one partition. Most of these return only the number of changed rows.

    pub const LOCK_MANY: &str = concat! {
        "SELECT rk, modified, properties FROM entities WHERE ", key_matches!(many, ""), " ORDER BY rk FOR UPDATE",
    };
    /// Fails as a whole if one of the rows exists.
    pub const INSERT_MANY: &str = insert!(many, "entities");
    /// Skips existing rows.
    pub const INSERT_MISSING: &str = concat!(insert!(many, "entities"), " ON CONFLICT DO NOTHING");
    pub const UPSERT_MANY: &str = upsert!(many);
    /// $7 and $8 are the same for all rows.
    pub const INSERT_OR_MERGE_MANY: &str = insert_or_merge!(many);

    pub const INSERT_MANY_ROUTED: &str = insert!(many_routed, "entities");
    pub const INSERT_MISSING_ROUTED: &str = concat!(insert!(many_routed, "entities"), " ON CONFLICT DO NOTHING");
    pub const UPSERT_MANY_ROUTED: &str = upsert!(many_routed);
    pub const INSERT_OR_MERGE_MANY_ROUTED: &str = insert_or_merge!(many_routed);

    /// The rows are locked, and their versions known. Without `rk = ANY` beside the join, PostgreSQL would read the
    /// whole partition.
    pub const UPDATE_MANY: &str = concat! {
        "UPDATE entities AS e SET modified = u.modified, properties = u.properties \
         FROM unnest($3::text[], $5::bigint[], $6::jsonb[]) AS u (rk, modified, properties) WHERE ",
        key_matches!(many, "e."), " AND e.rk = u.rk AND ", table_exists!("$4"),
    };
    /// The rows are locked.
    pub const DELETE_MANY: &str =
        concat!("DELETE FROM entities WHERE ", key_matches!(many, ""), " AND ", table_exists!("$4"));
}
