//! Multiprocess image loading for training: workers decode straight into shared-memory slabs.

#[cfg(not(target_os = "linux"))]
compile_error!("forebay runs on Linux only: it stands on memfd, pidfd, epoll and eventfd");

#[cfg(not(all(test, loom)))] // its tables lie in shared arrays
pub mod dataset;
pub mod decode;
mod error;
mod hash;
pub mod sampler;
#[allow(dead_code)] // until the rooms above use all of it
mod sync;
pub mod synth;
// Loom's atomics lie differently in memory, so under loom nothing is mapped.
#[cfg(not(all(test, loom)))]
#[allow(dead_code)] // until the rooms above use all of it
mod sys;
mod tensor;
pub mod transform;

pub use error::{Error, ErrorKind, Result};
#[cfg(not(all(test, loom)))]
pub use sys::shared::Shared;
pub use tensor::{DType, Element, Layout};
