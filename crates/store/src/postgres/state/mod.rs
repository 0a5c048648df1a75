//! What a server remembers between requests.

pub(crate) mod purge_progress;
pub(crate) mod row_locks;
pub(crate) mod table_ids;
