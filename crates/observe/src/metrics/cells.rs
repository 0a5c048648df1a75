//! Counters, gauges and histograms: atomics that never lock or allocate.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Number of shards of the counters that every request adds to. The first threads have one shard each; further threads
/// share these shards.
pub(crate) const SHARDS: usize = 16;

/// Returns the index of the shard that this thread adds to.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|mine| *mine)
}

/// A number that only increases.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The name of this type of metric in both text formats.
    pub(crate) const TYPE: &str = "counter";

    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, many: u64) {
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that increases and decreases.
#[derive(Debug)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// The name of this type of metric in both text formats.
    pub(crate) const TYPE: &str = "gauge";

    pub(crate) const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds a difference, which may be negative.
    pub fn add(&self, difference: i64) {
        self.0.fetch_add(difference, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The value of a counter or a gauge.
pub(crate) struct MetricReading {
    /// The name of the family, and its meaning.
    pub family: &'static str,
    pub meaning: &'static str,
    /// The type of the family: `counter` or `gauge`.
    pub kind: &'static str,
    pub value: f64,
}

/// Declares a struct with two groups of fields: other fields with their initial values, and counters and gauges with
/// their families and meanings.
macro_rules! metrics {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident { $($(#[$note:meta])* $field:ident: $type:ty = $initial:expr,)* }
        { $($metric:ident: $kind:ident, $family:literal, $meaning:literal;)* }
    ) => {
        $(#[$about])*
        $vis struct $name {
            $($(#[$note])* pub $field: $type,)*
            $(#[doc = $meaning] pub $metric: $kind,)*
        }

        impl $name {
            pub(crate) const fn new() -> Self {
                Self { $($field: $initial,)* $($metric: $kind::new(),)* }
            }

            /// Reads the counters and gauges that have a family.
            pub(crate) fn read(&self) -> Vec<$crate::metrics::cells::MetricReading> {
                vec![$($crate::metrics::cells::MetricReading {
                    family: $family,
                    meaning: $meaning,
                    kind: $kind::TYPE,
                    value: self.$metric.get() as f64,
                },)*]
            }
        }
    };
}
pub(crate) use metrics;

/// A histogram: the number of values per bucket, and their sum.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    within: [Counter; N],
    beyond: Counter,
    sum: Counter,
}

impl<const N: usize> Histogram<N> {
    /// An empty histogram. The bounds are the inclusive upper ends of the buckets, in ascending
    /// order.
    pub(crate) const fn new(bounds: &'static [u64; N]) -> Self {
        let within = [const { Counter::new() }; N];
        Self { bounds, within, beyond: Counter::new(), sum: Counter::new() }
    }

    /// Adds a value, in the unit of the bounds.
    pub fn add(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.within.get(place).unwrap_or(&self.beyond).one();
        self.sum.add(value);
    }

    pub(crate) fn read(&self) -> HistogramCounts<N> {
        HistogramCounts {
            bounds: self.bounds,
            within: self.within.each_ref().map(Counter::get),
            beyond: self.beyond.get(),
            sum: self.sum.get(),
        }
    }
}

/// The state of a histogram, or the sum of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramCounts<const N: usize> {
    pub bounds: &'static [u64; N],
    /// The number of values in each bucket, not cumulative.
    pub within: [u64; N],
    pub beyond: u64,
    pub sum: u64,
}

impl<const N: usize> HistogramCounts<N> {
    /// Adds the state of a histogram with the same bounds.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.within.iter_mut().zip(other.within).for_each(|(sum, more)| *sum += more);
        self.beyond += other.beyond;
        self.sum += other.sum;
    }

    /// Returns the values that were added since an earlier state of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = self.clone();
        new.within.iter_mut().zip(earlier.within).for_each(|(now, then)| *now = now.saturating_sub(then));
        new.beyond = new.beyond.saturating_sub(earlier.beyond);
        new.sum = new.sum.saturating_sub(earlier.sum);
        new
    }

    /// Estimates the quantile of a share, such as 0.5 for the median; `None` without values. The estimate assumes that
    /// the values of a bucket are spread evenly, and is at most the last bound.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut before = 0.0;
        let rank = share * self.count() as f64;
        let mut lower = 0;
        for (bound, count) in self.bounds.iter().zip(self.within) {
            let count = count as f64;
            if count > 0.0 && before + count >= rank {
                let within = ((rank - before) / count).clamp(0.0, 1.0);
                return Some(lower as f64 + (bound - lower) as f64 * within);
            }
            before += count;
            lower = *bound;
        }
        (self.beyond > 0).then_some(lower as f64)
    }

    pub fn count(&self) -> u64 {
        self.within.iter().sum::<u64>() + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_part_of_its_step() {
        let histogram = Histogram::new(&[1, 10]);
        [0, 1, 2, 10, 11].into_iter().for_each(|value| histogram.add(value));
        let mut spread = histogram.read();
        assert_eq!((spread.within, spread.beyond, spread.sum), ([2, 2], 1, 24));
        spread.merge(&histogram.read());
        assert_eq!((spread.count(), spread.sum), (10, 48));
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_value() {
        let histogram = Histogram::new(&[10, 100]);
        let earlier = histogram.read();
        assert_eq!(earlier.quantile(0.5), None);
        (0..98).for_each(|_| histogram.add(5));
        (0..2).for_each(|_| histogram.add(50));
        let new = histogram.read().since(&earlier);
        assert_eq!((new.count(), new.sum), (100, 590));
        assert!(
            new.quantile(0.5).is_some_and(|value| (5.0..5.2).contains(&value)),
            "{:?}",
            new.quantile(0.5)
        );
        assert_eq!(new.quantile(0.99), Some(55.0));
        let earlier = histogram.read();
        histogram.add(1000);
        assert_eq!(histogram.read().since(&earlier).quantile(0.99), Some(100.0));
    }
}
