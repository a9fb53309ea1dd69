//! The atomics of this crate: the real ones, or loom's where loom explores this crate's own unit tests.
//!
//! Every other file takes them from here, so that nothing lock-free escapes the model unseen.

#[cfg(all(test, loom))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
