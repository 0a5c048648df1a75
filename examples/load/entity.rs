//! Keys and entities. Keys are numbers of a fixed width, so that pgbench, which
//! knows numbers only, can name them too.

use std::io::Write as _;

/// Bytes of an entity's JSON, as sent.
const SIZE: usize = 1024;
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

/// Ten properties of six types, with 1 KiB of JSON in all.
pub fn write(out: &mut Vec<u8>, key: Key, serial: u64) {
    let start = out.len();
    let Key { partition, row } = key;
    let _ = write!(
        out,
        "{{\"PartitionKey\":\"{partition}\",\"RowKey\":\"{row}\",\"Serial\":{},\"Age\":{},\"Active\":{},\
         \"Score\":{}.5,\"Total@odata.type\":\"Edm.Int64\",\"Total\":\"{serial}\",\
         \"Seen@odata.type\":\"Edm.DateTime\",\"Seen\":\"2026-01-01T00:00:00Z\",\
         \"T1\":\"{:0>150}\",\"T2\":\"{:0>150}\",\"T3\":\"{:0>150}\",\"T4\":\"",
        serial % 1_000_000_000,
        serial % 10_000,
        serial.is_multiple_of(2),
        serial % 1000,
        serial.wrapping_mul(3),
        serial.wrapping_mul(5),
        serial.wrapping_mul(7),
    );
    out.resize(start + SIZE - 2, b'x');
    out.extend_from_slice(b"\"}");
}

/// What a merge sends.
pub fn write_change(out: &mut Vec<u8>, serial: u64) {
    let _ = write!(out, "{{\"Age\":{},\"Score\":{}.25}}", serial % 10_000, serial % 1000);
}
