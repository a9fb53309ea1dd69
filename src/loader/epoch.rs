//! The consumer's side of one epoch: an iterator over its batches.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use super::Plans;
use super::batch::Batch;
use super::checkpoint::{Fingerprint, State};
use super::failure::SampleError;
use super::link::Outlet;
use crate::error::{Error, Result};
use crate::sampler::BatchPlan;
use crate::sync::prim::{AtomicU64, Ordering};

/// The batches of one epoch, in order unless the loader is unordered.
///
/// It may go to another thread. Dropping it in the middle ends the epoch: workers leave its samples at once.
/// An error takes the place of its batch; the next call goes on behind it. An error that ends the loader comes once,
/// and then nothing.
pub struct Epoch {
    outlet: Arc<Outlet>,
    tail: Tail,
    epoch: u64,
    seed: u64,
    plan: BatchPlan,
    /// Batches handed out, errors in a batch's place included.
    taken: u64,
    /// Batches that this epoch hands out in all.
    total: u64,
    /// The first step that has not been handed out.
    next_step: u64,
    /// Steps behind `next_step` that have been handed out.
    ahead: BTreeSet<u64>,
    cut: (u32, u32, u32),
    fingerprint: Fingerprint,
    errors: Vec<SampleError>,
    ended: bool,
}

/// Which epoch a course of several may hand out next: each takes its turn after the one before it was taken whole.
#[derive(Clone, Debug)]
pub(super) struct Tail(Arc<AtomicU64>);

impl Tail {
    pub(super) fn new(epoch: u64) -> Self {
        Tail(Arc::new(AtomicU64::new(epoch)))
    }

    /// Returns whether it is that epoch's turn.
    pub(super) fn is_at(&self, epoch: u64) -> bool {
        self.0.load(Ordering::Acquire) == epoch
    }

    fn pass(&self, epoch: u64) {
        self.0.store(epoch.wrapping_add(1), Ordering::Release);
    }
}

/// Where an epoch begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    pub position: u64,
    pub first_step: u64,
    /// Steps that were handed out before.
    pub done: BTreeSet<u64>,
}

impl Epoch {
    pub(super) fn new(
        outlet: Arc<Outlet>,
        tail: Tail,
        epoch: u64,
        start: &Start,
        plans: &Plans,
        fingerprint: Fingerprint,
    ) -> Self {
        let plan = plans.plan(epoch, start.position);
        let mut this = Epoch {
            outlet,
            tail,
            epoch,
            seed: plans.seed,
            total: plan.steps().saturating_sub(start.first_step + start.done.len() as u64),
            plan,
            taken: 0,
            next_step: start.first_step,
            ahead: start.done.clone(),
            cut: plans.cut(),
            fingerprint,
            errors: Vec::new(),
            ended: false,
        };
        this.settle();
        this
    }

    /// Returns which epoch it is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the samples that could not be made, of all batches handed out so far; after the error that ends the loader,
    /// also of those that were being made.
    pub fn errors(&self) -> &[SampleError] {
        &self.errors
    }

    /// Returns what has been handed out so far, as a checkpoint.
    ///
    /// A batch that an error stood for counts as handed out.
    pub fn state(&self) -> State {
        let position = match self.next_step.min(self.plan.steps()).checked_sub(1) {
            Some(step) => self.plan.position_after(step),
            None => self.plan.start(),
        };
        let mut state = State::new(self.seed, self.epoch, position, self.fingerprint);
        if !self.ahead.is_empty() {
            state.ahead = self.ahead.iter().map(|step| step - self.next_step).collect();
            state.cut = Some(self.cut);
        }
        state
    }

    /// Notes that a step was handed out.
    fn take(&mut self, step: u64) {
        self.taken += 1;
        self.ahead.insert(step);
        self.settle();
    }

    fn settle(&mut self) {
        while self.ahead.remove(&self.next_step) {
            self.next_step += 1;
        }
        if self.taken == self.total && !self.ended {
            self.ended = true;
            self.tail.pass(self.epoch);
        }
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.outlet.next() {
            // An epoch begun later has taken its place.
            Ok(None) => {
                self.ended = true;
                None
            }
            Ok(Some(delivery)) => {
                debug_assert_eq!(delivery.batch.epoch, self.epoch);
                self.take(delivery.batch.step);
                self.errors.extend_from_slice(&delivery.slab.lists.failures);
                Some(Batch::new(delivery))
            }
            Err(error) => {
                self.errors.append(&mut self.outlet.stranded());
                // Only a consumer that keeps every slab can mend what is wrong and go on.
                self.ended = error.kind() != crate::ErrorKind::Timeout;
                Some(Err(error))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = if self.ended { 0 } else { (self.total - self.taken) as usize };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Epoch {}
impl FusedIterator for Epoch {}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch {{ epoch: {}, taken: {} of {} }}", self.epoch, self.taken, self.total)
    }
}

/// Several epochs one after the other, each kept warm while the one before it ends.
///
/// Take each epoch to its end before the next; one that is dropped in the middle only costs what was made ahead.
#[derive(Debug)]
pub struct Epochs<'a> {
    loader: &'a super::Loader,
    epochs: std::ops::Range<u64>,
    course: Option<(Arc<Outlet>, Tail)>,
}

impl<'a> Epochs<'a> {
    pub(super) fn new(loader: &'a super::Loader, epochs: std::ops::Range<u64>) -> Self {
        Epochs { loader, epochs, course: None }
    }
}

impl Iterator for Epochs<'_> {
    type Item = Epoch;

    fn next(&mut self) -> Option<Epoch> {
        let epoch = self.epochs.next()?;
        let start = Start::default();
        let (outlet, tail) = match self.course.take().filter(|(_, tail)| tail.is_at(epoch)) {
            Some(course) => course,
            None => self.loader.open(epoch..self.epochs.end, &start),
        };
        self.course = Some((Arc::clone(&outlet), tail.clone()));
        Some(self.loader.epoch_on(outlet, tail, epoch, &start))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.epochs.size_hint()
    }
}

impl ExactSizeIterator for Epochs<'_> {}
