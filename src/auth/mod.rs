//! Who is asking, and may they (protocol §10).

pub mod accounts;
pub mod shared_key;

pub use accounts::AccountSet;

use crate::error::{Code, Error, Result};
use crate::model::Ticks;
use crate::request::head::CHALLENGE;
use crate::request::{Head, Operation, Target};

/// Who a request comes from, and with it what the request may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A holder of one of the account's keys, who may do everything in it.
    AccountKey,
}

/// Establishes who sent a request.
///
/// # Errors
/// [`Code::NoCredentials`] or [`Code::AuthenticationFailed`] without
/// credentials, depending on the version; [`Code::InvalidAuthenticationInfo`]
/// for a header of no known form; [`Code::AuthenticationFailed`] for a wrong
/// signature or a date off by more than 15 minutes; [`Code::NotImplemented`] for
/// signatures and tokens that Rowhouse does not read yet.
pub fn authenticate(head: &Head, target: &Target, accounts: &AccountSet, now: Ticks) -> Result<Identity> {
    let Some(header) = head.header("authorization") else {
        return Err(without_credentials(head));
    };
    if header.split(' ').next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
        return Err(Code::NotImplemented.into());
    }
    let credentials = shared_key::Credentials::parse(header)?;
    let keys = accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
    shared_key::verify(&credentials, head, target, keys, now)?;
    Ok(Identity::AccountKey)
}

fn without_credentials(head: &Head) -> Error {
    let has_signature = head.query.split('&').any(|parameter| parameter.starts_with("sig="));
    if has_signature {
        return Code::NotImplemented.into();
    }
    match head.version() {
        Ok(version) if version.is_named() && version.at_least(CHALLENGE) => Code::NoCredentials.into(),
        _ => Code::AuthenticationFailed.into(),
    }
}

/// The one door: whether `identity` may do `operation` where `target` says.
///
/// # Errors
/// [`Code::WriteOnSecondary`] for writes on the secondary address.
pub fn allows(identity: &Identity, target: &Target, operation: &Operation) -> Result<()> {
    match identity {
        Identity::AccountKey if target.secondary && !operation.is_read() => {
            Err(Code::WriteOnSecondary.into())
        }
        Identity::AccountKey => Ok(()),
    }
}
