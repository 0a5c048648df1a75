//! Moving data: copy, verify, count and delete between table endpoints, databases, dumps and files.
//!
//! A [`TransferSource`](contract::TransferSource) is read by ranges of keys, a
//! [`TransferTarget`](contract::TransferTarget) written by pages. Workers share the ranges of a copy through a
//! [`WorkQueue`](work::work_queue::WorkQueue); finished ranges are recorded in a [`Checkpoint`].

pub(crate) mod client;
mod contract;
mod copy;
mod error;
mod formats;
mod locations;
mod opener;
mod rows;
mod survey;
mod verify;
mod work;

pub(crate) use contract::{Counts, Mode, Rejected, TransferSource};
pub(crate) use copy::checkpoint::Checkpoint;
pub(crate) use copy::fingerprint::Fingerprint;
pub(crate) use copy::rejects::Rejects;
pub(crate) use copy::settings::{SettingsRule, SettingsStep, readable};
pub(crate) use copy::{CopyOptions, CopySummary, copy};
pub(crate) use error::TransferError;
pub(crate) use formats::{FileFormat, FileOptions, content_of};
pub(crate) use locations::cosmos::name_problems;
pub(crate) use locations::location::DataLocation;
pub(crate) use opener::{OpenLocation, Opener};
pub(crate) use rows::selection::{NameCase, Selection};
pub(crate) use rows::type_inference::Inferences;
pub(crate) use survey::{PageWalk, Survey};
pub(crate) use verify::{Compared, Comparison, renamed_tables};
pub(crate) use work::progress::{Progress, ProgressForm};
