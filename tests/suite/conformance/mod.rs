//! The rules of the protocol, one file a topic.

mod access_patterns;
mod addressing;
mod auth;
mod batch_failures;
mod batch_format;
mod batch_rules;
mod delete;
mod entities_get;
mod entities_insert;
mod etag;
mod filter_grammar;
mod filter_semantics;
mod headers;
mod hostile;
mod json_input;
mod json_output;
mod limits;
mod paging;
mod select_top;
mod tables;
mod types;
mod update_merge;
mod upsert;
mod versions;
