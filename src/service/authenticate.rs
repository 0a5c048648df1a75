//! Authentication: verifies the credentials of a request with the account keys, the issuer's keys and the
//! stored policies.

use super::Service;
use crate::error::{Code, Error, Result};
use crate::protocol::auth::{self, AccountSet, Credentials, Identity, sas};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::request::options::Options;
use crate::protocol::request::{Head, Target};
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
                self.verify(&claim, target, accounts, &usage).await
            }
            Credentials::Token(token) => {
                let issuer = self.issuer.as_ref().ok_or(Code::TokenRefused)?;
                Box::pin(issuer.identify(&token, &target.account, head.secure, now)).await
            }
        }
    }

    /// Verifies a SAS, which may need the stored policies of its table.
    async fn verify(
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
                // Unauthenticated clients must not occupy database connections.
                claim.signed_by(&target.account, keys)?;
                Box::pin(stored_policies(self.store_of(target), &target.account, table)).await?
            }
        };
        let identity = claim.verify(&target.account, keys, &policies, usage)?;
        match target.resource.table() {
            Some(table) if !identity.is_valid_for_table(table) => {
                Err(Error::from(Code::AuthenticationFailed)
                    .with_reason("tn names another table than the address"))
            }
            _ => Ok(identity),
        }
    }
}

/// Reads the policies of a table. Returns none if the table does not exist.
pub(crate) async fn stored_policies(store: &Store, account: &str, table: &TableName) -> Result<Vec<Policy>> {
    match store.policies(table.in_account(account)).await.map_err(Error::from) {
        Ok(stored) => stored.map_or(Ok(Vec::new()), |text| policies::from_stored(&text)),
        Err(error) if error.code == Code::TableNotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
