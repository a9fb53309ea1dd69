//! How much work goes to whom. Chunks are large enough that handing one over costs little beside the work in it, and
//! small enough that all workers end a batch together.

use std::time::Instant;

use super::workers::Life;
use super::{Action, Supervisor};
use crate::worker::{Chunk, Done, Outcome, TASKS};

/// The least work in a chunk, so that handing it over and, at times, waking its worker is little beside it.
const CHUNK_NS: u64 = 200_000;

/// The work that each worker is kept ahead: longer than the host is ever away in normal running.
const DEBT_NS: u64 = 2_000_000;

/// The fewest chunks that each worker is kept ahead, however long they take.
const DEBT_CHUNKS: usize = 2;

/// What a sample costs, from what samples did cost.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// Moving average in nanoseconds; zero until something was measured.
    sample_ns: u64,
}

impl Cost {
    /// Takes in a report.
    pub(super) fn observe(&mut self, count: u32, done: &Done) {
        if done.outcome != Outcome::Filled || count == 0 {
            return;
        }
        // A worker's word: bounded, so that a wrong one costs speed and nothing else.
        let ns = (done.times.work_ns() / u64::from(count)).clamp(1, 1 << 40);
        self.sample_ns = if self.sample_ns == 0 { ns } else { (self.sample_ns * 7 + ns) / 8 };
    }

    /// Returns how many samples make a chunk. One, as long as nothing is known.
    fn chunk(&self) -> u32 {
        match self.sample_ns {
            0 => 1,
            ns => CHUNK_NS.div_ceil(ns).min(u64::from(u32::MAX)) as u32,
        }
    }

    /// Returns whether a worker with that many samples and chunks ahead needs no more.
    fn is_enough(&self, samples: u32, chunks: usize) -> bool {
        let ahead = u64::from(samples).saturating_mul(self.sample_ns);
        chunks >= TASKS || (chunks >= DEBT_CHUNKS && (ahead >= DEBT_NS || self.sample_ns == 0))
    }
}

impl Supervisor {
    /// Hands out chunks, the oldest batch first, each to the worker with the fewest; among those, one that is awake.
    pub(super) fn dispatch(&mut self, now: Instant, awake: &dyn Fn(u32) -> bool) {
        let size = self.cost.chunk();
        for at in 0..self.filling.len() {
            let number = self.filling[at];
            while !self.slabs[number as usize].todo.is_empty() {
                let Some(worker) = self.next_worker(awake) else { return };
                let slab = &mut self.slabs[number as usize];
                let Some(slots) = slab.lease(size) else { break };
                let (first, count) = (slots.start, slots.len() as u32);
                let chunk = Chunk { slab: number, generation: slab.generation, first, count };
                self.workers[worker as usize].lease(chunk, now);
                self.actions.push(Action::Send { worker, chunk });
            }
        }
    }

    fn next_worker(&self, awake: &dyn Fn(u32) -> bool) -> Option<u32> {
        let candidates = self.workers.iter().enumerate().filter(|(_, worker)| {
            worker.life == Life::Ready && !self.cost.is_enough(worker.owed(), worker.leases.len())
        });
        candidates
            .min_by_key(|(number, worker)| (worker.leases.len(), worker.owed(), !awake(*number as u32)))
            .map(|(number, _)| number as u32)
    }
}
