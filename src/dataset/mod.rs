//! Where samples come from: encoded bytes and a label by index.
//! Does not decode, and does not know in which order or where it is read.

mod file;
mod folder;
mod paths;
mod scan;
mod synthetic;

use std::fmt::Debug;

use crate::error::Result;
pub use folder::{FolderOptions, ImageFolder};
pub use scan::Skipped;
pub use synthetic::Synthetic;

/// What the bytes of a [`Record`] are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// An encoded picture (JPEG, PNG, ...), told by its content.
    #[default]
    Encoded,
    /// Pixels: 8-bit RGB, interleaved, `3 * width * height` bytes.
    Rgb8 {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
}

/// One sample as a data set delivers it. A worker reuses one record for all its samples.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The sample's bytes. Cleared before each read; the allocation stays.
    pub bytes: Vec<u8>,
    /// What the bytes are.
    pub payload: Payload,
    /// The class, or any other number that belongs to the sample.
    pub label: i64,
}

impl Record {
    /// Empties it for the next sample and keeps its allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.payload = Payload::Encoded;
        self.label = 0;
    }
}

/// Which worker a data set was handed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The worker's number, from 0, within this rank.
    pub worker: u32,
    /// How many workers this rank has.
    pub num_workers: u32,
}

impl WorkerInfo {
    /// Creates it.
    pub const fn new(worker: u32, num_workers: u32) -> Self {
        WorkerInfo { worker, num_workers }
    }
}

/// A collection of samples that can be read by index, in any order, from several processes.
///
/// Each worker gets a copy of its own through serde, so a data set must come through serialisation unchanged;
/// `build()` checks that. Keep large tables in [`Shared`](crate::Shared): every worker maps the same pages then.
/// Mark implementations with `#[typetag::serde]`.
#[typetag::serde(tag = "type")]
pub trait Dataset: Debug + Send {
    /// Returns the number of samples.
    fn len(&self) -> u64;

    /// Returns whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens what one worker needs (files, connections). Called once in each worker, before its first read.
    ///
    /// # Errors
    /// Whatever keeps the worker from reading; the loader then reports it as a start-up error.
    fn start(&mut self, info: &WorkerInfo) -> Result<()> {
        let _ = info;
        Ok(())
    }

    /// Reads sample `index` into `record`, which comes in empty.
    ///
    /// # Errors
    /// Whatever keeps this sample from being read. It becomes an error of this sample, not of the run.
    fn read(&mut self, index: u64, record: &mut Record) -> Result<()>;

    /// Returns what a person would call sample `index` in a message: a path, a name in a shard.
    fn key(&self, index: u64) -> String {
        format!("#{index}")
    }

    /// Returns the size (width, height) that every picture has, where that is known without reading one.
    fn image_size(&self) -> Option<(u32, u32)> {
        None
    }

    /// Returns a number that changes when the data set does, for checkpoints: length and content as far as known.
    fn fingerprint(&self) -> u64 {
        self.len()
    }
}
