//! The numbers of a run. Field names are those of the JSON report; `schema.json` beside this file describes them.

use forebay::Loader;
use serde::Serialize;

use super::super::version;

/// Version of the JSON report's form; raised when a field changes meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// What a run did and how fast.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    pub(crate) schema: u32,
    pub(crate) versions: Versions,
    /// The data set as typed.
    pub(crate) data: String,
    pub(crate) epochs: Vec<EpochReport>,
    /// Samples handed out, over all epochs.
    pub(crate) samples: u64,
    pub(crate) batches: u64,
    /// Batches that an error came in place of, since a sample of theirs could not be made.
    pub(crate) failed_batches: u64,
    /// Samples that could not be made, substitutes that failed in their turn included.
    pub(crate) failed_samples: u64,
    /// Wall-clock time from the first request to the last batch.
    pub(crate) seconds: f64,
    /// Wall-clock time from the start of the loader's building to the first batch.
    pub(crate) seconds_to_first_batch: f64,
    pub(crate) images_per_second: f64,
    /// Bytes of finished batches a second, in units of 10^6.
    pub(crate) megabytes_per_second: f64,
    pub(crate) num_workers: u64,
    /// What workers spent their time on, summed over them.
    pub(crate) worker_seconds: WorkerSeconds,
    /// Time that `run` waited for batches.
    pub(crate) consumer_wait_seconds: f64,
    /// Its waits, batch by batch.
    pub(crate) wait_seconds: WaitSeconds,
    /// Who waited for whom, and what would help.
    pub(crate) verdict: String,
    /// Workers that died and were replaced.
    pub(crate) worker_restarts: u64,
    /// Times that something was made of other memory, with fewer slabs or by fewer workers than asked for.
    pub(crate) degradations: u64,
    /// Bytes of all slabs.
    pub(crate) slab_bytes: u64,
    /// Bytes of slabs that lie on huge pages, where the kernel tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) huge_page_bytes: Option<u64>,
    /// Bytes of rings, positions and status.
    pub(crate) control_bytes: u64,
    /// The transport in use, slab by slab.
    pub(crate) transports: Vec<String>,
}

/// What made the bytes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) forebay: String,
    /// The JPEG decoder, its version and SIMD level.
    pub(crate) codec: String,
}

/// Time of workers by what they did.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WorkerSeconds {
    pub(crate) read: f64,
    pub(crate) decode: f64,
    pub(crate) transform: f64,
    /// Without a task.
    pub(crate) idle: f64,
}

/// How long `run` waited for a batch: so many percent of the batches came within that time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct WaitSeconds {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// One epoch of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct EpochReport {
    pub(crate) epoch: u64,
    pub(crate) samples: u64,
    pub(crate) batches: u64,
    pub(crate) seconds: f64,
    /// The epoch's digest, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// The batches' digests, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) batch_digests: Vec<BatchDigest>,
}

/// The digest of one batch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BatchDigest {
    pub(crate) batch: u64,
    pub(crate) samples: u64,
    pub(crate) sha256: String,
}

/// What was counted while a run went on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    samples: u64,
    batches: u64,
    bytes: u64,
    pub(crate) failed_batches: u64,
    pub(crate) failed_samples: u64,
    pub(crate) seconds: f64,
    pub(crate) seconds_to_first_batch: f64,
}

impl Totals {
    /// Counts one batch.
    pub(crate) fn count(&mut self, samples: u64, bytes: u64) {
        self.batches += 1;
        self.samples += samples;
        self.bytes += bytes;
    }

    fn a_second(&self, amount: f64) -> f64 {
        if self.seconds > 0.0 { amount / self.seconds } else { 0.0 }
    }
}

/// Puts the report together from what was counted and what the loader says of itself.
pub(crate) fn build(data: String, epochs: Vec<EpochReport>, totals: &Totals, loader: &Loader) -> RunReport {
    let stats = loader.stats();
    RunReport {
        schema: SCHEMA,
        versions: Versions { forebay: version::FOREBAY.into(), codec: forebay::decode::codec_version() },
        data,
        epochs,
        samples: totals.samples,
        batches: totals.batches,
        failed_batches: totals.failed_batches,
        failed_samples: totals.failed_samples,
        seconds: totals.seconds,
        seconds_to_first_batch: totals.seconds_to_first_batch,
        images_per_second: totals.a_second(totals.samples as f64),
        megabytes_per_second: totals.a_second(totals.bytes as f64 / 1e6),
        num_workers: loader.num_workers().into(),
        worker_seconds: WorkerSeconds {
            read: stats.read.as_secs_f64(),
            decode: stats.decode.as_secs_f64(),
            transform: stats.transform.as_secs_f64(),
            idle: stats.idle.as_secs_f64(),
        },
        consumer_wait_seconds: stats.consumer_wait.as_secs_f64(),
        wait_seconds: WaitSeconds {
            p50: stats.waits.p50.as_secs_f64(),
            p95: stats.waits.p95.as_secs_f64(),
            p99: stats.waits.p99.as_secs_f64(),
            max: stats.waits.max.as_secs_f64(),
        },
        verdict: stats.verdict(),
        worker_restarts: stats.restarts,
        degradations: stats.degradations,
        slab_bytes: stats.slab_bytes as u64,
        huge_page_bytes: loader.huge_page_bytes(),
        control_bytes: stats.control_bytes as u64,
        transports: stats.transports.iter().map(|name| name.to_string()).collect(),
    }
}

impl RunReport {
    /// Returns the transports with the number of slabs each, in order of first use: `2 shm, 1 heap`.
    pub(crate) fn transport_counts(&self) -> Vec<(&str, usize)> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for name in &self.transports {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        counts
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report with every field set.
    pub(in super::super) fn example() -> RunReport {
        let digest = BatchDigest { batch: 0, samples: 60, sha256: "ab".repeat(32) };
        RunReport {
            schema: SCHEMA,
            versions: Versions { forebay: "0.1.0".into(), codec: "libjpeg-turbo 3.1.0 (AVX2)".into() },
            data: "datasets/tiny".into(),
            epochs: vec![EpochReport {
                epoch: 0,
                samples: 60,
                batches: 1,
                seconds: 0.5,
                sha256: Some("cd".repeat(32)),
                batch_digests: vec![digest],
            }],
            samples: 60,
            batches: 1,
            failed_batches: 0,
            failed_samples: 0,
            seconds: 0.5,
            seconds_to_first_batch: 0.25,
            images_per_second: 120.0,
            megabytes_per_second: 72.25,
            num_workers: 2,
            worker_seconds: WorkerSeconds { read: 0.05, decode: 0.5, transform: 0.25, idle: 0.2 },
            consumer_wait_seconds: 0.4,
            wait_seconds: WaitSeconds { p50: 0.00125, p95: 0.25, p99: 1.5, max: 2.0 },
            verdict: "decode-bound: 1 more worker would help".into(),
            worker_restarts: 0,
            degradations: 0,
            slab_bytes: 3 * 36_130_816,
            huge_page_bytes: Some(0),
            control_bytes: 65_536,
            transports: vec!["shm".into(), "heap".into(), "heap".into()],
        }
    }

    #[test]
    fn slabs_are_counted_by_transport() {
        assert_eq!(example().transport_counts(), [("shm", 1), ("heap", 2)]);
    }
}
