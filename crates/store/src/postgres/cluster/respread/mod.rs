//! `rowhouse table respread`: changes the number of buckets of a table while it is written to.
//!
//! 1. The table gets another number. From then on, servers record the key of everything that they write
//!    to it, in the transaction that writes.
//! 2. Once writers that did not record have ended, the entities are copied from the buckets of the source
//!    to those of the target.
//! 3. The table gets another number again. Once writers under the former one have ended, what they have
//!    recorded is copied. This is repeated until little is left.
//! 4. Source and target are compared.
//! 5. In one transaction, writers of the table wait, the rest is copied, and the table gets the number of
//!    the target.
//!
//! Whatever happens meanwhile, the table is served. A process that ends early leaves a table whose writes
//! are recorded, with which another goes on.

mod outcome;
mod rows;
mod run;
mod state;
mod writers;

pub use outcome::{RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
pub use run::{cancel, respread};
