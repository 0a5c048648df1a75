//! `rowhouse table respread`: changes a table's number of buckets while clients write to it.
//!
//! 1. The table gets a new number. From then on, servers record the key of every write to the table in the
//!    writing transaction.
//! 2. When all writers that did not record keys have ended, the entities are copied from the source buckets to the
//!    target buckets.
//! 3. The table gets a new number again. When all writers under the former number have ended, their recorded
//!    changes are copied. This step repeats until few changes remain.
//! 4. Source and target are compared.
//! 5. In one transaction, writers of the table wait, the remaining changes are copied, and the table gets the
//!    target's number.
//!
//! The table is served throughout. If the process ends early, writes to the table remain recorded, and another process
//! can resume the respread.

mod outcome;
mod rows;
mod run;
mod state;
mod writers;

pub use outcome::{RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
pub use run::{cancel, respread};
