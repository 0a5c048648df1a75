//! Authorization: the permissions of an identity in a table and a range of keys (protocol §10.5, §10.6).

use crate::error::{Code, Result};
use crate::model::{Key, TableName};

/// The action of a request, by category of permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    ReadService,
    WriteService,
    ReadPolicies,
    WritePolicies,
    ListTables,
    CreateTable,
    DeleteTable,
    ReadEntities,
    InsertEntity,
    UpdateEntity,
    UpsertEntity,
    DeleteEntity,
}

impl Action {
    /// Returns whether the action changes nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Action::ReadService | Action::ReadPolicies | Action::ListTables | Action::ReadEntities)
    }
}

/// The half-open range of keys from `lower` up to, but excluding, `upper`, ordered by PartitionKey, then
/// RowKey. The range represents inclusive bounds exactly, because keys contain no control characters.
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

    /// Returns whether the range contains every key.
    pub fn is_everything(&self) -> bool {
        self.lower.partition.is_empty() && self.lower.row.is_empty() && self.upper.is_none()
    }

    /// Returns whether the range contains a key.
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

/// The sender of a request, with permissions.
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

/// Checks whether `identity` has permission for `action`, with `table` and `key` if the action has them. All
/// authorization goes through this function.
///
/// # Errors
/// [`Code::AuthorizationResourceTypeMismatch`], [`Code::AuthorizationPermissionMismatch`], or
/// [`Code::AuthorizationFailure`] outside the table or range of the SAS, and for actions that no table SAS
/// allows. A read outside the range is [`Code::ResourceNotFound`], as if the entity did not exist.
pub fn allows(
    identity: &Identity,
    action: Action,
    table: Option<&TableName>,
    key: Option<&Key>,
) -> Result<()> {
    match identity {
        Identity::AccountKey => Ok(()),
        Identity::Operator { may_write } if *may_write || action.is_read() => Ok(()),
        Identity::Operator { .. } => Err(Code::AuthorizationPermissionMismatch.into()),
        Identity::Bearer { grants } => bearer(grants, action, table),
        Identity::AccountSas { permissions, resource_types } => {
            account_sas(permissions, resource_types, action, key)
        }
        Identity::TableSas { table: own, permissions, range } => {
            let needed = match action {
                Action::ReadEntities => "r",
                Action::InsertEntity => "a",
                Action::UpdateEntity => "u",
                Action::UpsertEntity => "au",
                Action::DeleteEntity => "d",
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
                Some(key) if !range.contains(key) && action.is_read() => Err(Code::ResourceNotFound.into()),
                Some(key) if !range.contains(key) => Err(Code::AuthorizationFailure.into()),
                _ => Ok(()),
            }
        }
    }
}

/// Checks the roles of a bearer token (protocol §10.7). As recorded from Azure, bearer tokens cannot access
/// policies.
fn bearer(grants: &[(Role, Option<String>)], action: Action, table: Option<&TableName>) -> Result<()> {
    if matches!(action, Action::ReadPolicies | Action::WritePolicies) {
        return Err(Code::ResourceNotFound.into());
    }
    let covers = |own: &Option<String>| match own {
        None => true,
        Some(own) => table.is_some_and(|table| table.lower() == own),
    };
    let granted = grants.iter().filter(|(_, own)| covers(own));
    let enough = |role: Role| role == Role::Contributor || action.is_read();
    if granted.into_iter().any(|(role, _)| enough(*role)) {
        Ok(())
    } else {
        Err(Code::AuthorizationPermissionMismatch.into())
    }
}

