//! The rules of the protocol, one file a topic.

mod addressing;
mod batch_failures;
mod batch_format;
mod batch_rules;
mod delete;
mod entities_get;
mod entities_insert;
mod etag;
mod tables;
mod update_merge;
mod upsert;
