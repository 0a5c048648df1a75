//! The fixed sets of values that label requests in metrics, logs and traces.

named_enum! {
    /// The operation of a request. `Unknown` labels a request that was refused before the operation was known, because
    /// the account, the signature or the resource was invalid.
    OperationLabel, text {
        Unknown => "Unknown",
        QueryTables => "QueryTables",
        GetTable => "GetTable",
        CreateTable => "CreateTable",
        DeleteTable => "DeleteTable",
        QueryEntities => "QueryEntities",
        GetEntity => "GetEntity",
        InsertEntity => "InsertEntity",
        UpdateEntity => "UpdateEntity",
        MergeEntity => "MergeEntity",
        InsertOrReplaceEntity => "InsertOrReplaceEntity",
        InsertOrMergeEntity => "InsertOrMergeEntity",
        DeleteEntity => "DeleteEntity",
        EntityGroupTransaction => "EntityGroupTransaction",
        QueryBatch => "QueryBatch",
        GetTableAcl => "GetTableAcl",
        SetTableAcl => "SetTableAcl",
        GetServiceProperties => "GetServiceProperties",
        SetServiceProperties => "SetServiceProperties",
        GetServiceStats => "GetServiceStats",
        Preflight => "Preflight",
    }
}

named_enum! {
    /// The authentication scheme of a request that was not authorized.
    Scheme, text {
        None => "none",
        SharedKey => "shared_key",
        Signature => "sas",
        Bearer => "bearer",
    }
}

impl OperationLabel {
    /// Returns whether the operation writes one entity.
    pub(crate) const fn is_entity_write(self) -> bool {
        matches!(
            self,
            Self::InsertEntity
                | Self::UpdateEntity
                | Self::MergeEntity
                | Self::InsertOrReplaceEntity
                | Self::InsertOrMergeEntity
                | Self::DeleteEntity
        )
    }

    /// Returns whether the operation can change stored data.
    pub const fn is_change(self) -> bool {
        match self {
            Self::Unknown
            | Self::QueryTables
            | Self::GetTable
            | Self::QueryEntities
            | Self::GetEntity
            | Self::QueryBatch
            | Self::GetTableAcl
            | Self::GetServiceProperties
            | Self::GetServiceStats
            | Self::Preflight => false,
            Self::CreateTable
            | Self::DeleteTable
            | Self::InsertEntity
            | Self::UpdateEntity
            | Self::MergeEntity
            | Self::InsertOrReplaceEntity
            | Self::InsertOrMergeEntity
            | Self::DeleteEntity
            | Self::EntityGroupTransaction
            | Self::SetTableAcl
            | Self::SetServiceProperties => true,
        }
    }
}
