//! Doing what the state machine says.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use super::Shell;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::loader::failure::SampleError;
use crate::loader::link::{Delivery, Held, Pipe};
use crate::loader::supervisor::{Action, BatchId, Input, SampleEnd, SampleFailure};
use crate::sampler::BatchSpan;
use crate::slab::{Lease, View};
use crate::sys::poll::Epoll;
use crate::transform::{SampleKey, SampleRng};
use crate::worker::{Chunk, Failure};

impl Shell {
    /// Does what the state machine says, and wakes the workers that got something.
    pub(super) fn act(&mut self, epoll: &Epoll) -> Result<()> {
        loop {
            let seats = &self.work.seats;
            let awake = |worker: u32| seats[worker as usize].is_awake();
            let actions: Vec<Action> = self.supervisor.act(Instant::now(), &awake).collect();
            if actions.is_empty() {
                break;
            }
            // What is done can fail, and that can call for more.
            for action in actions {
                self.perform(action, epoll)?;
            }
        }
        for seat in &mut self.work.seats {
            seat.wake();
        }
        Ok(())
    }

    fn perform(&mut self, action: Action, epoll: &Epoll) -> Result<()> {
        match action {
            Action::Spawn { worker, thread } => self.spawn(worker, thread, epoll),
            Action::Dismiss { worker } => self.work.seats[worker as usize].dismiss(Shutdown::Write),
            Action::Kill { worker } => self.kill(worker),
            Action::Assign { slab, batch, span } => self.assign(slab, batch, span)?,
            Action::Send { worker, chunk } => self.send(worker, chunk),
            Action::CancelSlab { slab, generation } => self.common.control.cancel(slab, generation),
            Action::Deliver { slab, generation, batch, span, result } => {
                self.deliver(slab, generation, batch, span, result);
            }
            Action::Failed { slab, failure, end } => self.sample_failed(slab, failure, end),
            Action::Died { worker, why, suspect, reissued, restarts_left } => {
                self.shared.stats(|stats| stats.restarts += 1);
                let sample = suspect.map(|suspect| {
                    let index = self.common.control.index(suspect.slab, suspect.slot);
                    ((self.dataset.key)(index), index, suspect.stage.name())
                });
                let (cause, remedy) = (why.to_string(), why.remedy());
                let event = Event::WorkerDied { worker, cause, sample, reissued, restarts_left, remedy };
                self.events.emit(&event);
            }
            Action::Fail { error } => {
                self.strand();
                self.shared.fail(&error);
                self.work.outlet = None;
            }
        }
        Ok(())
    }

    fn assign(&mut self, slab: u32, batch: BatchId, span: BatchSpan) -> Result<()> {
        let Some(plan) = &self.work.plan else { return Ok(()) };
        let generation = self.supervisor.generation(slab);
        let plan = plan(batch.epoch);
        let lists = &mut self.work.lists[slab as usize];
        lists.indices.clear();
        lists.valid.clear();
        lists.substituted.clear();
        lists.failures.clear();
        for (slot, position) in span.positions().enumerate() {
            let index = self.sampler.index(batch.epoch, plan.sample_position(position));
            if index >= self.dataset.len {
                let (len, sampler) = (self.dataset.len, &self.sampler);
                let text =
                    format!("position {position} has index {index}, but the data set has {len} samples");
                return Err(Error::new(ErrorKind::Config, text)
                    .with_remedy(format!("correct the sampler ({sampler:?}): indices are below {len}")));
            }
            lists.indices.push(index);
            lists.valid.push(span.is_valid(slot as u32));
            lists.substituted.push(false);
        }
        self.common.control.assign(slab, generation, batch.epoch, span.first_position, &lists.indices);
        Ok(())
    }

    fn send(&mut self, worker: u32, chunk: Chunk) {
        if let Err(what) = self.work.seats[worker as usize].send(&chunk) {
            self.supervisor.step(Input::Corrupt { worker, what }, Instant::now());
        }
    }

    fn deliver(
        &mut self,
        slab: u32,
        generation: u32,
        batch: BatchId,
        span: BatchSpan,
        result: Result<(), SampleFailure>,
    ) {
        let mut lists = std::mem::take(&mut self.work.lists[slab as usize]);
        // As they came, but for the attempts at one position, which came one by one.
        lists.failures.sort_by_key(|failure| failure.position);
        let result = result.map_err(|failed| {
            let slot = failed.slot as usize;
            let index = lists.indices[slot];
            Error::from(failed.failure)
                .with_path((self.dataset.key)(index))
                .with_index(index)
                .with_position(span.first_position + slot as u64)
                .with_worker(failed.worker)
        });
        let view = View::new(self.pool.slabs()[slab as usize].memory.clone());
        let door = self.door.clone();
        let held = Held::new(view, lists, (slab, generation), door, Arc::clone(&self.shared));
        let delivery = Delivery { batch, span, slab: held, result };
        // A delivery that nobody wants gives its slab back as it is dropped.
        if let Some(pipe) = self.work.outlet.as_ref().filter(|pipe| pipe.is_of(batch.run)) {
            pipe.send(delivery);
        }
    }

    /// Keeps what is known of samples whose batches will not be delivered: it may be why.
    fn strand(&mut self) {
        let mut failures = self.work.outlet.as_ref().map(Pipe::strand).unwrap_or_default();
        failures.extend(self.work.lists.iter_mut().flat_map(|lists| lists.failures.drain(..)));
        failures.sort_by_key(|failure| (failure.epoch, failure.position));
        self.shared.strand(failures.into_iter());
    }

    /// Notes a failure, and puts another sample in its place if that is wanted.
    fn sample_failed(&mut self, slab: u32, failed: SampleFailure, end: SampleEnd) {
        let lists = &mut self.work.lists[slab as usize];
        let slot = failed.slot as usize;
        let (index, epoch) = (lists.indices[slot], self.common.control.epoch(slab));
        let position = self.common.control.position(slab, failed.slot);
        let mut substitute = None;
        match end {
            SampleEnd::Batch => {}
            SampleEnd::Empty => {
                lists.valid[slot] = false;
                // A worker that died over it left what it had written.
                let mut lease = Lease::new(&self.pool.slabs()[slab as usize].memory, slot..slot + 1);
                lease.image(slot).fill(0);
                lease.set_label(slot, 0);
            }
            SampleEnd::Substitute(attempt) => {
                let key = SampleKey::new(self.seed, epoch, position);
                let mut rng = SampleRng::root(key).child("substitute", attempt as usize);
                let other = rng.range(0, self.dataset.len);
                lists.indices[slot] = other;
                lists.substituted[slot] = true;
                self.common.control.set_index(slab, failed.slot, other);
                substitute = Some(other);
            }
        }
        let Failure { kind, message, .. } = failed.failure;
        let key = (self.dataset.key)(index);
        lists.failures.push(SampleError { epoch, position, index, key, kind, message, substitute });
    }
}
