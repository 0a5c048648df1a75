//! What was counted, and what that says.

use std::collections::BTreeMap;
use std::time::Duration;

/// What one connection counted.
#[derive(Debug, Default)]
pub struct Meter {
    nanoseconds: Vec<u64>,
    errors: BTreeMap<String, u64>,
}

impl Meter {
    pub fn took(&mut self, time: Duration) {
        self.nanoseconds.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn failed(&mut self, what: String) {
        *self.errors.entry(what).or_default() += 1;
    }
}

impl FromIterator<Meter> for Meter {
    fn from_iter<I: IntoIterator<Item = Meter>>(meters: I) -> Self {
        let mut sum = Self::default();
        for meter in meters {
            sum.nanoseconds.extend(meter.nanoseconds);
            for (what, count) in meter.errors {
                *sum.errors.entry(what).or_default() += count;
            }
        }
        sum
    }
}

/// What all connections counted together.
#[derive(Debug)]
pub struct Sample {
    pub requests: u64,
    pub seconds: f64,
    /// Microseconds, shortest first.
    times: Vec<f64>,
    pub errors: BTreeMap<String, u64>,
}

impl Sample {
    pub fn of(meter: Meter, seconds: f64) -> Self {
        let mut nanoseconds = meter.nanoseconds;
        nanoseconds.sort_unstable();
        let times: Vec<f64> = nanoseconds.iter().map(|ns| *ns as f64 / 1000.0).collect();
        Self { requests: times.len() as u64, seconds, times, errors: meter.errors }
    }

    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The time that this share of the requests took at most.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let at = (self.times.len() as f64 * share).ceil() as usize;
        self.times.get(at.saturating_sub(1).min(last)).copied().unwrap_or(0.0)
    }
}
