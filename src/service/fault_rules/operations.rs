//! What rules can say of each operation: what it is about, and which errors it can have without a
//! mistake of the sender. Those of malformed requests need no rule.

use crate::error::Code;
use crate::observe::metrics::OperationLabel::{self, *};

/// Errors that every operation can have.
const OF_ALL: [Code; 8] = [
    Code::InvalidInput,
    Code::AccountIsDisabled,
    Code::AuthenticationFailed,
    Code::AuthorizationFailure,
    Code::AuthorizationPermissionMismatch,
    Code::InternalError,
    Code::OperationTimedOut,
    Code::ServerBusy,
];
const ENTITY_WRITES: [OperationLabel; 6] =
    [InsertEntity, UpdateEntity, MergeEntity, InsertOrReplaceEntity, InsertOrMergeEntity, DeleteEntity];
const EXISTING_ENTITY_WRITES: [OperationLabel; 3] = [UpdateEntity, MergeEntity, DeleteEntity];
/// Operations in a table that exists, besides writes of entities.
const IN_TABLE: [OperationLabel; 4] = [QueryEntities, GetEntity, GetTableAcl, SetTableAcl];
/// Operations with a body, besides writes of entities.
const WITH_BODY: [OperationLabel; 5] =
    [CreateTable, SetTableAcl, SetServiceProperties, EntityGroupTransaction, QueryBatch];

/// The errors of some operations only.
const OF_SOME: [(Code, &[&[OperationLabel]]); 10] = [
    (Code::TableNotFound, &[&IN_TABLE, &ENTITY_WRITES]),
    (Code::TableBeingDeleted, &[&[CreateTable], &IN_TABLE, &ENTITY_WRITES]),
    (Code::TableAlreadyExists, &[&[CreateTable]]),
    (Code::ResourceNotFound, &[&[GetTable, DeleteTable, GetEntity], &EXISTING_ENTITY_WRITES]),
    (Code::EntityAlreadyExists, &[&[InsertEntity]]),
    (Code::UpdateConditionNotSatisfied, &[&EXISTING_ENTITY_WRITES]),
    (Code::ConditionNotMet, &[&EXISTING_ENTITY_WRITES]),
    (Code::EntityTooLarge, &[&[MergeEntity, InsertOrMergeEntity]]),
    (Code::TooManyProperties, &[&[MergeEntity, InsertOrMergeEntity]]),
    (Code::RequestTimedOut, &[&WITH_BODY, &ENTITY_WRITES]),
];

const ON_TABLE: [OperationLabel; 3] = [GetTable, CreateTable, DeleteTable];
const BATCHES: [OperationLabel; 2] = [EntityGroupTransaction, QueryBatch];

/// Whether an operation is about one table.
pub(super) fn has_table(operation: OperationLabel) -> bool {
    [GetTableAcl, SetTableAcl].contains(&operation)
        || ON_TABLE.contains(&operation)
        || has_partition(operation)
}

/// Whether an operation can be about one partition.
pub(super) fn has_partition(operation: OperationLabel) -> bool {
    BATCHES.contains(&operation) || has_row(operation)
}

/// Whether an operation can be about one entity.
pub(super) fn has_row(operation: OperationLabel) -> bool {
    [QueryEntities, GetEntity].contains(&operation) || ENTITY_WRITES.contains(&operation)
}

/// Returns the error of this name, if rules can order it.
pub(super) fn code_of(name: &str) -> Option<Code> {
    let all = OF_ALL.into_iter().chain(OF_SOME.iter().map(|(code, _)| *code));
    all.into_iter().find(|code| code.facts().code == name)
}

/// Whether an operation can have an error; without an operation, whether all can.
pub(super) fn can_have(operation: Option<OperationLabel>, code: Code) -> bool {
    let some = OF_SOME.iter().filter(|(known, _)| *known == code).flat_map(|(_, groups)| groups.iter());
    OF_ALL.contains(&code)
        || operation.is_some_and(|operation| some.into_iter().any(|group| group.contains(&operation)))
}

/// Whether an error of an operation in a batch is the answer to the whole batch: nothing was begun,
/// so that clients, which do not look inside, retry it, or nobody may do anything.
pub(super) const fn ends_batch(code: Code) -> bool {
    matches!(
        code,
        Code::ServerBusy | Code::RequestTimedOut | Code::AuthenticationFailed | Code::AccountIsDisabled
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_rules_can_order_has_a_name_of_its_own() {
        let all: Vec<Code> = OF_ALL.into_iter().chain(OF_SOME.map(|(code, _)| code)).collect();
        for code in &all {
            assert_eq!(code_of(code.facts().code), Some(*code));
        }
        assert_eq!(code_of("NotImplemented"), None);
    }

    #[test]
    fn operations_have_the_errors_that_they_can_have() {
        for (operation, code, expected) in [
            (Some(InsertEntity), Code::EntityAlreadyExists, true),
            (Some(InsertEntity), Code::UpdateConditionNotSatisfied, false),
            (Some(InsertOrReplaceEntity), Code::ResourceNotFound, false),
            (Some(GetServiceStats), Code::ServerBusy, true),
            (Some(EntityGroupTransaction), Code::TableNotFound, false),
            (Some(QueryTables), Code::TableBeingDeleted, false),
            (None, Code::InternalError, true),
            (None, Code::TableNotFound, false),
        ] {
            assert_eq!(can_have(operation, code), expected, "{operation:?} {code:?}");
        }
    }
}
