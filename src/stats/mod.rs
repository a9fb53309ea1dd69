//! What a loader has done so far, in numbers. Counts and summarises; measures nothing itself.

mod verdict;
mod waits;

use std::fmt;
use std::time::Duration;

pub use waits::WaitSummary;
pub(crate) use waits::Waits;

/// A snapshot of what a loader has done since it was built.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Samples that workers have made, those of dropped epochs included.
    pub samples: u64,
    /// Samples that could not be made.
    pub failed: u64,
    /// Bytes that the data set delivered.
    pub bytes: u64,
    /// Batches handed to the consumer.
    pub batches: u64,
    /// Worker time spent reading.
    pub read: Duration,
    /// Worker time spent decoding.
    pub decode: Duration,
    /// Worker time spent in transforms and writing slots.
    pub transform: Duration,
    /// Worker time spent without a task.
    pub idle: Duration,
    /// Time that the consumer waited for batches.
    pub consumer_wait: Duration,
    /// Its waits, batch by batch.
    pub waits: WaitSummary,
    /// Time between the beginning of epochs and the last batch taken of each.
    pub elapsed: Duration,
    /// Workers that died and were replaced.
    pub restarts: u64,
    /// Times that something was made of other memory, with fewer slabs or by fewer workers than asked for.
    pub degradations: u64,
    /// How many workers were asked for.
    pub num_workers: u32,
    /// How many processors this process may use.
    pub cpus: u32,
    /// The workers that there are.
    pub workers: Vec<WorkerStats>,
    /// Slabs by what they are at: absent, free, filling, held, draining.
    pub slabs: Vec<&'static str>,
    /// The memory of each slab that was reserved: memfd, shm, file, heap or private.
    pub transports: Vec<&'static str>,
    /// Bytes of all reserved slabs.
    pub slab_bytes: usize,
    /// Bytes of the control segments.
    pub control_bytes: usize,
}

/// One worker, as its host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Its process, or `None` for a thread.
    pub pid: Option<u32>,
    /// How long it took from its start until it could take work; `None` while it starts.
    pub start: Option<Duration>,
    /// Memory that it has resident, slabs included; `None` for a thread.
    pub resident_bytes: Option<u64>,
}

impl Stats {
    /// Returns the memory in use by name and count, such as `2 memfd, 1 heap`.
    pub fn transport_summary(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for name in &self.transports {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        if parts.is_empty() { "none yet".into() } else { parts.join(", ") }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.read + self.decode + self.transform;
        let share = |part: Duration| match work.as_secs_f64() {
            0.0 => 0.0,
            all => 100.0 * part.as_secs_f64() / all,
        };
        write!(
            f,
            "{} samples, {} batches; workers: read {:.0} %, decode {:.0} %, transform {:.0} % of {:.2} s, idle {:.2} s; \
             consumer waited {:.2} s; slabs: {}",
            self.samples,
            self.batches,
            share(self.read),
            share(self.decode),
            share(self.transform),
            work.as_secs_f64(),
            self.idle.as_secs_f64(),
            self.consumer_wait.as_secs_f64(),
            self.transport_summary(),
        )?;
        if self.failed > 0 {
            write!(f, "; {} samples failed", self.failed)?;
        }
        if self.restarts > 0 {
            write!(f, "; {} workers replaced", self.restarts)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_up_by_name() {
        let stats = Stats { transports: vec!["memfd", "heap", "memfd"], ..Stats::default() };
        assert_eq!(stats.transport_summary(), "2 memfd, 1 heap");
        assert_eq!(Stats::default().transport_summary(), "none yet");
    }
}
