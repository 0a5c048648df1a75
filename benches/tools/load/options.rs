//! What to ask for, of whom, and for how long.

use clap::{Parser, ValueEnum};

/// Loads a Table storage server and prints one line of JSON about it.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// What each request does
    #[arg(value_enum)]
    pub operation: Operation,

    /// The server, with the account if addresses have it as their path
    #[arg(long, default_value = "http://127.0.0.1:10002/devstoreaccount1")]
    pub endpoint: String,

    #[arg(long, default_value = "devstoreaccount1")]
    pub account: String,

    /// The account's key, base64 [default: the well-known one]
    #[arg(
        long,
        default_value = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        hide_default_value = true
    )]
    pub key: String,

    /// How requests are signed
    #[arg(long, value_enum, default_value_t = Scheme::Lite)]
    pub scheme: Scheme,

    #[arg(long, default_value = "load")]
    pub table: String,

    /// Create the table first
    #[arg(long)]
    pub create: bool,

    /// Fill the table first, by transactions
    #[arg(long)]
    pub fill: bool,

    /// Entities that the table is filled with
    #[arg(long, default_value_t = 10_000)]
    pub entities: u64,

    /// Partitions that they are spread over, evenly
    #[arg(long, default_value_t = 10)]
    pub partitions: u64,

    #[arg(long, default_value_t = 1)]
    pub connections: usize,

    /// The query string of `query`
    #[arg(long, default_value = "")]
    pub query: String,

    /// How long to measure
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,

    /// How many requests to measure, however long they take
    #[arg(long)]
    pub requests: Option<u64>,

    /// Seconds of requests before measuring starts
    #[arg(long, default_value_t = 0.2)]
    pub warm_up: f64,

    /// Look at nothing of an answer but its status
    #[arg(long)]
    pub only_status: bool,

    /// The server, whose processor time and memory to report
    #[arg(long)]
    pub server_pid: Option<u32>,

    /// PostgreSQL's first process; its children are counted too. Once for each node of a cluster
    #[arg(long)]
    pub postgres_pid: Vec<u32>,
}

/// What each request does. Entities are of 1 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Creates one table each
    CreateTable,
    /// Inserts what the table is to hold, by transactions of 100, and ends
    Fill,
    /// Gets one entity
    Read,
    /// Inserts a new entity
    Insert,
    /// Replaces an entity if it has the version that was seen last
    ReplaceMatch,
    /// Replaces an entity of any version
    ReplaceAny,
    /// Merges two properties into an entity of any version
    Merge,
    InsertOrReplace,
    InsertOrMerge,
    /// Deletes an entity that was inserted before measuring started
    Delete,
    /// Inserts 100 entities at once
    Transaction,
    /// Replaces 100 entities at once that are there, whatever they are
    TransactionReplace,
    /// Merges all properties into 100 such entities
    TransactionMerge,
    /// Queries a partition: 1000 entities without metadata
    PageNone,
    PageMinimal,
    PageFull,
    /// Queries the table by a property that one entity of ten thousand has
    Filter,
    /// Asks for the page of the table that `--query` describes
    Query,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// SharedKeyLite
    Lite,
    /// SharedKey
    Full,
}

impl Operation {
    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
