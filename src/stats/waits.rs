//! How long the consumer waited, batch by batch, in percentiles.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Waits are counted in microseconds, up to an hour; longer ones count as one.
const LONGEST_US: u64 = 3_600_000_000;

/// Collects waits; a few kilobytes, however many.
pub(crate) struct Waits(Option<Histogram<u64>>);

impl Default for Waits {
    fn default() -> Self {
        // Two significant digits. The bounds are constants that the library accepts.
        Waits(Histogram::new_with_bounds(1, LONGEST_US, 2).ok())
    }
}

impl Waits {
    /// Counts one wait.
    pub(crate) fn record(&mut self, wait: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record((wait.as_micros() as u64).max(1));
        }
    }

    /// Returns the percentiles so far.
    pub(crate) fn summary(&self) -> WaitSummary {
        let at = |quantile: f64| {
            let us = self.0.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile));
            Duration::from_micros(us)
        };
        WaitSummary { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.summary())
    }
}

/// How long the consumer waited for a batch: so many percent of the batches came within that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitSummary {
    /// Half of them.
    pub p50: Duration,
    /// 95 of 100.
    pub p95: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// All of them.
    pub max: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_hundredth() {
        let mut waits = Waits::default();
        assert_eq!(waits.summary(), WaitSummary::default());
        (1..=1000).for_each(|ms| waits.record(Duration::from_millis(ms)));
        let summary = waits.summary();
        for (got, want) in [(summary.p50, 500), (summary.p95, 950), (summary.p99, 990), (summary.max, 1000)] {
            let ratio = got.as_secs_f64() / Duration::from_millis(want).as_secs_f64();
            assert!((0.99..1.01).contains(&ratio), "{got:?} for {want} ms");
        }
    }
}
