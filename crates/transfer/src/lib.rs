//! Copies, verifies, counts and deletes entities in Table endpoints, databases, dumps and files.
//!
//! Copies read a [`TransferSource`] in ranges of keys, and write a [`TransferTarget`](contract::TransferTarget) in
//! pages. Workers share the ranges of a copy through a [`WorkQueue`](work::work_queue::WorkQueue); finished ranges are
//! recorded in a [`Checkpoint`].

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

pub mod client;
mod contract;
pub mod copy;
mod error;
mod follow;
mod formats;
mod locations;
mod opener;
mod rejects;
mod rows;
mod survey;
mod verify;
mod work;

pub use contract::{Counts, Mode, Rejected, TransferSource};
pub use copy::checkpoint::{Checkpoint, Fingerprint};
pub use copy::settings::{SettingsRule, SettingsStep, readable};
pub use copy::{CopyOptions, CopySummary, copy};
pub use error::TransferError;
pub use follow::{Follow, FollowOptions, FollowPlaces, FollowProof, FollowRound, FollowedCounts};
pub use formats::{FileFormat, FileOptions, content_of, refuse_unused_account};
pub use locations::location::DataLocation;
pub use opener::{OpenLocation, Opener};
pub use rejects::Rejects;
pub use rows::selection::{NameCase, Selection};
pub use rows::type_inference::Inferences;
pub use survey::{PageWalk, Survey, name_problems};
pub use verify::{Compared, Comparison, renamed_tables};
pub use work::in_parallel;
pub use work::progress::{Progress, ProgressForm};

pub(crate) use rowhouse_protocol as protocol;
pub(crate) use rowhouse_store as store;
