//! The read side of a slab: a filled batch in the consumer's hands.
#![allow(unsafe_code)]

use super::SlabMemory;

/// The right to read a filled slab.
///
/// It is made when every chunk of the slab was reported done, and until it is dropped the host leases none of the
/// slab's slots. That holds against honest and crashing workers. A *hostile* worker process keeps its mapping and can
/// change the bytes under a view; whoever runs untrusted code in a pipeline copies the batch first.
#[derive(Debug)]
pub(crate) struct View {
    memory: SlabMemory,
}

impl View {
    /// Takes the right to read, once for each delivery that the supervisor orders.
    ///
    /// Safe to call, since a process cannot check what the others do; the contract is the supervisor's: it delivers a
    /// slab when no slot of it is leased, and leases none until the delivery has come back.
    pub(crate) fn new(memory: SlabMemory) -> Self {
        View { memory }
    }

    /// Returns the memory it reads.
    pub(crate) fn memory(&self) -> &SlabMemory {
        &self.memory
    }

    /// Returns `count` slots of `field` from slot `first` as bytes.
    ///
    /// # Panics
    /// Panics if they reach beyond the batch.
    pub(crate) fn bytes(&self, field: usize, first: usize, count: usize) -> &[u8] {
        let (start, length) = self.memory.slots(field, first, count);
        // SAFETY: `slots` checked that the range lies within the mapping, which `self` keeps alive; nobody writes it
        // while the view lives (the contract of `new`, upheld by the supervisor); reserved pages are always readable.
        unsafe { std::slice::from_raw_parts(start, length) }
    }
}
