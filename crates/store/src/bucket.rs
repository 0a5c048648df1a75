//! Maps partitions to buckets. Every stored row contains its bucket, so the mapping must never change.

use uuid::Uuid;

/// Returns the bucket of a partition, which is its distribution key: the table number in the upper bits, the
/// partition's share in the lower 16.
///
/// `table_no` has at most 47 bits. `spread` is the table's number of buckets.
pub(crate) fn bucket(table_no: i64, spread: u16, partition: &str) -> i64 {
    let share = if spread <= 1 { 0 } else { hash(partition) % u64::from(spread) };
    // The share is below 2^16.
    (table_no << 16) | share as i64
}

/// Returns all buckets of a table, in ascending order.
pub(crate) fn buckets(table_no: i64, spread: u16) -> impl Iterator<Item = i64> {
    (0..i64::from(spread.max(1))).map(move |share| (table_no << 16) | share)
}

/// Returns a number for a new table: 47 random bits from the upper half of a version 4 UUID, which has 48 random bits
/// before the version.
pub(crate) fn new_table_no() -> i64 {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    (high >> 17) as i64
}

/// FNV-1a with 64 bits over the UTF-8 bytes.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(hash(text), expected, "{text}");
        }
    }

    #[test]
    fn buckets_of_stored_rows_never_move() {
        for (table_no, spread, partition, expected) in [
            (1, 1, "anything", 0x1_0000),
            (1, 16, "", 0x1_0005),
            (1, 16, "a", 0x1_000c),
            (1, 16, "foobar", 0x1_0008),
            ((1 << 47) - 1, 16, "a", 0x7fff_ffff_ffff_000c),
        ] {
            assert_eq!(bucket(table_no, spread, partition), expected, "{partition} over {spread}");
        }
    }

    #[test]
    fn every_partition_is_in_one_of_the_tables_buckets() {
        let all: Vec<i64> = buckets(7, 8).collect();
        assert_eq!(all.len(), 8);
        for i in 0..100 {
            assert!(all.contains(&bucket(7, 8, &i.to_string())));
        }
        assert_eq!(buckets(7, 1).collect::<Vec<_>>(), [bucket(7, 1, "x")]);
    }
}
