//! Authenticates requests with the account keys, the issuer's keys and the stored policies. Authorizes every plan,
//! every write of a change set and every row of a query before it reaches the store.

use super::Service;
use crate::error::{Code, Error, Result};
use crate::protocol::auth::{self, AccountSet, Credentials, Identity, allows, sas};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::model::{Key, TableName, Ticks};
use crate::protocol::plan::{ChangeSet, Plan, span};
use crate::protocol::request::options::Options;
use crate::protocol::request::{Head, OperationLabel, Target};
use crate::store::Store;

impl Service {
    /// Authenticates the sender of a request.
    pub(super) async fn authenticate(
        &self,
        head: &Head<'_>,
        options: &Options<'_>,
        target: &Target,
        accounts: &AccountSet,
        now: Ticks,
    ) -> Result<Identity> {
        match auth::credentials(head, options, target, accounts, now)? {
            Credentials::Verified(identity) => Ok(identity),
            Credentials::Signature(claim) => {
                let usage = sas::Use { now, secure: head.secure, peer: head.peer };
                self.verify_sas(&claim, target, accounts, &usage).await
            }
            Credentials::Token(token) => {
                let issuer = self.issuer.as_ref().ok_or(Code::TokenRefused)?;
                Box::pin(issuer.identify(&token, &target.account, head.secure, now)).await
            }
        }
    }

    /// Verifies a SAS, which may need the stored policies of its table.
    async fn verify_sas(
        &self,
        claim: &sas::Claim,
        target: &Target,
        accounts: &AccountSet,
        usage: &sas::Use,
    ) -> Result<Identity> {
        let keys = accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
        let policies = match claim.policy() {
            None => Vec::new(),
            Some((table, _)) => {
                // The signature is checked first, because unauthenticated clients must not occupy database connections.
                claim.signed_by(&target.account, keys)?;
                Box::pin(stored_policies(self.store_of(target), &target.account, table)).await?
            }
        };
        let identity = claim.verify(&target.account, keys, &policies, usage)?;
        match target.resource.table() {
            Some(table) if !identity.is_valid_for_table(table) => {
                Err(Error::from(Code::AuthenticationFailed)
                    .with_reason("tn names a different table than the address"))
            }
            _ => Ok(identity),
        }
    }
}

/// Reads the policies of a table. A missing table has none.
pub(crate) async fn stored_policies(store: &Store, account: &str, table: &TableName) -> Result<Vec<Policy>> {
    match store.policies(table.in_account(account)).await.map_err(Error::from) {
        Ok(stored) => stored.map_or(Ok(Vec::new()), |text| policies::from_stored(&text)),
        Err(error) if error.code == Code::TableNotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Refuses operations for which the identity has no permission, and narrows a query to the keys that it may read.
///
/// # Errors
/// Those of [`allows`]; [`Code::WriteOnSecondary`]; [`Code::NotImplemented`] for an order by a property
/// if the identity may read only a range of keys.
pub(crate) fn authorize(identity: &Identity, target: &Target, plan: Plan) -> Result<Plan> {
    let (operation, table, key) = plan.authorization_scope();
    check(identity, target, operation, table, key)?;
    narrow_to_range(identity, plan)
}

/// Refuses a change set if the identity has no permission for one of its writes.
pub(crate) fn authorize_change_set(
    identity: &Identity,
    target: &Target,
    set: ChangeSet,
) -> Result<ChangeSet> {
    for (index, write) in set.writes.iter().enumerate() {
        let checked = check(identity, target, write.kind.label(), Some(&set.table), Some(&write.key));
        checked.map_err(|error| error.at(index))?;
    }
    Ok(set)
}

fn check(
    identity: &Identity,
    target: &Target,
    operation: OperationLabel,
    table: Option<&TableName>,
    key: Option<&Key>,
) -> Result<()> {
    if target.secondary && operation.is_change() {
        return Err(Code::WriteOnSecondary.into());
    }
    allows(identity, operation, table, key)
}

/// Adds the key range of a SAS to the spans, and so to the statement's WHERE clause. An order by a property
/// reads the index of the whole table, so its continuation tokens would reveal keys and values of entities
/// outside the range.
fn narrow_to_range(identity: &Identity, plan: Plan) -> Result<Plan> {
    match (plan, identity.range()) {
        (Plan::QueryEntities { scan, .. }, Some(range)) if scan.by.is_some() && !range.is_everything() => {
            let reason = "a SAS with a range of keys has the order of keys alone";
            Err(Error::from(Code::NotImplemented).with_reason(reason))
        }
        (Plan::QueryEntities { table, mut scan, select }, Some(range)) => {
            scan.spans = span::within(scan.spans, &range.lower, range.upper.as_ref());
            Ok(Plan::QueryEntities { table, scan, select })
        }
        (plan, _) => Ok(plan),
    }
}
