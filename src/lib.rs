//! Multiprocess image loading for training: workers decode straight into shared-memory slabs.

#[cfg(not(target_os = "linux"))]
compile_error!("forebay runs on Linux only: it stands on memfd, pidfd, epoll and eventfd");

pub mod dataset;
pub mod decode;
mod error;
mod hash;
pub mod sampler;
pub mod synth;
mod tensor;
pub mod transform;

pub use error::{Error, ErrorKind, Result};
pub use tensor::{DType, Element, Layout};
