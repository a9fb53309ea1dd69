//! Slabs: the blocks of memory that each hold one batch. Lays them out, reserves them on a transport, and gives out
//! the right to write (lease) and to read (view). Does not decide who may do either: the loader's supervisor does.

mod layout;
mod lease;
mod memory;
mod pool;
mod transport;
mod view;

pub(crate) use layout::{FieldSpec, PAGE, SlabLayout};
pub(crate) use lease::Lease;
pub(crate) use memory::SlabMemory;
pub(crate) use pool::{Pool, PoolSlab, StepDown};
pub(crate) use transport::Rung;
pub use transport::Transport;
pub(crate) use view::View;
