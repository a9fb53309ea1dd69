//! Multiprocess image loading for training: workers decode straight into shared-memory slabs.

#[cfg(not(target_os = "linux"))]
compile_error!("forebay runs on Linux only: it stands on memfd, pidfd, epoll and eventfd");

pub mod dataset;
pub mod decode;
mod error;
pub mod sampler;
#[allow(dead_code)] // until the rooms above use all of it
mod sync;
#[allow(dead_code)] // until the rooms above use all of it
mod sys;
mod tensor;
pub mod transform;

pub use error::{Error, ErrorKind, Result};
pub use sys::shared::Shared;
pub use tensor::{DType, Element, Layout};
