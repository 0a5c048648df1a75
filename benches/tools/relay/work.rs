//! What is asked of the database for each request.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::database::{NAME, push_message, push_text};

const READ: &str = "SELECT e.modified, e.properties FROM tables t \
     LEFT JOIN entities e ON e.bucket = $1 AND e.pk = $2 AND e.rk = $3 WHERE t.table_no = $4";
/// The first 1000 entities of a partition, and the one after them.
const PAGE: &str = "SELECT pk, rk, modified, properties FROM entities \
     WHERE bucket = $1 AND (pk, rk) >= ($2, '') AND (pk, rk) < ($3, '') \
     AND EXISTS (SELECT 1 FROM tables WHERE table_no = $4) ORDER BY pk, rk LIMIT 1001";
const TRANSACTION: &str = "INSERT INTO entities (bucket, pk, rk, modified, properties) \
     SELECT $1, $2, unnest($3::text[]), unnest($5::bigint[]), unnest($6::jsonb[]) \
     WHERE EXISTS (SELECT 1 FROM tables WHERE table_no = $4)";

const INT8: u32 = 20;
const TEXT: u32 = 25;
const JSONB: u32 = 3802;
const INT8_ARRAY: u32 = 1016;
const TEXT_ARRAY: u32 = 1009;
const JSONB_ARRAY: u32 = 3807;

/// The version of jsonb's binary form, which comes before its text.
const JSONB_VERSION: u8 = 1;
/// Entities of a transaction.
const CHANGE_SET: u64 = 100;
/// Partitions of transactions have 15 digits.
const FIRST_PARTITION: u64 = 100_000_000_000_000;

/// How many transactions there were.
static SERIAL: AtomicU64 = AtomicU64::new(0);

pub enum Work {
    /// The same messages each time.
    Look { statement: &'static str, round: Vec<u8> },
    /// A change set of new entities, each time in another partition.
    Insert { round: Vec<u8>, partition: usize, first: u64 },
}

impl Work {
    pub fn new(operation: &str, values: &[String]) -> io::Result<Self> {
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        match (operation, values.as_slice()) {
            ("read", key @ [_, _, _, _]) => Ok(Self::Look { statement: READ, round: round(key, &[]) }),
            ("page", span @ [_, _, _, _]) => Ok(Self::Look { statement: PAGE, round: round(span, &[]) }),
            ("transaction", [bucket, table, properties]) => Ok(Self::insert(bucket, table, properties)),
            _ => Err(io::Error::other("no such operation, or not its values")),
        }
    }

    fn insert(bucket: &[u8], table: &[u8], properties: &[u8]) -> Self {
        let first =
            std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() % 1_000_000 * 100_000_000);
        let rows = array(TEXT, |n| (1_000_000 + n).to_string().into_bytes());
        let versions = array(INT8, |n| (639_000_000_000_000_000 + n).to_be_bytes().to_vec());
        let documents = array(JSONB, |_| [&[JSONB_VERSION], properties].concat());
        let partition = FIRST_PARTITION.to_string();
        let values = [bucket, partition.as_bytes(), &rows, table, &versions, &documents];
        let round = round(&values, &[0, 0, 1, 0, 1, 1]);
        let partition = memchr::memmem::find(&round, partition.as_bytes()).unwrap_or_default();
        Self::Insert { round, partition, first }
    }

    pub const fn statement(&self) -> &'static str {
        match self {
            Self::Look { statement, .. } => statement,
            Self::Insert { .. } => TRANSACTION,
        }
    }

    /// Of its parameters, where they cannot be told from the statement.
    pub const fn types(&self) -> &'static [u32] {
        match self {
            Self::Look { .. } => &[],
            Self::Insert { .. } => &[INT8, TEXT, TEXT_ARRAY, INT8, INT8_ARRAY, JSONB_ARRAY],
        }
    }

    /// Of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Look { .. } => 200,
            Self::Insert { .. } => 202,
        }
    }

    /// The messages for the next request.
    pub fn next(&mut self) -> &[u8] {
        match self {
            Self::Look { round, .. } => round,
            Self::Insert { round, partition, first } => {
                let serial = *first + SERIAL.fetch_add(1, Ordering::Relaxed);
                let name = (FIRST_PARTITION + serial).to_string();
                round[*partition..][..name.len()].copy_from_slice(name.as_bytes());
                round
            }
        }
    }
}

/// Bind, execute and sync. The results are to come in their binary form.
fn round(values: &[&[u8]], formats: &[u16]) -> Vec<u8> {
    let mut bind = Vec::new();
    push_text(&mut bind, "");
    push_text(&mut bind, NAME);
    bind.extend((formats.len() as u16).to_be_bytes());
    bind.extend(formats.iter().flat_map(|format| format.to_be_bytes()));
    bind.extend((values.len() as u16).to_be_bytes());
    for value in values {
        push_value(&mut bind, value);
    }
    bind.extend([0, 1, 0, 1]);
    let mut round = Vec::new();
    push_message(&mut round, b'B', &bind);
    push_message(&mut round, b'E', &[0; 5]);
    push_message(&mut round, b'S', &[]);
    round
}

/// The binary form of an array of one dimension, without nulls.
fn array(element: u32, value: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let head = [1, 0, element, CHANGE_SET as u32, 1];
    let mut out: Vec<u8> = head.iter().flat_map(|number| number.to_be_bytes()).collect();
    for n in 0..CHANGE_SET {
        push_value(&mut out, &value(n));
    }
    out
}

fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    out.extend((value.len() as u32).to_be_bytes());
    out.extend(value);
}
