//! What lies in the control segments: one page a worker, which both sides write, and one area that only the host
//! writes. Atomics only, since another process may write them at any time.

use std::sync::Arc;

use super::protocol::{DONE_WORDS, TASK_WORDS};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::prim::{AtomicU32, AtomicU64, Ordering};
use crate::sync::ring::Ring;
use crate::sync::sleep::Sleeper;
use crate::sys::mapped::{Mapped, MappedSlice, shareable_struct};
use crate::sys::mapping::Mapping;

/// Chunks that may be on their way to one worker.
pub(crate) const TASKS: usize = 64;

/// Reports that may be on their way from one worker.
pub(crate) const DONES: usize = 32;

/// The ring from the host to a worker.
pub(crate) type TaskRing = Ring<TASK_WORDS, TASKS>;

/// The ring from a worker to the host.
pub(crate) type DoneRing = Ring<DONE_WORDS, DONES>;

shareable_struct! {
    /// What one worker shares with the host. All zero bytes are a valid, empty page.
    pub(crate) struct WorkerPage {
        /// Chunks to do.
        pub tasks: TaskRing,
        /// Reports.
        pub dones: DoneRing,
        /// Set by the worker while it sleeps.
        pub sleeper: Sleeper,
        /// What the worker is at.
        pub status: Status,
    }
}

shareable_struct! {
    /// The sample a worker is at, for the report on its death. Hints only: nothing is decided by them alone.
    pub(crate) struct Status {
        /// Counts samples begun; a change means that the worker makes progress.
        heartbeat: AtomicU64,
        /// Slab and generation.
        slab: AtomicU64,
        /// Slot and [`Stage`].
        place: AtomicU64,
    }
}

/// What a worker is doing to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In `Dataset::read`.
    Read = 1,
    /// Decoding, transforming, writing the slot.
    Transform = 2,
    /// Sending a slot over the socket.
    Send = 3,
}

/// A copy of a worker's [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which slab.
    pub slab: u32,
    /// Which use of the slab.
    pub generation: u32,
    /// Which slot.
    pub slot: u32,
    /// What it was doing.
    pub stage: Stage,
}

impl Status {
    /// Says which sample comes now.
    pub(crate) fn begin(&self, slab: u32, generation: u32, slot: u32) {
        self.slab.store(u64::from(slab) | u64::from(generation) << 32, Ordering::Relaxed);
        self.place.store(u64::from(slot) | (Stage::Read as u64) << 32, Ordering::Relaxed);
        // The worker alone writes it, so load and store need not be one step.
        self.heartbeat.store(self.heartbeat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Says what is being done to the sample.
    pub(crate) fn stage(&self, slot: u32, stage: Stage) {
        self.place.store(u64::from(slot) | (stage as u64) << 32, Ordering::Relaxed);
    }

    /// Says that no sample is being made.
    pub(crate) fn end(&self) {
        self.place.store(0, Ordering::Relaxed);
    }

    /// Returns the number of samples begun.
    pub(crate) fn heartbeat(&self) -> u64 {
        self.heartbeat.load(Ordering::Relaxed)
    }

    /// Returns which sample the worker is at; `None` between samples, or when the words make no sense.
    pub(crate) fn place(&self) -> Option<Place> {
        let (slab, place) = (self.slab.load(Ordering::Relaxed), self.place.load(Ordering::Relaxed));
        let stage = match place >> 32 {
            1 => Stage::Read,
            2 => Stage::Transform,
            3 => Stage::Send,
            _ => return None,
        };
        Some(Place { slab: slab as u32, generation: (slab >> 32) as u32, slot: place as u32, stage })
    }
}

impl Stage {
    /// Returns the word that reports use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Transform => "decode or transform",
            Stage::Send => "send",
        }
    }
}

shareable_struct! {
    /// The host's own words at the start of the control area, on cache lines of their own.
    #[repr(align(128))]
    pub(crate) struct HostWords {
        /// Set by the host while it sleeps.
        pub sleeper: Sleeper,
    }
}

shareable_struct! {
    /// What the host says of one slab's current use.
    pub(crate) struct SlabWords {
        /// The generation that is cancelled; workers read it between samples.
        cancelled: AtomicU32,
        /// How often the slab's memory was handed out; a worker that has seen fewer reads its socket first.
        attachment: AtomicU32,
        /// The epoch.
        epoch: AtomicU64,
        /// The global position of slot 0.
        first_position: AtomicU64,
    }
}

