//! The fixed sets of labels.

macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($variant:ident => $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($variant,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub(crate) const COUNT: usize = Self::ALL.len();

            /// The value of the label.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

labels! {
    /// What a request is for. `Unknown` are those that are refused before that
    /// is found out: no such account, no valid signature, no known resource.
    OperationLabel {
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

labels! {
    /// How a request that was not let in wanted to prove who sent it.
    Scheme {
        None => "none",
        SharedKey => "shared_key",
        Signature => "sas",
        Bearer => "bearer",
    }
}
