//! Lock-free messages and wake-ups over memory it is handed; it never maps memory and never blocks.

// `pub` in here means: for the rooms above. `lib.rs` alone decides what users see.
#![allow(unreachable_pub)]

pub mod prim;
pub mod ring;
pub mod sleep;

#[cfg(all(test, loom))]
mod explore;
