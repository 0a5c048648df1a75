//! Settings: stored access policies, and service properties with their CORS rules.

use std::collections::BTreeSet;

use crate::contract::Mode;
use crate::error::{TransferError, TransferResult};
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;

#[derive(Debug, Clone, Copy)]
pub struct SettingsRule {
    pub mode: Mode,
    /// Whether settings that the source lacks are removed.
    pub delete_extra: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsStep {
    /// The setting is the same in both places.
    Unchanged,
    Set,
    /// The setting differs and is kept: a copy does not restore revoked access.
    Keep,
}

impl SettingsRule {
    pub fn step_for_policies(self, ours: &[Policy], theirs: &[Policy], is_new: bool) -> SettingsStep {
        self.step(same_policies(ours, theirs), ours.is_empty(), is_new)
    }

    pub fn step_for_properties(
        self,
        ours: &ServiceProperties,
        theirs: &ServiceProperties,
        is_new: bool,
    ) -> SettingsStep {
        self.step(same_properties(ours, theirs), ours.cors.as_ref().is_none_or(Vec::is_empty), is_new)
    }

    fn step(self, is_same: bool, is_empty: bool, is_new: bool) -> SettingsStep {
        let changes = matches!(self.mode, Mode::Merge | Mode::Replace);
        match is_same {
            true => SettingsStep::Unchanged,
            false if is_new || (is_empty && self.delete_extra) => SettingsStep::Set,
            false if changes && !is_empty => SettingsStep::Set,
            false => SettingsStep::Keep,
        }
    }
}

/// Whether two lists of policies are equal in any order.
pub(crate) fn same_policies(a: &[Policy], b: &[Policy]) -> bool {
    a.len() == b.len() && a.iter().all(|policy| b.contains(policy))
}

/// Whether service properties are equal; fields that either side omits are ignored.
pub(crate) fn same_properties(a: &ServiceProperties, b: &ServiceProperties) -> bool {
    fn same<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
        a.is_none() || b.is_none() || a == b
    }
    a.cors.clone().unwrap_or_default() == b.cors.clone().unwrap_or_default()
        && same(&a.logging, &b.logging)
        && same(&a.hour_metrics, &b.hour_metrics)
        && same(&a.minute_metrics, &b.minute_metrics)
}

/// Returns a setting if the place has it and the credentials allow reading it; otherwise adds the reason to
/// `unread`.
pub fn readable<T>(
    read: TransferResult<Option<T>>,
    what: &str,
    unread: &mut BTreeSet<String>,
) -> TransferResult<Option<T>> {
    match read {
        Err(TransferError::NotAllowed(reason)) => {
            unread.insert(format!("{what} were not read: {reason}"));
            Ok(None)
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_changed_as_entities_are() {
        let step = |mode, delete_extra, is_empty, is_new| {
            SettingsRule { mode, delete_extra }.step(false, is_empty, is_new)
        };
        for mode in [Mode::Insert, Mode::Skip] {
            assert_eq!(step(mode, false, false, false), SettingsStep::Keep);
            assert_eq!(step(mode, true, false, false), SettingsStep::Keep);
            assert_eq!(step(mode, false, false, true), SettingsStep::Set);
            assert_eq!(step(mode, true, true, false), SettingsStep::Set);
        }
        for mode in [Mode::Merge, Mode::Replace] {
            assert_eq!(step(mode, false, false, false), SettingsStep::Set);
            assert_eq!(step(mode, false, true, false), SettingsStep::Keep);
            assert_eq!(step(mode, true, true, false), SettingsStep::Set);
        }
    }
}
