//! One slab's state: free → filling → held → free, and draining on the way out of a dropped course.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::{BEFORE_FIRST, SampleFailure};
use crate::sampler::BatchSpan;
use crate::worker::{Chunk, Failure, Outcome};

/// Which batch a slab is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::loader) struct BatchId {
    pub run: u64,
    pub epoch: u64,
    pub step: u64,
}

/// What a slab is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Not reserved yet.
    #[default]
    Absent,
    /// Without a batch.
    Free,
    /// Being filled, or filled and waiting for its turn.
    Filling,
    /// With the consumer.
    Held,
    /// Without a batch, but some worker may still write to it.
    Draining,
}

impl State {
    /// Returns the word that reports use.
    pub(super) const fn name(self) -> &'static str {
        match self {
            State::Absent => "absent",
            State::Free => "free",
            State::Filling => "filling",
            State::Held => "held",
            State::Draining => "draining",
        }
    }
}

/// One slab. `todo`, the leases of workers, and the finished slots are always a partition of its batch.
#[derive(Debug)]
pub(super) struct Slab {
    pub state: State,
    pub generation: u32,
    pub batch: BatchId,
    pub span: BatchSpan,
    /// Slots to issue. Ranges are never joined, so that a suspect sample stays alone.
    pub todo: VecDeque<Range<u32>>,
    /// Slots with workers.
    leased: u32,
    /// The failure that takes the batch's place.
    failure: Option<SampleFailure>,
    /// How many other samples were tried in the slots whose own failed.
    attempts: BTreeMap<u32, u32>,
}

impl Default for Slab {
    fn default() -> Self {
        Slab {
            state: State::Absent,
            generation: BEFORE_FIRST,
            batch: BatchId::default(),
            span: BatchSpan::default(),
            todo: VecDeque::new(),
            leased: 0,
            failure: None,
            attempts: BTreeMap::new(),
        }
    }
}

impl Slab {
    /// Takes a batch.
    pub(super) fn assign(&mut self, batch: BatchId, span: BatchSpan) {
        debug_assert!(self.state == State::Free && self.leased == 0);
        self.state = State::Filling;
        self.generation = self.generation.wrapping_add(1);
        (self.batch, self.span) = (batch, span);
        self.failure = None;
        self.attempts.clear();
        self.todo.clear();
        self.todo.push_back(0..span.len);
    }

    /// Takes up to `count` slots from what is to do.
    pub(super) fn lease(&mut self, count: u32) -> Option<Range<u32>> {
        let range = self.todo.front_mut()?;
        let taken = range.start..range.end.min(range.start.saturating_add(count));
        range.start = taken.end;
        if range.start == range.end {
            self.todo.pop_front();
        }
        self.leased += taken.len() as u32;
        Some(taken)
    }

    /// Takes slots back from a worker that is gone; returns whether they are to be done again.
    pub(super) fn reissue(&mut self, slots: Range<u32>, alone: Option<u32>) -> bool {
        self.leased -= slots.len() as u32;
        let again = self.state == State::Filling && self.failure.is_none();
        if again {
            let alone = alone.filter(|slot| slots.contains(slot));
            let cut = match alone {
                Some(slot) => [slots.start..slot, slot..slot + 1, slot + 1..slots.end],
                None => [slots, 0..0, 0..0],
            };
            for range in cut.into_iter().rev().filter(|range| !range.is_empty()) {
                self.todo.push_front(range);
            }
        }
        self.settle();
        again
    }

    /// Takes in a report on slots that a worker had leased; returns the slot that failed, if that matters.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn finish(
        &mut self,
        chunk: &Chunk,
        outcome: Outcome,
    ) -> Result<Option<(u32, Failure)>, &'static str> {
        self.leased -= chunk.count;
        let wanted = self.state == State::Filling && self.failure.is_none();
        let result = match outcome {
            Outcome::Failed(failure) if wanted => Ok(Some((chunk.first + chunk.count - 1, failure))),
            Outcome::Cancelled if wanted => {
                self.todo.push_front(chunk.first..chunk.first + chunk.count);
                Err("a chunk given up that nobody cancelled")
            }
            _ => Ok(None),
        };
        self.settle();
        result
    }

    /// Lets the batch fail; returns whether workers are still at it.
    pub(super) fn fail(&mut self, failure: SampleFailure) -> bool {
        self.failure = Some(failure);
        self.todo.clear();
        self.leased > 0
    }

    /// Returns how many other samples were tried in a slot.
    pub(super) fn attempt(&self, slot: u32) -> u32 {
        self.attempts.get(&slot).copied().unwrap_or(0)
    }

    /// Has a slot filled again, with another sample.
    pub(super) fn try_again(&mut self, slot: u32, attempt: u32) {
        self.attempts.insert(slot, attempt);
        self.todo.push_front(slot..slot + 1);
    }

    /// Takes one slot out of what is to do; returns whether it was there.
    pub(super) fn give_up(&mut self, slot: u32) -> bool {
        let before = self.todo.len();
        self.todo.retain(|range| *range != (slot..slot + 1));
        self.todo.len() < before
    }

    /// Returns whether everything that will be done to its batch has been done.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Filling && self.leased == 0 && self.todo.is_empty()
    }

    /// Passes it to the consumer.
    pub(super) fn hold(&mut self) -> (BatchId, BatchSpan, Result<(), SampleFailure>) {
        self.state = State::Held;
        (self.batch, self.span, self.failure.take().map_or(Ok(()), Err))
    }

    /// Gives its batch up.
    pub(super) fn abandon(&mut self) {
        self.state = State::Draining;
        self.todo.clear();
        self.settle();
    }

    /// A draining slab is free when no worker has any of it.
    fn settle(&mut self) {
        if self.state == State::Draining && self.leased == 0 {
            self.state = State::Free;
        }
    }
}
