//! The host's slabs: their memory, the descriptors that workers are sent, and which rung each stands on.

use std::path::PathBuf;
use std::sync::Arc;

use super::transport::reserve;
use super::{Rung, SlabLayout, SlabMemory, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::segment::Segment;

/// One reserved slab.
#[derive(Debug)]
pub(crate) struct PoolSlab {
    /// Its memory in this process.
    pub memory: SlabMemory,
    /// What workers are sent, if they can map it.
    pub segment: Option<Segment>,
    /// What it is made of.
    pub rung: Rung,
}

/// A step down from the memory that was wanted.
#[derive(Debug)]
pub(crate) struct StepDown {
    /// What was tried first.
    pub wanted: Rung,
    /// Why that could not be had.
    pub error: Error,
}

/// The slabs of a loader, reserved one after the other.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How each slab is laid out.
    pub layout: Arc<SlabLayout>,
    transport: Transport,
    strict: bool,
    directory: Option<PathBuf>,
    slabs: Vec<PoolSlab>,
}

impl Pool {
    /// Creates a pool without slabs.
    pub(crate) fn new(
        layout: Arc<SlabLayout>,
        transport: Transport,
        strict: bool,
        directory: Option<PathBuf>,
    ) -> Self {
        Pool { layout, transport, strict, directory, slabs: Vec::new() }
    }

    /// Reserves one more slab, on the best rung that there is memory on, and says when that is not the first.
    ///
    /// `room` is asked before each part of the reservation.
    ///
    /// # Errors
    /// The first rung's refusal, when no rung has memory.
    pub(crate) fn grow(
        &mut self,
        room: &mut dyn FnMut(Rung, usize) -> Result<()>,
    ) -> Result<Option<StepDown>> {
        let mut refused: Option<StepDown> = None;
        for &rung in self.transport.rungs(self.strict) {
            match reserve(rung, self.directory.as_ref(), &self.layout, &mut |bytes| room(rung, bytes)) {
                Ok((memory, segment)) => {
                    self.slabs.push(PoolSlab { memory, segment, rung });
                    return Ok(refused);
                }
                Err(error) => {
                    refused.get_or_insert(StepDown { wanted: rung, error });
                }
            }
        }
        Err(refused.map_or_else(|| Error::new(ErrorKind::Config, "no transport is left"), |step| step.error))
    }

    /// Tries to make a slab that stands on the heap of better memory; returns whether it could be done.
    ///
    /// Nobody may have a lease or view of the slab, and all are to be told of its new memory.
    pub(crate) fn climb(&mut self, slab: usize, room: &mut dyn FnMut(Rung, usize) -> Result<()>) -> bool {
        let better = self.transport.rungs(self.strict).iter().take_while(|rung| **rung != Rung::Heap);
        for &rung in better {
            let reserved =
                reserve(rung, self.directory.as_ref(), &self.layout, &mut |bytes| room(rung, bytes));
            if let Ok((memory, segment)) = reserved {
                self.slabs[slab] = PoolSlab { memory, segment, rung };
                return true;
            }
        }
        false
    }

    /// Returns whether other memory than asked for is refused.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns the reserved slabs.
    pub(crate) fn slabs(&self) -> &[PoolSlab] {
        &self.slabs
    }
}
