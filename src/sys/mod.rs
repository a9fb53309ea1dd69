//! The operating system: segments and maps of them, descriptors over sockets, doorbells, waiting, starting and ending
//! processes, and what limits them; it does not know what lies in the memory nor what the processes do.

// `pub` in here means: for the rooms above. `lib.rs` alone decides what users see.
#![allow(unreachable_pub)]

mod backing;
mod cgroup;
pub mod doorbell;
pub mod environment;
pub mod fdpass;
pub mod limits;
// Loom's atomics lie differently in memory, so under loom none are mapped.
#[cfg(not(all(test, loom)))]
pub mod mapped;
pub mod mapping;
pub mod output;
mod own;
pub mod poll;
pub mod process;
pub mod segment;
pub mod shared;
pub mod signals;
pub mod turn;
