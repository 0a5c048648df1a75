//! The statements of writes, by where the entities are.

use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::placement::Placement;
use crate::store::postgres::fault::StatementError;
use crate::store::postgres::state::table_ids::{TableId, allows_inserts};
use crate::store::postgres::statements;

/// The texts of one form, which do several writes of one kind.
pub(crate) struct RoundTexts {
    pub insert: &'static str,
    pub upsert: &'static str,
    pub update: &'static str,
    pub merge: &'static str,
    pub insert_or_merge: &'static str,
    pub delete: &'static str,
}

impl RoundTexts {
    /// The form for rounds where the entities are placed so.
    pub(crate) const fn of(placement: Placement) -> Self {
        match placement {
            Placement::Single => EACH,
            Placement::Distributed => IN_BUCKET,
        }
    }
}

/// Of writes of any buckets.
const EACH: RoundTexts = RoundTexts {
    insert: statements::INSERT_EACH,
    upsert: statements::UPSERT_EACH,
    update: statements::UPDATE_EACH,
    merge: statements::MERGE_EACH,
    insert_or_merge: statements::INSERT_OR_MERGE_EACH,
    delete: statements::DELETE_EACH,
};
/// Of writes of one bucket.
const IN_BUCKET: RoundTexts = RoundTexts {
    insert: statements::INSERT_IN_BUCKET,
    upsert: statements::UPSERT_IN_BUCKET,
    update: statements::UPDATE_IN_BUCKET,
    merge: statements::MERGE_IN_BUCKET,
    insert_or_merge: statements::INSERT_OR_MERGE_IN_BUCKET,
    delete: statements::DELETE_IN_BUCKET,
};

/// The texts that store new rows of a partition.
pub(crate) struct InsertTexts {
    pub insert: &'static str,
    pub insert_missing: &'static str,
    pub upsert: &'static str,
    pub insert_or_merge: &'static str,
}

impl InsertTexts {
    /// Those of the placement; `None` if the table is gone, where the texts do not look.
    pub(crate) async fn of(lease: &mut Lease<'_>, table_id: TableId) -> Result<Option<Self>, StatementError> {
        if !allows_inserts(lease, table_id).await? {
            return Ok(None);
        }
        Ok(Some(match lease.placement() {
            Placement::Single => Self {
                insert: statements::INSERT_MANY,
                insert_missing: statements::INSERT_MISSING,
                upsert: statements::UPSERT_MANY,
                insert_or_merge: statements::INSERT_OR_MERGE_MANY,
            },
            Placement::Distributed => Self {
                insert: statements::INSERT_MANY_ROUTED,
                insert_missing: statements::INSERT_MISSING_ROUTED,
                upsert: statements::UPSERT_MANY_ROUTED,
                insert_or_merge: statements::INSERT_OR_MERGE_MANY_ROUTED,
            },
        }))
    }
}
