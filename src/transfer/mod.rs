//! Moving data: copy, verify, count and delete between table endpoints, databases, dumps and files.
//!
//! A [`TransferSource`](endpoint::TransferSource) is read by ranges of keys, a [`TransferTarget`](endpoint::TransferTarget) written
//! by pages. Workers share the ranges of a copy through a [`Board`](board::Board); finished ranges
//! are recorded in a [`Checkpoint`](checkpoint::Checkpoint).

mod at_once;
mod board;
mod checkpoint;
pub(crate) mod client;
mod compare;
mod copy;
mod count;
mod database;
mod dump;
mod endpoint;
mod existing;
mod foreign;
mod inferred;
mod no_entities;
mod place;
mod progress;
mod range;
mod rejects;
mod remote;
mod renamed;
mod represent;
mod row;
mod selection;
mod settings;
#[cfg(test)]
mod sorted_place;
mod split;

pub(crate) use checkpoint::{Checkpoint, Counts};
pub(crate) use compare::{Compared, Comparison};
pub(crate) use copy::{CopyOptions, CopySummary, copy};
pub(crate) use count::{PageWalk, Survey};
pub(crate) use endpoint::{Mode, Rejected, TransferError, TransferSource};
pub(crate) use foreign::{FileFormat, FileOptions};
pub(crate) use inferred::Inferences;
pub(crate) use place::{Connected, Connecting, Place};
pub(crate) use progress::{Progress, ProgressForm};
pub(crate) use rejects::Rejects;
pub(crate) use renamed::Renamed;
pub(crate) use represent::name_problems;
pub(crate) use selection::Selection;
pub(crate) use settings::{SettingsRule, SettingsStep};
