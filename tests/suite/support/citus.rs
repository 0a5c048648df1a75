//! A database that Citus distributes or, where there is none, a stand-in: the entities
//! partitioned by hash, beside catalogues of the form that Citus has.

use std::sync::LazyLock;

use super::nodes;
use super::postgres::{execute, fresh_database, partition_entities};

/// The columns of the catalogues that servers read. Nothing listens where the nodes are said to be.
pub const CATALOGUES: &str = "CREATE TABLE pg_dist_partition (logicalrelid regclass, partmethod \"char\"); \
     INSERT INTO pg_dist_partition VALUES ('entities', 'h'); \
     CREATE TABLE pg_dist_shard (logicalrelid regclass, shardid bigint, shardmaxvalue text); \
     CREATE TABLE pg_dist_placement (shardid bigint, groupid int); \
     CREATE TABLE pg_dist_local_group (groupid int); \
     CREATE TABLE pg_dist_node \
     (groupid int, nodename text, nodeport int, noderole text, isactive bool, shouldhaveshards bool); \
     INSERT INTO pg_dist_node SELECT n, '127.0.0.1', 1 + n, 'primary', true, true FROM generate_series(0, 2) AS n; \
     INSERT INTO pg_dist_shard SELECT 'entities', n, ((n + 1) * 1073741824::bigint - 2147483649)::text FROM generate_series(0, 3) AS n; \
     INSERT INTO pg_dist_placement SELECT n, 1 + n % 2 FROM generate_series(0, 3) AS n; \
     INSERT INTO pg_dist_local_group VALUES (1)";

static REAL: LazyLock<Option<nodes::Nodes>> = LazyLock::new(nodes::distributed);
static STAND_IN: LazyLock<String> = LazyLock::new(|| {
    println!("there is no Citus here: a database that is partitioned by hash stands in");
    fresh_stand_in()
});

/// A stand-in of its own.
pub fn fresh_stand_in() -> String {
    let url = fresh_database();
    partition_entities(&url);
    execute(&url, CATALOGUES);
    url
}

/// A database of a real cluster, which tests share.
pub fn real() -> Option<&'static nodes::Nodes> {
    REAL.as_ref()
}

/// A distributed database that tests share, or its stand-in.
pub fn distributed_url() -> &'static str {
    match real() {
        Some(nodes) => &nodes.coordinator,
        None => &STAND_IN,
    }
}
