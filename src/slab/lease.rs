//! The write side of a slab: the right of one worker to fill the slots of one chunk.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{SlabLayout, SlabMemory};

/// The exclusive right to write a run of slots.
///
/// There is one lease a chunk, made from the chunk's task message, and the host hands a slot out again only after the
/// worker that owed it has reported it or is proven dead. So no two leases of a slot live at the same time.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    memory: &'a SlabMemory,
    slots: Range<usize>,
}

impl<'a> Lease<'a> {
    /// Takes the lease of `slots`, once for each task message that the host sent.
    ///
    /// Safe to call, since a process cannot check what the others do; the contract is the supervisor's: it issues no
    /// slot twice, and none of a slab that a [`View`](super::View) reads. Its simulation test holds it to that.
    pub(crate) fn new(memory: &'a SlabMemory, slots: Range<usize>) -> Self {
        Lease { memory, slots }
    }

    /// Returns the pixels of `slot`, to be written.
    ///
    /// # Panics
    /// Panics if the slot is not part of the lease.
    pub(crate) fn image(&mut self, slot: usize) -> &mut [u8] {
        self.bytes(SlabLayout::IMAGE, slot)
    }

    /// Writes the label of `slot`.
    ///
    /// # Panics
    /// Panics if the slot is not part of the lease.
    pub(crate) fn set_label(&mut self, slot: usize, label: i64) {
        self.bytes(SlabLayout::LABEL, slot).copy_from_slice(&label.to_ne_bytes());
    }

    fn bytes(&mut self, field: usize, slot: usize) -> &mut [u8] {
        assert!(self.slots.contains(&slot), "slot {slot} is not in the lease {:?}", self.slots);
        let (start, length) = self.memory.slots(field, slot, 1);
        // SAFETY: `slots` checked that the range lies within the mapping, which `memory` keeps alive; nobody else
        // reads or writes it while the lease lives (the contract of `new`, upheld by the supervisor); `&mut self` keeps the
        // slices of one lease apart; the pages were reserved before they were mapped, so that writing cannot fault.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}
