//! Keys and entities. Keys are numbers of a fixed width, so that pgbench, which
//! knows numbers only, can name them too.

use std::fmt;
use std::io::Write as _;

/// Bytes of an entity's JSON, as sent.
pub const SIZE: usize = 1024;
/// Digits of the texts that differ between entities.
const TEXT: usize = 150;
/// Entities of a transaction.
pub const CHANGE_SET: u64 = 100;
const FIRST_PARTITION: u64 = 100_000;
const FIRST_ROW: u64 = 1_000_000;
/// Rows of entities that are inserted while measuring have 15 digits.
const FIRST_NEW: u64 = 100_000_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub partition: u64,
    pub row: u64,
}

/// What follows the table in an entity's address.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(PartitionKey='{}',RowKey='{}')", self.partition, self.row)
    }
}

/// How a table's entities are spread over partitions.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub partitions: u64,
    /// Entities of each partition.
    pub each: u64,
}

impl Layout {
    pub fn new(entities: u64, partitions: u64) -> Self {
        let partitions = partitions.max(1);
        Self { partitions, each: (entities / partitions).max(1) }
    }

    pub fn entities(self) -> u64 {
        self.partitions * self.each
    }

    pub fn key(self, serial: u64) -> Key {
        Key { partition: FIRST_PARTITION + serial / self.each, row: FIRST_ROW + serial % self.each }
    }

    pub fn partition(self, number: u64) -> u64 {
        FIRST_PARTITION + number % self.partitions
    }

    /// The serial numbers of the change set with this number, `None` past the
    /// last.
    pub fn change_set(self, number: u64) -> Option<std::ops::Range<u64>> {
        let of_partition = self.each.div_ceil(CHANGE_SET);
        let partition = number / of_partition;
        if partition >= self.partitions {
            return None;
        }
        let from = (number % of_partition) * CHANGE_SET;
        let start = partition * self.each;
        Some(start + from..start + (from + CHANGE_SET).min(self.each))
    }
}

/// A row that was not there before, most likely.
pub fn new_row(random: u64) -> u64 {
    FIRST_NEW + random % (9 * FIRST_NEW)
}

/// Ten properties of six types, with 1 KiB of JSON in all. Written by hand, because
/// the client's time is taken from the same processors as the server's.
pub fn write(out: &mut Vec<u8>, key: Key, serial: u64) {
    let start = out.len();
    let numbers: [(&[u8], u64); 5] = [
        (b"{\"PartitionKey\":\"", key.partition),
        (b"\",\"RowKey\":\"", key.row),
        (b"\",\"Serial\":", serial % 1_000_000_000),
        (b",\"Age\":", serial % 10_000),
        (
            if serial.is_multiple_of(2) {
                b",\"Active\":true,\"Score\":"
            } else {
                b",\"Active\":false,\"Score\":"
            },
            serial % 1000,
        ),
    ];
    for (before, number) in numbers {
        out.extend_from_slice(before);
        push_number(out, number, 1);
    }
    out.extend_from_slice(b".5,\"Total@odata.type\":\"Edm.Int64\",\"Total\":\"");
    push_number(out, serial, 1);
    out.extend_from_slice(
        b"\",\"Seen@odata.type\":\"Edm.DateTime\",\"Seen\":\"2026-01-01T00:00:00Z\",\"T1\":\"",
    );
    push_number(out, serial.wrapping_mul(3), TEXT);
    out.extend_from_slice(b"\",\"T2\":\"");
    push_number(out, serial.wrapping_mul(5), TEXT);
    out.extend_from_slice(b"\",\"T3\":\"");
    push_number(out, serial.wrapping_mul(7), TEXT);
    out.extend_from_slice(b"\",\"T4\":\"");
    out.resize(start + SIZE - 2, b'x');
    out.extend_from_slice(b"\"}");
}

/// Digits, at least so many; zeros come before them.
fn push_number(out: &mut Vec<u8>, number: u64, digits: usize) {
    let needed = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    out.resize(out.len() + digits.max(needed), b'0');
    let mut left = number;
    for digit in out.iter_mut().rev().take(needed) {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
}

/// What a merge sends.
pub fn write_change(out: &mut Vec<u8>, serial: u64) {
    let _ = write!(out, "{{\"Age\":{},\"Score\":{}.25}}", serial % 10_000, serial % 1000);
}
