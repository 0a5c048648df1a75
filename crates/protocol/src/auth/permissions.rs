//! Authorization: the permissions of an identity in a table and a range of keys (protocol §10.5, §10.6).

use crate::error::{Code, Result};
use crate::model::{Key, TableName};
use crate::request::OperationLabel::{self, *};

/// The keys from `lower`, inclusive, to `upper`, exclusive, ordered by PartitionKey, then RowKey. An inclusive upper
/// bound is the key with U+0001 appended, because keys contain no control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub lower: Key,
    pub upper: Option<Key>,
}

impl KeyRange {
    /// Builds the range from the inclusive bounds in the fields `spk`, `srk`, `epk` and `erk`.
    pub fn from_bounds(
        start_partition: Option<&str>,
        start_row: Option<&str>,
        end_partition: Option<&str>,
        end_row: Option<&str>,
    ) -> Self {
        let lower = Key::new(start_partition.unwrap_or_default(), start_row.unwrap_or_default());
        let upper = end_partition.map(|partition| match end_row {
            Some(row) => Key::new(partition, format!("{row}\u{1}")),
            None => Key::new(format!("{partition}\u{1}"), ""),
        });
        Self { lower, upper }
    }

    pub fn is_everything(&self) -> bool {
        self.lower.partition.is_empty() && self.lower.row.is_empty() && self.upper.is_none()
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.lower <= *key && self.upper.as_ref().is_none_or(|upper| key < upper)
    }
}

/// The role of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads entities and lists tables.
    Reader,
    /// Also writes entities, and creates and deletes tables.
    Contributor,
}

/// The authenticated sender of a request, with permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A holder of an account key, with all permissions in the account.
    AccountKey,
    /// A holder of a SAS for one table.
    TableSas {
        /// The table's name in lower case.
        table: String,
        permissions: String,
        range: KeyRange,
    },
    /// A holder of a bearer token. Each role applies to the whole account or to one table, whose name is in
    /// lower case.
    Bearer { grants: Vec<(Role, Option<String>)> },
    /// A holder of a SAS for the account.
    AccountSas { permissions: String, resource_types: String },
    /// An operator of the server, on the admin listener.
    Operator { may_write: bool },
}

/// Checks whether `identity` has permission for `operation`, with `table` and `key` if the operation has them. All
/// authorization goes through this function.
///
/// # Errors
/// [`Code::AuthorizationResourceTypeMismatch`], [`Code::AuthorizationPermissionMismatch`], or
/// [`Code::AuthorizationFailure`] outside the table or range of the SAS, and for operations that no table
/// SAS allows. A read outside the range is [`Code::ResourceNotFound`], as if the entity did not exist.
pub fn allows(
    identity: &Identity,
    operation: OperationLabel,
    table: Option<&TableName>,
    key: Option<&Key>,
) -> Result<()> {
    match identity {
        Identity::AccountKey => Ok(()),
        Identity::Operator { may_write } if *may_write || !operation.is_change() => Ok(()),
        Identity::Operator { .. } => Err(Code::AuthorizationPermissionMismatch.into()),
        Identity::Bearer { grants } => check_bearer(grants, operation, table),
        Identity::AccountSas { permissions, resource_types } => {
            check_account_sas(permissions, resource_types, operation, key)
        }
        Identity::TableSas { table: own, permissions, range } => {
            let needed = match operation {
                QueryEntities | GetEntity => "r",
                InsertEntity => "a",
                UpdateEntity | MergeEntity => "u",
                InsertOrReplaceEntity | InsertOrMergeEntity => "au",
                DeleteEntity => "d",
                // No letter of a table SAS covers tables, policies or the service. As recorded, the error
                // differs from that of a missing letter.
                _ => return Err(Code::AuthorizationFailure.into()),
            };
            if table.is_none_or(|table| table.lower() != own) {
                return Err(Code::AuthorizationFailure.into());
            }
            if !has_all(permissions, needed) {
                return Err(Code::AuthorizationPermissionMismatch.into());
            }
            match key {
                Some(key) if !range.contains(key) && !operation.is_change() => {
                    Err(Code::ResourceNotFound.into())
                }
                Some(key) if !range.contains(key) => Err(Code::AuthorizationFailure.into()),
                _ => Ok(()),
            }
        }
    }
}

/// Checks the roles of a bearer token (protocol §10.7). As recorded from Azure, bearer tokens cannot access
/// policies.
fn check_bearer(
    grants: &[(Role, Option<String>)],
    operation: OperationLabel,
    table: Option<&TableName>,
) -> Result<()> {
    if matches!(operation, GetTableAcl | SetTableAcl) {
        return Err(Code::ResourceNotFound.into());
    }
    let covers = |own: &Option<String>| match own {
        None => true,
        Some(own) => table.is_some_and(|table| table.lower() == own),
    };
    let granted = grants.iter().filter(|(_, own)| covers(own));
    let suffices = |role: Role| role == Role::Contributor || !operation.is_change();
    if granted.into_iter().any(|(role, _)| suffices(*role)) {
        Ok(())
    } else {
        Err(Code::AuthorizationPermissionMismatch.into())
    }
}

