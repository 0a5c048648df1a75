//! Which of the statements on entities to use: those for one database, or those that Citus sends to the server of one
//! bucket. This is the one place that chooses.

use super as texts;

/// Statements on entities that differ by where the entities are.
pub(crate) struct EntityStatements {
    /// Whether the entities are distributed. A statement is then about one bucket, and one that inserts cannot
    /// check that its table is there.
    pub is_distributed: bool,
    /// The reads of several entities.
    pub read_each: &'static str,
    /// One write.
    pub one: InsertStatements,
    /// Several rows of a partition.
    pub many: InsertStatements,
    /// New rows of a partition, except those that are there.
    pub insert_missing: &'static str,
    /// Several independent writes of one kind.
    pub each: WriteStatements,
}

/// Statements that store new rows.
pub(crate) struct InsertStatements {
    pub insert: &'static str,
    pub upsert: &'static str,
    pub insert_or_merge: &'static str,
}

/// A statement for each kind of write.
pub(crate) struct WriteStatements {
    pub insert: &'static str,
    pub upsert: &'static str,
    pub update: &'static str,
    pub merge: &'static str,
    pub insert_or_merge: &'static str,
    pub delete: &'static str,
}

impl EntityStatements {
    /// The statements for entities that are distributed, or not.
    pub(crate) const fn of(is_distributed: bool) -> &'static Self {
        if is_distributed { &DISTRIBUTED } else { &SINGLE }
    }
}

static SINGLE: EntityStatements = EntityStatements {
    is_distributed: false,
    read_each: texts::READ_EACH,
    one: InsertStatements {
        insert: texts::INSERT,
        upsert: texts::UPSERT,
        insert_or_merge: texts::INSERT_OR_MERGE,
    },
    many: InsertStatements {
        insert: texts::INSERT_MANY,
        upsert: texts::UPSERT_MANY,
        insert_or_merge: texts::INSERT_OR_MERGE_MANY,
    },
    insert_missing: texts::INSERT_MISSING,
    each: WriteStatements {
        insert: texts::INSERT_EACH,
        upsert: texts::UPSERT_EACH,
        update: texts::UPDATE_EACH,
        merge: texts::MERGE_EACH,
        insert_or_merge: texts::INSERT_OR_MERGE_EACH,
        delete: texts::DELETE_EACH,
    },
};

static DISTRIBUTED: EntityStatements = EntityStatements {
    is_distributed: true,
    read_each: texts::READ_IN_BUCKET,
    one: InsertStatements {
        insert: texts::INSERT_ROUTED,
        upsert: texts::UPSERT_ROUTED,
        insert_or_merge: texts::INSERT_OR_MERGE_ROUTED,
    },
    many: InsertStatements {
        insert: texts::INSERT_MANY_ROUTED,
        upsert: texts::UPSERT_MANY_ROUTED,
        insert_or_merge: texts::INSERT_OR_MERGE_MANY_ROUTED,
    },
    insert_missing: texts::INSERT_MISSING_ROUTED,
    each: WriteStatements {
        insert: texts::INSERT_IN_BUCKET,
        upsert: texts::UPSERT_IN_BUCKET,
        update: texts::UPDATE_IN_BUCKET,
        merge: texts::MERGE_IN_BUCKET,
        insert_or_merge: texts::INSERT_OR_MERGE_IN_BUCKET,
        delete: texts::DELETE_IN_BUCKET,
    },
};