/// The area that only the host writes: its sleep flag, and for each slab the epoch, positions and sample indices.
#[derive(Clone)]
pub(crate) struct Control {
    pub host: Mapped<HostWords>,
    slabs: MappedSlice<SlabWords>,
    indices: MappedSlice<AtomicU64>,
    batch: usize,
}

/// Generations start at 1, so that a cancel word of zero cancels nothing.
pub(crate) const FIRST_GENERATION: u32 = 1;

impl Control {
    /// Returns the bytes that `slabs` slabs of `batch` slots take.
    pub(crate) fn bytes(slabs: usize, batch: usize) -> Result<usize> {
        let slab_bytes = batch.checked_mul(8).and_then(|bytes| bytes.checked_add(size_of::<SlabWords>()));
        slab_bytes
            .and_then(|bytes| bytes.checked_mul(slabs))
            .and_then(|bytes| bytes.checked_add(size_of::<HostWords>()))
            .ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("{slabs} slabs of {batch} slots are too many"))
                    .with_remedy("lower prefetch or batch_size")
            })
    }

    /// Finds the areas in a mapping of at least [`bytes`](Control::bytes).
    ///
    /// # Errors
    /// When the mapping is too small.
    pub(crate) fn new(mapping: Arc<Mapping>, slabs: usize, batch: usize) -> Result<Self> {
        let host = Mapped::new(Arc::clone(&mapping), 0)?;
        let slab_words = MappedSlice::new(Arc::clone(&mapping), size_of::<HostWords>(), slabs)?;
        let offset = size_of::<HostWords>() + slabs * size_of::<SlabWords>();
        let indices = MappedSlice::new(mapping, offset, slabs * batch)?;
        Ok(Control { host, slabs: slab_words, indices, batch })
    }

    /// Writes what a slab is used for next. The task ring's release makes it visible.
    pub(crate) fn assign(
        &self,
        slab: u32,
        generation: u32,
        epoch: u64,
        first_position: u64,
        indices: &[u64],
    ) {
        let words = &self.slabs[slab as usize];
        // Not this use: neither by an old word that the numbers have come round to, nor by the first one, 0.
        words.cancelled.store(generation.wrapping_sub(1), Ordering::Relaxed);
        words.epoch.store(epoch, Ordering::Relaxed);
        words.first_position.store(first_position, Ordering::Relaxed);
        for (slot, &index) in indices.iter().enumerate() {
            self.set_index(slab, slot as u32, index);
        }
    }

    /// Changes which sample belongs into one slot.
    pub(crate) fn set_index(&self, slab: u32, slot: u32, index: u64) {
        self.indices[slab as usize * self.batch + slot as usize].store(index, Ordering::Relaxed);
    }

    /// Cancels one use of a slab.
    pub(crate) fn cancel(&self, slab: u32, generation: u32) {
        self.slabs[slab as usize].cancelled.store(generation, Ordering::Relaxed);
    }

    /// Returns whether that use of the slab is cancelled.
    pub(crate) fn is_cancelled(&self, slab: u32, generation: u32) -> bool {
        self.slabs[slab as usize].cancelled.load(Ordering::Relaxed) == generation
    }

    /// Says that the slab's memory was handed out for the `count`th time.
    pub(crate) fn set_attachment(&self, slab: u32, count: u32) {
        self.slabs[slab as usize].attachment.store(count, Ordering::Relaxed);
    }

    /// Returns how often the slab's memory was handed out.
    pub(crate) fn attachment(&self, slab: u32) -> u32 {
        self.slabs[slab as usize].attachment.load(Ordering::Relaxed)
    }

    /// Returns the epoch of a slab's current use.
    pub(crate) fn epoch(&self, slab: u32) -> u64 {
        self.slabs[slab as usize].epoch.load(Ordering::Relaxed)
    }

    /// Returns the global position of a slot.
    pub(crate) fn position(&self, slab: u32, slot: u32) -> u64 {
        let first = self.slabs[slab as usize].first_position.load(Ordering::Relaxed);
        first.wrapping_add(u64::from(slot))
    }

    /// Returns the data set index that belongs into a slot.
    pub(crate) fn index(&self, slab: u32, slot: u32) -> u64 {
        self.indices[slab as usize * self.batch + slot as usize].load(Ordering::Relaxed)
    }
}