/// Implements the table of protocol §10.6. Entities are objects (`o`); entity queries also accept `c`.
fn check_account_sas(
    permissions: &str,
    resource_types: &str,
    operation: OperationLabel,
    key: Option<&Key>,
) -> Result<()> {
    let (types, alternatives): (&str, &[&str]) = match operation {
        GetServiceProperties | GetServiceStats => ("s", &["r"]),
        SetServiceProperties => ("s", &["w"]),
        QueryTables | GetTable => ("c", &["l"]),
        CreateTable => ("c", &["c", "w"]),
        DeleteTable => ("c", &["d"]),
        QueryEntities | GetEntity if key.is_none() => ("oc", &["r"]),
        QueryEntities | GetEntity => ("o", &["r"]),
        InsertEntity => ("o", &["a"]),
        UpdateEntity | MergeEntity => ("o", &["u"]),
        InsertOrReplaceEntity | InsertOrMergeEntity => ("o", &["au"]),
        DeleteEntity => ("o", &["d"]),
        GetTableAcl | SetTableAcl | Unknown | EntityGroupTransaction | QueryBatch | Preflight => {
            return Err(Code::AuthorizationPermissionMismatch.into());
        }
    };
    if !types.chars().any(|t| resource_types.contains(t)) {
        return Err(Code::AuthorizationResourceTypeMismatch.into());
    }
    if alternatives.iter().any(|needed| has_all(permissions, needed)) {
        Ok(())
    } else {
        Err(Code::AuthorizationPermissionMismatch.into())
    }
}

fn has_all(permissions: &str, needed: &str) -> bool {
    needed.chars().all(|p| permissions.contains(p))
}

impl Identity {
    /// Returns whether the identity is valid at the address of a table. A SAS for a different table is invalid there
    /// (protocol §10.5).
    pub fn is_valid_for_table(&self, table: &str) -> bool {
        match self {
            Identity::TableSas { table: own, .. } => own.eq_ignore_ascii_case(table),
            Identity::AccountKey
            | Identity::AccountSas { .. }
            | Identity::Bearer { .. }
            | Identity::Operator { .. } => true,
        }
    }

