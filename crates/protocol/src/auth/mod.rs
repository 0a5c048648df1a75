//! Authentication and authorization (protocol §10).

pub mod accounts;
pub mod bearer;
pub mod explain_sas;
pub mod issue;
pub mod key_encryption;
pub mod permissions;
pub mod sas;
pub(crate) mod shared_key;

pub use accounts::AccountSet;
pub use permissions::{Identity, allows};

use crate::error::{Code, Error, Result};
use crate::model::Ticks;
use crate::request::head::{WITH_BEARER, WITH_CHALLENGE};
use crate::request::options::Options;
use crate::request::{Head, Resource, Target};

/// The credentials of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The identity, already verified.
    Verified(Identity),
    /// A bearer token, still to be verified with the issuer's keys.
    Token(String),
    /// A SAS. Its verification may first need a stored policy.
    Signature(sas::Claim),
}

/// Reads the credentials of a request, and verifies them unless the verification needs stored data or the
/// issuer's keys.
///
/// # Errors
/// [`Code::AccountIsDisabled`]; [`Code::NoCredentials`], [`Code::TokenRefused`] or
/// [`Code::AuthenticationFailed`] without credentials, depending on the version;
/// [`Code::InvalidAuthenticationInfo`] for a malformed header; [`Code::AuthenticationFailed`] for a wrong
/// signature, a date off by more than 15 minutes, or a bearer token in a version without bearer tokens.
pub fn credentials(
    head: &Head,
    options: &Options,
    target: &Target,
    accounts: &AccountSet,
    now: Ticks,
) -> Result<Credentials> {
    if accounts.is_disabled(&target.account) {
        return Err(Code::AccountIsDisabled.into());
    }
    let Some(header) = head.header("authorization") else {
        return sas_credentials(head, options, target);
    };
    if let Some((scheme, token)) = header.trim().split_once(' ')
        && scheme.eq_ignore_ascii_case("bearer")
    {
        if !supports_bearer(head) {
            return Err(Error::from(Code::AuthenticationFailed)
                .with_reason("bearer tokens need x-ms-version 2017-11-09 or newer"));
        }
        return Ok(Credentials::Token(token.trim().to_owned()));
    }
    let credentials = shared_key::AuthorizationHeader::parse(header)?;
    let keys = accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
    shared_key::verify(&credentials, head, target, keys, now)?;
    Ok(Credentials::Verified(Identity::AccountKey))
}

/// Returns whether the version of a request supports bearer tokens, according to the documentation. As recorded, a
/// request without a version does not.
fn supports_bearer(head: &Head) -> bool {
    head.version().is_ok_and(|version| version.is_named() && version.at_least(WITH_BEARER))
}

fn sas_credentials(head: &Head, options: &Options, target: &Target) -> Result<Credentials> {
    match sas::Claim::read(options)? {
        Some(claim) => Ok(Credentials::Signature(claim)),
        None => Err(missing_credentials_error(head, options, target)),
    }
}

/// Returns the error of a request without credentials. As recorded from Azure, the error of operations with XML bodies
/// differs from the error of operations on tables and entities (recorded for `comp=stats` only).
fn missing_credentials_error(head: &Head, options: &Options, target: &Target) -> Error {
    match head.version() {
        Ok(version) if version.is_named() && version.at_least(WITH_CHALLENGE) => {
            match options.any_case("comp") {
                None => Code::NoCredentials.into(),
                Some(_) => Code::TokenRefused.into(),
            }
        }
        // As recorded from Azure: only the parts of the batch have signatures.
        _ if target.resource == Resource::Batch => Error::from(Code::ResourceNotFound)
            .with_reason("a batch has neither an Authorization header nor a signature in its own query"),
        _ => Error::from(Code::AuthenticationFailed)
            .with_reason("there is neither an Authorization header nor a signature in the query"),
    }
}
