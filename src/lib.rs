//! Multiprocess image loading for training: workers decode straight into shared-memory slabs.
//!
//! Worker *processes* read, decode and augment samples into a few slabs, each of which holds one batch. Only small
//! handles cross process borders. The consumer sees each batch in place, without a copy; when a batch is dropped, its
//! slab is filled again. Memory is `prefetch + hold` batches, whatever the number of workers.
//!
//! ```no_run
//! use forebay::prelude::*;
//!
//! fn main() -> forebay::Result<()> {
//!     forebay::init(); // first line: a worker process stays here, the trainer goes on
//!     let loader = Loader::builder(ImageFolder::open("data/train")?)
//!         .transform(RandomResizedCrop::new(224))
//!         .transform(RandomHorizontalFlip::default())
//!         .transform(Normalize::IMAGENET)
//!         .output(DType::F32, Layout::Nchw)
//!         .batch_size(256)
//!         .shuffle(true)
//!         .seed(42)
//!         .build()?;
//!     for epoch in 0..90 {
//!         for batch in loader.epoch(epoch) {
//!             let batch = batch?;
//!             let images = batch.images::<f32>()?; // ndarray's ArrayView4: the slab itself
//!             assert_eq!(images.shape()[0], batch.labels().len());
//!         }
//!         println!("epoch {epoch}: {}", loader.stats());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! What a batch holds is a pure function of the data set, the pipeline, the seed, the epoch and the positions it covers:
//! not of the number of workers, the transport, timing, crashes or a resume.
//!
//! # Safety against workers
//! A worker may crash at any instruction, and anything it sends is checked before it means something. A *hostile*
//! worker process, though, keeps its mapping of the slabs and can change bytes that the consumer reads: code in a
//! pipeline is trusted as far as pixels go.

#[cfg(not(target_os = "linux"))]
compile_error!("forebay runs on Linux only: it stands on memfd, pidfd, epoll and eventfd");

pub mod dataset;
pub mod decode;
mod error;
mod event;
mod hash;
// Loom's atomics lie differently in memory, so under loom nothing is mapped.
#[cfg(not(all(test, loom)))]
mod loader;
mod plan;
pub mod sampler;
mod slab;
mod stats;
mod sync;
pub mod synth;
mod sys;
mod tensor;
pub mod transform;
#[cfg(not(all(test, loom)))]
mod worker;

pub use error::{Error, ErrorKind, Result};
pub use event::Event;
#[cfg(not(all(test, loom)))]
pub use loader::{
    Batch, Epoch, Epochs, Fingerprint, Loader, LoaderBuilder, MaxErrors, OnError, SampleError, State,
};
pub use slab::Transport;
pub use stats::{Stats, WaitSummary, WorkerStats};
pub use sys::shared::Shared;
pub use tensor::{DType, Element, Layout};
#[cfg(not(all(test, loom)))]
pub use worker::init;

/// What a program that loads images needs, to be imported whole.
#[cfg(not(all(test, loom)))]
pub mod prelude {
    pub use crate::dataset::{Dataset, ImageFolder, Record, Synthetic};
    pub use crate::sampler::{RankTail, Ranks, Sampler};
    pub use crate::transform::{
        CenterCrop, ColorJitter, GaussianBlur, Normalize, Pipeline, RandomApply, RandomCrop, RandomErasing,
        RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, Sample,
        SampleRng, Transform,
    };
    pub use crate::{Batch, DType, Layout, Loader, OnError, Transport};
}

/// The README's program is compiled as one of the documentation's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What macros expand to. Not part of the interface.
#[cfg(not(all(test, loom)))]
#[doc(hidden)]
pub mod __private {
    pub use inventory;

    pub use crate::worker::{TestSupport, worker_entry};
}