/// Implements the table of protocol §10.6. Entities are objects (`o`); entity queries also accept `c`.
fn account_sas(permissions: &str, resource_types: &str, action: Action, key: Option<&Key>) -> Result<()> {
    let (types, alternatives): (&str, &[&str]) = match action {
        Action::ReadService => ("s", &["r"]),
        Action::WriteService => ("s", &["w"]),
        Action::ListTables => ("c", &["l"]),
        Action::CreateTable => ("c", &["c", "w"]),
        Action::DeleteTable => ("c", &["d"]),
        Action::ReadEntities if key.is_none() => ("oc", &["r"]),
        Action::ReadEntities => ("o", &["r"]),
        Action::InsertEntity => ("o", &["a"]),
        Action::UpdateEntity => ("o", &["u"]),
        Action::UpsertEntity => ("o", &["au"]),
        Action::DeleteEntity => ("o", &["d"]),
        Action::ReadPolicies | Action::WritePolicies => {
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
    /// Returns whether the identity is valid at the address of a table. A SAS for a different table is not
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

    fn verdict(identity: &Identity, action: Action, table: &str, key: (&str, &str)) -> Option<Code> {
        let table = TableName::parse(table).unwrap();
        allows(identity, action, Some(&table), Some(&Key::new(key.0, key.1))).err().map(|e| e.code)
    }

    const ACTIONS: [Action; 12] = [
        Action::ReadService,
        Action::WriteService,
        Action::ReadPolicies,
        Action::WritePolicies,
        Action::ListTables,
        Action::CreateTable,
        Action::DeleteTable,
        Action::ReadEntities,
        Action::InsertEntity,
        Action::UpdateEntity,
        Action::UpsertEntity,
        Action::DeleteEntity,
    ];

    #[test]
    fn table_signatures_reach_their_entities_and_nothing_else() {
        let sas = |permissions: &str| Identity::TableSas {
            table: "abc".into(),
            permissions: permissions.into(),
            range: KeyRange::from_bounds(None, None, None, None),
        };
        use Action::*;
        for (action, needed) in [
            (ReadEntities, "r"),
            (InsertEntity, "a"),
            (UpdateEntity, "u"),
            (UpsertEntity, "au"),
            (DeleteEntity, "d"),
        ] {
            assert_eq!(verdict(&sas(needed), action, "ABC", ("p", "r")), None, "{action:?}");
            assert_eq!(verdict(&sas(needed), action, "xyz", ("p", "r")), Some(Code::AuthorizationFailure));
            let others: String = "raud".chars().filter(|c| !needed.contains(*c)).collect();
            let refused = Some(Code::AuthorizationPermissionMismatch);
            assert_eq!(verdict(&sas(&others), action, "abc", ("p", "r")), refused, "{action:?}");
        }
        assert!(verdict(&sas("a"), UpsertEntity, "abc", ("p", "r")).is_some());
        for action in
            [ReadService, WriteService, ReadPolicies, WritePolicies, ListTables, CreateTable, DeleteTable]
        {
            let refused = Some(Code::AuthorizationFailure);
            assert_eq!(verdict(&sas("raud"), action, "abc", ("p", "r")), refused, "{action:?}");
        }
    }

    #[test]
    fn roles_read_or_write_where_they_are_given() {
        let bearer =
            |role, table: Option<&str>| Identity::Bearer { grants: vec![(role, table.map(str::to_owned))] };
        for action in ACTIONS {
            let policies = matches!(action, Action::ReadPolicies | Action::WritePolicies);
            let allowed =
                |identity: &Identity, table: &str| verdict(identity, action, table, ("p", "r")).is_none();
            assert_eq!(allowed(&bearer(Role::Contributor, None), "abc"), !policies, "{action:?}");
            assert_eq!(
                allowed(&bearer(Role::Reader, None), "abc"),
                action.is_read() && !policies,
                "{action:?}"
            );
            assert_eq!(allowed(&bearer(Role::Contributor, Some("abc")), "ABC"), !policies, "{action:?}");
            assert!(!allowed(&bearer(Role::Contributor, Some("abc")), "xyz"), "{action:?}");
            assert!(!allowed(&Identity::Bearer { grants: vec![] }, "abc"), "{action:?}");
        }
        let service = allows(&bearer(Role::Contributor, Some("abc")), Action::ListTables, None, None);
        assert_eq!(service.unwrap_err().code, Code::AuthorizationPermissionMismatch);
    }

    #[test]
    fn operators_read_everything_and_write_unless_the_console_is_read_only() {
        for action in ACTIONS {
            let allowed =
                |may_write| verdict(&Identity::Operator { may_write }, action, "abc", ("p", "r")).is_none();
            assert!(allowed(true), "{action:?}");
            assert_eq!(allowed(false), action.is_read(), "{action:?}");
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
        assert_eq!(verdict(&sas, Action::ReadEntities, "abc", ("c", "r")), Some(Code::ResourceNotFound));
        assert_eq!(verdict(&sas, Action::InsertEntity, "abc", ("c", "r")), Some(Code::AuthorizationFailure));
        assert_eq!(verdict(&sas, Action::InsertEntity, "abc", ("b", "r")), None);
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
            let outcome = allows(&of(types), Action::ReadEntities, Some(&table), key);
            assert_eq!(outcome.err().map(|error| error.code), expected, "{types} {key:?}");
        }
    }

    #[test]
    fn account_signatures_follow_their_table() {
        let all = "rwdlacu";
        for action in ACTIONS {
            for resource_type in ["s", "c", "o"] {
                let sas = |permissions: &str| Identity::AccountSas {
                    permissions: permissions.into(),
                    resource_types: resource_type.into(),
                };
                use Action::*;
                let (types, needed) = match action {
                    ReadService => ("s", vec!["r"]),
                    WriteService => ("s", vec!["w"]),
                    ReadPolicies | WritePolicies => ("", vec![]),
                    ListTables => ("c", vec!["l"]),
                    CreateTable => ("c", vec!["c", "w"]),
                    DeleteTable => ("c", vec!["d"]),
                    ReadEntities => ("o", vec!["r"]),
                    InsertEntity => ("o", vec!["a"]),
                    UpdateEntity => ("o", vec!["u"]),
                    UpsertEntity => ("o", vec!["au"]),
                    DeleteEntity => ("o", vec!["d"]),
                };
                let right_type = types.contains(resource_type) && !types.is_empty();
                assert_eq!(verdict(&sas(all), action, "abc", ("p", "r")).is_none(), right_type, "{action:?}");
                for permission in ["r", "w", "d", "l", "a", "c", "u", "au"] {
                    let covers = |needed: &&str| needed.chars().all(|n| permission.contains(n));
                    let expected = right_type && needed.iter().any(covers);
                    let got = verdict(&sas(permission), action, "abc", ("p", "r")).is_none();
                    assert_eq!(got, expected, "{action:?} with {permission} on {resource_type}");
                }
            }
        }
    }
}
