//! The loader: checks a configuration, starts workers, and hands out epochs of batches. Below it, `supervisor` decides,
//! `shell` does. Knows nothing of pictures: what a sample is, workers find out.

mod batch;
mod builder;
mod checkpoint;
mod config;
mod epoch;
mod failure;
mod link;
mod seat;
mod shell;
mod supervisor;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use batch::Batch;
pub use builder::LoaderBuilder;
pub use checkpoint::{Fingerprint, State};
pub use epoch::{Epoch, Epochs};
pub use failure::SampleError;
pub use supervisor::{MaxErrors, OnError};

use config::Config;
use epoch::{Start, Tail};
use link::{Command, Door, Outlet, Shared};
use supervisor::Course;

use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::{BatchPlan, Ranks, Sampler};
use crate::stats::Stats;
use crate::sync::prim::{AtomicU64, Ordering};

/// Loads batches with worker processes, and hands them out without a copy.
///
/// See the [crate's documentation](crate) for a whole program. Dropping it ends its workers; batches stay valid.
pub struct Loader {
    config: Config,
    plans: Arc<Plans>,
    fingerprint: Fingerprint,
    /// How the pipeline runs, in words.
    pipeline: String,
    slab_bytes: usize,
    door: Door,
    shared: Arc<Shared>,
    runs: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

/// What decides which positions a batch covers.
#[derive(Debug)]
struct Plans {
    sampler: Arc<dyn Sampler>,
    seed: u64,
    batch_size: u32,
    ranks: Ranks,
    drop_last: bool,
}

impl Plans {
    /// Returns what a rank's batches are cut to: batch size, number of ranks, rank.
    fn cut(&self) -> (u32, u32, u32) {
        (self.batch_size, self.ranks.world_size, self.ranks.rank)
    }

    /// Returns the batches of `epoch` from global position `start` on.
    fn plan(&self, epoch: u64, start: u64) -> BatchPlan {
        let len = self.sampler.len(epoch);
        BatchPlan::new(len, start.min(len), self.batch_size, &self.ranks, self.drop_last)
            .unwrap_or_else(|_| unreachable!("build() has checked batch_size and ranks"))
    }
}

impl Loader {
    /// Begins to configure a loader on a data set.
    pub fn builder(dataset: impl Dataset + 'static) -> LoaderBuilder {
        LoaderBuilder::new(Box::new(dataset))
    }

    /// Begins an epoch from its first batch.
    ///
    /// The epoch's number decides its order and its augmentation, and nothing else does; epochs count from 0. What was
    /// being made of another epoch is dropped; an epoch of this loader that was not taken to its end yields no more.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        self.begin(epoch, &Start::default())
    }

    /// Begins an epoch at batch `step` of this rank, as if the batches before it had been taken.
    pub fn epoch_from(&self, epoch: u64, step: u64) -> Epoch {
        self.begin(epoch, &Start { first_step: step, ..Start::default() })
    }

    /// Begins `count` epochs from epoch 0; while the end of one is taken, the next is being made.
    pub fn epochs(&self, count: u64) -> Epochs<'_> {
        Epochs::new(self, 0..count)
    }

    /// Goes on where a checkpoint was taken, with this loader's workers and ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the checkpoint belongs to another seed, data set, order or pipeline; names both.
    pub fn resume(&self, state: &State) -> Result<Epoch> {
        let plans = &self.plans;
        state.check(plans.seed, plans.cut(), &self.fingerprint)?;
        let len = plans.sampler.len(state.epoch);
        if state.position > len {
            let (position, epoch) = (state.position, state.epoch);
            return Err(Error::new(
                ErrorKind::Config,
                format!("the checkpoint stands at position {position}, but epoch {epoch} has {len}"),
            )
            .with_remedy("resume with the data set of the run that wrote the checkpoint"));
        }
        let done: BTreeSet<u64> = state.ahead.iter().copied().collect();
        let steps = plans.plan(state.epoch, state.position).steps();
        if done.last().is_some_and(|step| *step >= steps) {
            return Err(Error::new(
                ErrorKind::Config,
                "the checkpoint names batches that the epoch does not have",
            )
            .with_remedy("take the checkpoint from Epoch::state() unchanged"));
        }
        Ok(self.begin(state.epoch, &Start { position: state.position, first_step: 0, done }))
    }

    /// Returns the number of batches that this rank gets in `epoch`.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.plans.plan(epoch, 0).steps()
    }

    /// Returns what the loader has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.snapshot()
    }

    /// Returns how many bytes of the slabs lie on huge pages in this process, where the kernel tells. Takes milliseconds.
    ///
    /// Huge pages are asked for, and had where `/sys/kernel/mm/transparent_hugepage/shmem_enabled` allows it.
    pub fn huge_page_bytes(&self) -> Option<u64> {
        self.shared.huge_page_bytes()
    }

    /// Returns how the loader works, in a few lines: what is decoded, the steps, workers, memory.
    pub fn explain(&self) -> String {
        let Config { num_workers, prefetch, hold, transport, .. } = &self.config;
        let stats = self.stats();
        let kind = if *transport == crate::Transport::InProcess { "thread" } else { "process" };
        let slabs = prefetch + hold;
        let mib = self.slab_bytes as f64 / f64::from(1 << 20);
        format!(
            "{}\nworkers: {num_workers} ({kind} each)\nslabs: {slabs} x {mib:.1} MiB (prefetch {prefetch} + hold {hold}), \
             transport {transport}, so far {}",
            self.pipeline,
            stats.transport_summary(),
        )
    }

    /// Returns how many workers it has.
    pub fn num_workers(&self) -> u32 {
        self.config.num_workers
    }

    /// Returns how many batches are made ahead.
    pub fn prefetch(&self) -> u32 {
        self.config.prefetch
    }

    /// Returns the batch size.
    pub fn batch_size(&self) -> u32 {
        self.plans.batch_size
    }

    fn begin(&self, epoch: u64, start: &Start) -> Epoch {
        let (outlet, tail) = self.open(epoch..epoch.saturating_add(1), start);
        self.epoch_on(outlet, tail, epoch, start)
    }

    fn open(&self, epochs: Range<u64>, start: &Start) -> (Arc<Outlet>, Tail) {
        let (plans, first, position) = (Arc::clone(&self.plans), epochs.start, start.position);
        let tail = Tail::new(first);
        let course = Course {
            run: self.runs.fetch_add(1, Ordering::Relaxed),
            epochs,
            first_step: start.first_step,
            done: start.done.clone(),
            plan: Arc::new(move |epoch| plans.plan(epoch, if epoch == first { position } else { 0 })),
        };
        (Arc::new(Outlet::open(course, &self.door, &self.shared, self.config.hold_timeout)), tail)
    }

    fn epoch_on(&self, outlet: Arc<Outlet>, tail: Tail, epoch: u64, start: &Start) -> Epoch {
        Epoch::new(outlet, tail, epoch, start, &self.plans, self.fingerprint)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.close();
        self.door.send(Command::Close);
        if let Some(thread) = self.thread.take() {
            // Its own panics were turned into an error for the consumer.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("config", &self.config).finish_non_exhaustive()
    }
}

/// How long a consumer that keeps every slab waits before it is told so, by default.
const HOLD_TIMEOUT: Duration = Duration::from_secs(30);
