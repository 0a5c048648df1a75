//! Random numbers that can be had again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A sequence of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// What `ROWHOUSE_TEST_SEED` says, else another one each time. It is printed,
    /// so that a failure can be had again as far as timing allows.
    pub fn of(test: &str) -> Self {
        static ANOTHER: AtomicU64 = AtomicU64::new(0);
        let said = std::env::var("ROWHOUSE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = said.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
            now ^ ANOTHER.fetch_add(1, Ordering::Relaxed) << 52
        });
        println!("{test}: ROWHOUSE_TEST_SEED={seed}");
        Self(seed)
    }

    /// A sequence of its own for each `n`.
    pub fn fork(&self, n: usize) -> Self {
        Self(self.0 ^ (n as u64 + 1).wrapping_mul(0xD605_BBB5_8C8A_BBFD))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
