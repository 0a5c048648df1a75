//! `rowhouse copy`, `follow`, `verify`, `count` and `delete-where`.

mod arguments;
mod copying;
mod counting;
mod following;
mod rejected;
mod verifying;

pub(super) use arguments::require_confirmation;
pub(crate) use copying::CopyArguments;
pub(crate) use counting::{CountArguments, DeleteArguments};
pub(crate) use following::FollowArguments;
pub(crate) use verifying::VerifyArguments;

pub(crate) use copying::run as copy;
pub(crate) use counting::{count, delete_where};
pub(crate) use following::run as follow;
pub(crate) use verifying::run as verify;
