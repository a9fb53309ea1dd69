//! One slab's memory as one process sees it: a mapping and the layout that says what lies where.

use std::sync::Arc;

use super::layout::{Field, SlabLayout};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::mapping::Mapping;

/// A mapped slab. Gives no access by itself: a [`Lease`](super::Lease) writes, a [`View`](super::View) reads.
#[derive(Clone, Debug)]
pub(crate) struct SlabMemory {
    mapping: Arc<Mapping>,
    layout: Arc<SlabLayout>,
}

impl SlabMemory {
    /// Joins a mapping and a layout.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when the mapping is smaller than the layout.
    pub(crate) fn new(mapping: Arc<Mapping>, layout: Arc<SlabLayout>) -> Result<Self> {
        if mapping.len() < layout.bytes {
            let (have, need) = (mapping.len(), layout.bytes);
            return Err(Error::new(
                ErrorKind::SharedMemory,
                format!("a slab of {need} bytes was mapped with {have}"),
            ));
        }
        Ok(SlabMemory { mapping, layout })
    }

    /// Returns the layout.
    pub(crate) fn layout(&self) -> &SlabLayout {
        &self.layout
    }

    /// Returns the mapping.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns where `count` slots of `field` from slot `first` begin, and their length in bytes.
    ///
    /// # Panics
    /// Panics if they reach beyond the batch.
    pub(crate) fn slots(&self, field: usize, first: usize, count: usize) -> (*mut u8, usize) {
        let batch = self.layout.batch;
        assert!(first <= batch && count <= batch - first, "slots {first}+{count} of a batch of {batch}");
        let Field { offset, slot_bytes, .. } = self.layout.fields[field];
        // The layout ends within the mapping (checked in `new`), so the offset cannot leave it.
        (self.mapping.as_ptr().wrapping_add(offset + first * slot_bytes), count * slot_bytes)
    }
}
