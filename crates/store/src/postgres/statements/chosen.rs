//! Chooses the statements on entities: those for one database, or those that Citus routes to the server of one
//! bucket. No other module makes this choice.

use super as texts;

/// Statements on entities that depend on the distribution of the entities.
pub(crate) struct EntityStatements {
    /// Whether the entities are distributed. Each statement is then for one bucket, and a statement that inserts
    /// cannot check the existence of its table.
    pub is_distributed: bool,
    /// Several point reads.
    pub read_each: &'static str,
    /// One write.
    pub one: InsertStatements,
    pub many: InsertStatements,
    /// Inserts the missing rows of a partition.
    pub insert_missing: &'static str,
    /// Several independent writes of one kind.
    pub each: WriteStatements,
}

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
