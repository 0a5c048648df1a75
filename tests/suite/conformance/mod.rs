//! The rules of the protocol, one file a topic.

mod addressing;
mod batch_failures;
mod batch_format;
mod batch_rules;
mod delete;
mod entities_get;
mod entities_insert;
mod etag;
mod filter_grammar;
mod filter_semantics;
mod json_input;
mod json_output;
mod limits;
mod tables;
mod types;
mod update_merge;
mod upsert;