    /// Returns the range of keys to which queries are limited.
    pub const fn range(&self) -> Option<&KeyRange> {
        match self {
            Identity::TableSas { range, .. } => Some(range),
            Identity::AccountKey
            | Identity::AccountSas { .. }
            | Identity::Bearer { .. }
            | Identity::Operator { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        identity: &Identity,
        operation: OperationLabel,
        table: &str,
        key: (&str, &str),
    ) -> Option<Code> {
        let table = TableName::parse(table).unwrap();
        allows(identity, operation, Some(&table), Some(&Key::new(key.0, key.1))).err().map(|e| e.code)
    }

    #[test]
    fn table_signatures_reach_their_entities_and_nothing_else() {
        let sas = |permissions: &str| Identity::TableSas {
            table: "abc".into(),
            permissions: permissions.into(),
            range: KeyRange::from_bounds(None, None, None, None),
        };
        for (operation, needed) in [
            (QueryEntities, "r"),
            (GetEntity, "r"),
            (InsertEntity, "a"),
            (UpdateEntity, "u"),
            (MergeEntity, "u"),
            (InsertOrReplaceEntity, "au"),
            (InsertOrMergeEntity, "au"),
            (DeleteEntity, "d"),
        ] {
            assert_eq!(verdict(&sas(needed), operation, "ABC", ("p", "r")), None, "{operation:?}");
            assert_eq!(verdict(&sas(needed), operation, "xyz", ("p", "r")), Some(Code::AuthorizationFailure));
            let others: String = "raud".chars().filter(|c| !needed.contains(*c)).collect();
            let refused = Some(Code::AuthorizationPermissionMismatch);
            assert_eq!(verdict(&sas(&others), operation, "abc", ("p", "r")), refused, "{operation:?}");
        }
        assert!(verdict(&sas("a"), InsertOrMergeEntity, "abc", ("p", "r")).is_some());
        for operation in [
            GetServiceProperties,
            SetServiceProperties,
            GetTableAcl,
            SetTableAcl,
            QueryTables,
            CreateTable,
            DeleteTable,
        ] {
            let refused = Some(Code::AuthorizationFailure);
            assert_eq!(verdict(&sas("raud"), operation, "abc", ("p", "r")), refused, "{operation:?}");
        }
    }

    #[test]
    fn roles_read_or_write_where_they_are_given() {
        let bearer =
            |role, table: Option<&str>| Identity::Bearer { grants: vec![(role, table.map(str::to_owned))] };
        for operation in OperationLabel::ALL {
            let policies = matches!(operation, GetTableAcl | SetTableAcl);
            let allowed =
                |identity: &Identity, table: &str| verdict(identity, operation, table, ("p", "r")).is_none();
            assert_eq!(allowed(&bearer(Role::Contributor, None), "abc"), !policies, "{operation:?}");
            assert_eq!(
                allowed(&bearer(Role::Reader, None), "abc"),
                !operation.is_change() && !policies,
                "{operation:?}"
            );
            assert_eq!(allowed(&bearer(Role::Contributor, Some("abc")), "ABC"), !policies, "{operation:?}");
            assert!(!allowed(&bearer(Role::Contributor, Some("abc")), "xyz"), "{operation:?}");
            assert!(!allowed(&Identity::Bearer { grants: vec![] }, "abc"), "{operation:?}");
        }
        let service = allows(&bearer(Role::Contributor, Some("abc")), QueryTables, None, None);
        assert_eq!(service.unwrap_err().code, Code::AuthorizationPermissionMismatch);
    }

    #[test]
    fn operators_read_everything_and_write_unless_the_console_is_read_only() {
        for operation in OperationLabel::ALL {
            let allowed = |may_write| {
                verdict(&Identity::Operator { may_write }, operation, "abc", ("p", "r")).is_none()
            };
            assert!(allowed(true), "{operation:?}");
            assert_eq!(allowed(false), !operation.is_change(), "{operation:?}");
        }
    }

    #[test]
    fn ranges_are_tuples_with_inclusive_bounds() {
        let range = KeyRange::from_bounds(Some("b"), Some("5"), Some("d"), Some("5"));
        for (partition, row, inside) in [
            ("a", "9", false),
            ("b", "4", false),
            ("b", "5", true),
            ("b", "50", true),
            ("c", "", true),
            ("d", "5", true),
            ("d", "50", false),
            ("d", "6", false),
            ("e", "", false),
        ] {
            assert_eq!(range.contains(&Key::new(partition, row)), inside, "{partition} {row}");
        }
        let whole = KeyRange::from_bounds(Some("b"), None, Some("b"), None);
        assert!(whole.contains(&Key::new("b", "")) && whole.contains(&Key::new("b", "zzz")));
        assert!(!whole.contains(&Key::new("ba", "")) && !whole.contains(&Key::new("a", "zzz")));
        let sas = Identity::TableSas { table: "abc".into(), permissions: "raud".into(), range: whole };
        assert_eq!(verdict(&sas, QueryEntities, "abc", ("c", "r")), Some(Code::ResourceNotFound));
        assert_eq!(verdict(&sas, InsertEntity, "abc", ("c", "r")), Some(Code::AuthorizationFailure));
        assert_eq!(verdict(&sas, InsertEntity, "abc", ("b", "r")), None);
    }

    #[test]
    fn signatures_for_containers_query_entities_and_get_none() {
        let of = |types: &str| Identity::AccountSas { permissions: "r".into(), resource_types: types.into() };
        let table = TableName::parse("abc").unwrap();
        let key = Key::new("p", "r");
        for (types, key, expected) in [
            ("c", None, None),
            ("o", None, None),
            ("s", None, Some(Code::AuthorizationResourceTypeMismatch)),
            ("c", Some(&key), Some(Code::AuthorizationResourceTypeMismatch)),
        ] {
            let outcome = allows(&of(types), QueryEntities, Some(&table), key);
            assert_eq!(outcome.err().map(|error| error.code), expected, "{types} {key:?}");
        }
    }

    #[test]
    fn account_signatures_follow_their_table() {
        let all = "rwdlacu";
        for operation in OperationLabel::ALL {
            for resource_type in ["s", "c", "o"] {
                let sas = |permissions: &str| Identity::AccountSas {
                    permissions: permissions.into(),
                    resource_types: resource_type.into(),
                };
                let (types, needed) = match operation {
                    GetServiceProperties | GetServiceStats => ("s", vec!["r"]),
                    SetServiceProperties => ("s", vec!["w"]),
                    GetTableAcl | SetTableAcl | Unknown | EntityGroupTransaction | QueryBatch | Preflight => {
                        ("", vec![])
                    }
                    QueryTables | GetTable => ("c", vec!["l"]),
                    CreateTable => ("c", vec!["c", "w"]),
                    DeleteTable => ("c", vec!["d"]),
                    QueryEntities | GetEntity => ("o", vec!["r"]),
                    InsertEntity => ("o", vec!["a"]),
                    UpdateEntity | MergeEntity => ("o", vec!["u"]),
                    InsertOrReplaceEntity | InsertOrMergeEntity => ("o", vec!["au"]),
                    DeleteEntity => ("o", vec!["d"]),
                };
                let right_type = types.contains(resource_type) && !types.is_empty();
                assert_eq!(
                    verdict(&sas(all), operation, "abc", ("p", "r")).is_none(),
                    right_type,
                    "{operation:?}"
                );
                for permission in ["r", "w", "d", "l", "a", "c", "u", "au"] {
                    let covers = |needed: &&str| needed.chars().all(|n| permission.contains(n));
                    let expected = right_type && needed.iter().any(covers);
                    let got = verdict(&sas(permission), operation, "abc", ("p", "r")).is_none();
                    assert_eq!(got, expected, "{operation:?} with {permission} on {resource_type}");
                }
            }
        }
    }
}
