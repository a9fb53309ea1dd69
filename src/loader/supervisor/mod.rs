//! Which worker owes which slots, and what each slab is used for: a pure state machine. It is told what happened and
//! when, and says what to do; it reads no clock, no memory and no socket, so that a simulation can run it through
//! every order of events.

mod chunks;
mod failures;
#[cfg(test)]
mod simulation;
mod slabs;
mod workers;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use failures::ErrorBudget;
pub use failures::{MaxErrors, OnError};
pub(super) use slabs::BatchId;
use slabs::{Slab, State};
use workers::{Life, Worker};
pub(super) use workers::{Suspect, Why};

use crate::error::{Error, ErrorKind};
use crate::sampler::{BatchPlan, BatchSpan};
use crate::worker::{Chunk, Done, FIRST_GENERATION, Failure};

/// After so many deaths alone with a worker, a sample is taken to be their cause.
const DEATHS_OF_A_SAMPLE: u32 = 3;

/// After so many failed starts in a row, starting is given up.
const START_TRIES: u32 = 3;

/// How many epochs without samples are passed over in a row.
const EMPTY_EPOCHS: u32 = 1000;

/// A longer gap between two ticks means that this process stood still, not that the workers did.
const GAP: Duration = Duration::from_secs(1);

/// What the supervisor needs to know of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub workers: u32,
    pub slabs: u32,
    /// Deliver batches in order.
    pub ordered: bool,
    /// How long a sample may take.
    pub timeout: Duration,
    /// How long a worker may take to start.
    pub start_timeout: Duration,
    /// Deaths in a row, without a finished chunk between them, that are put up with.
    pub max_restarts: u32,
    /// What a sample that cannot be made does to its batch.
    pub on_error: OnError,
    /// How many samples of an epoch may fail.
    pub max_errors: MaxErrors,
    /// Whether workers stay when there is nothing more to make.
    pub persistent: bool,
    /// Whether a worker can be killed and started again.
    pub replaceable: bool,
    /// Whether threads take over when no process can be started.
    pub fall_back: bool,
}

/// The batches of one or several epochs, from a first step on.
#[derive(Clone)]
pub(super) struct Course {
    /// Tells this course's deliveries from those of a former one.
    pub run: u64,
    /// The epochs still to begin.
    pub epochs: std::ops::Range<u64>,
    /// The first step of the first epoch.
    pub first_step: u64,
    /// Steps of the first epoch that were made before.
    pub done: std::collections::BTreeSet<u64>,
    /// The batches of an epoch.
    pub plan: Arc<dyn Fn(u64) -> BatchPlan + Send + Sync>,
}

impl fmt::Debug for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Course {{ run: {}, epochs: {:?} }}", self.run, self.epochs)
    }
}

/// What happened.
#[derive(Debug)]
pub(super) enum Input {
    /// The loader is built: start the workers.
    Open,
    /// The consumer wants these batches; whatever was made of others is dropped.
    Start(Course),
    /// The consumer wants no more batches of that course.
    Cancel { run: u64 },
    /// A slab has been reserved.
    Reserved { slab: u32 },
    /// There is no memory for slabs.
    Refused { error: Error },
    /// The consumer has given a slab back.
    Returned { slab: u32, generation: u32 },
    /// A worker has understood its setup.
    Ready { worker: u32 },
    /// A worker process could not be started.
    NotStarted { worker: u32, error: Error },
    /// A worker reports.
    Done { worker: u32, done: Done },
    /// A worker has sent what no worker of ours sends.
    Corrupt { worker: u32, what: &'static str },
    /// How many samples a worker has begun.
    Heartbeat { worker: u32, count: u64 },
    /// A worker has ended, and everything it had sent was taken.
    Gone { worker: u32, why: Why },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Start a worker, as a thread of this process or as the loader was built.
    Spawn { worker: u32, thread: bool },
    /// Let a worker end by itself; [`Input::Gone`] follows.
    Dismiss { worker: u32 },
    /// End a worker; [`Input::Gone`] follows.
    Kill { worker: u32 },
    /// Write what a slab is used for next.
    Assign { slab: u32, batch: BatchId, span: BatchSpan },
    /// Send a chunk.
    Send { worker: u32, chunk: Chunk },
    /// Tell the workers to leave a slab.
    CancelSlab { slab: u32, generation: u32 },
    /// Hand a batch to the consumer.
    Deliver { slab: u32, generation: u32, batch: BatchId, span: BatchSpan, result: Result<(), SampleFailure> },
    /// Note that a sample could not be made, and what came of it.
    Failed { slab: u32, failure: SampleFailure, end: SampleEnd },
    /// A worker has died and another takes its place.
    Died { worker: u32, why: Why, suspect: Option<Suspect>, reissued: u32, restarts_left: u32 },
    /// Nothing can be delivered any more.
    Fail { error: Error },
}

/// A sample that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampleFailure {
    pub slot: u32,
    pub worker: u32,
    pub failure: Failure,
}

/// What came of a sample that could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleEnd {
    /// Its batch fails.
    Batch,
    /// Its slot stays empty.
    Empty,
    /// Another sample is made in its place; the how-manieth.
    Substitute(u32),
}

/// The course that is being made.
#[derive(Debug)]
struct Making {
    course: Course,
    epoch: u64,
    plan: BatchPlan,
    /// The next step of `epoch` that may be given a slab.
    step: u64,
    /// Every batch of the course was given a slab.
    ended: bool,
}

impl Making {
    /// Moves to the next batch to make, and returns its epoch and step.
    fn next_step(&mut self) -> Option<(u64, u64)> {
        let mut empty = 0;
        loop {
            let first = self.epoch == self.course.epochs.start;
            while self.step < self.plan.steps() {
                let step = self.step;
                self.step += 1;
                if !(first && self.course.done.contains(&step)) {
                    return Some((self.epoch, step));
                }
            }
            if self.epoch + 1 >= self.course.epochs.end {
                return None;
            }
            self.epoch += 1;
            self.plan = (self.course.plan)(self.epoch);
            self.step = 0;
            // A long course of epochs without samples is not walked to its end in one go.
            empty += u32::from(self.plan.steps() == 0);
            if empty > EMPTY_EPOCHS {
                return None;
            }
        }
    }
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Supervisor {
    settings: Settings,
    slabs: Vec<Slab>,
    workers: Vec<Worker>,
    /// Slabs that are being filled, in the order of their batches.
    filling: VecDeque<u32>,
    making: Option<Making>,
    cost: chunks::Cost,
    blame: workers::Blame,
    restarts: u32,
    start_failures: u32,
    errors: ErrorBudget,
    /// Whether workers are started as threads, since processes could not be.
    threads: bool,
    last_tick: Option<Instant>,
    /// Whether a course was ever begun.
    begun: bool,
    failed: bool,
    actions: Vec<Action>,
}

impl Supervisor {
    pub(super) fn new(settings: Settings) -> Self {
        let slabs = (0..settings.slabs).map(|_| Slab::default()).collect();
        let workers = (0..settings.workers).map(|_| Worker::default()).collect();
        Supervisor {
            slabs,
            workers,
            filling: VecDeque::with_capacity(settings.slabs as usize),
            making: None,
            cost: chunks::Cost::default(),
            blame: workers::Blame::default(),
            restarts: 0,
            start_failures: 0,
            errors: ErrorBudget::default(),
            threads: false,
            last_tick: None,
            begun: false,
            failed: false,
            actions: Vec::new(),
            settings,
        }
    }

    /// Takes in what happened at `now`. What to do about it comes from [`act`](Supervisor::act).
    pub(super) fn step(&mut self, input: Input, now: Instant) {
        match input {
            Input::Open => (0..self.settings.workers).for_each(|worker| self.spawn(worker, now)),
            Input::Start(course) => self.start(course, now),
            Input::Cancel { run } => {
                if self.making.as_ref().is_some_and(|making| making.course.run == run) {
                    self.drop_course();
                }
            }
            Input::Reserved { slab } => {
                let slab = &mut self.slabs[slab as usize];
                if slab.state == State::Absent {
                    slab.state = State::Free;
                }
            }
            Input::Refused { error } => self.fail(error),
            Input::Returned { slab, generation } => self.returned(slab, generation),
            Input::Ready { worker } => self.ready(worker, now),
            Input::NotStarted { worker, error } => self.not_started(worker, error, now),
            Input::Done { worker, done } => self.done(worker, done, now),
            Input::Corrupt { worker, what } => self.kill(worker, Why::Corrupt(what), now),
            Input::Heartbeat { worker, count } => self.workers[worker as usize].beat(count, now),
            Input::Gone { worker, why } => self.gone(worker, why, now),
            Input::Tick => self.tick(now),
        }
    }

    /// Returns what to do, in order. `awake` tells which workers would not have to be woken.
    pub(super) fn act(&mut self, now: Instant, awake: &dyn Fn(u32) -> bool) -> std::vec::Drain<'_, Action> {
        if !self.failed {
            self.assign();
            self.dispatch(now, awake);
            self.deliver();
            if !self.settings.persistent {
                self.dismiss_idle(now);
            }
        }
        self.actions.drain(..)
    }

    /// Returns whether something is expected of a worker, so that time matters.
    pub(super) fn is_busy(&self) -> bool {
        self.workers
            .iter()
            .any(|worker| matches!(worker.life, Life::Starting | Life::Leaving) || !worker.leases.is_empty())
    }

    /// Returns whether a worker owes that slot, so that it may be written for it.
    pub(super) fn owes(&self, worker: u32, slab: u32, generation: u32, slot: u32) -> bool {
        self.workers[worker as usize].owes(slab, generation, slot)
    }

    /// Returns which use a slab is in.
    pub(super) fn generation(&self, slab: u32) -> u32 {
        self.slabs[slab as usize].generation
    }

    /// Returns the state of each slab, as a word.
    pub(super) fn slab_states(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.slabs.iter().map(|slab| slab.state.name())
    }

    fn start(&mut self, course: Course, now: Instant) {
        self.drop_course();
        self.begun = true;
        self.blame = workers::Blame::default();
        let epoch = course.epochs.start;
        if course.epochs.is_empty() {
            return;
        }
        let plan = (course.plan)(epoch);
        let step = course.first_step;
        self.making = Some(Making { course, epoch, plan, step, ended: false });
        if !self.settings.persistent {
            self.call_back(now);
        }
    }

    /// Gives free slabs to the next batches.
    fn assign(&mut self) {
        let Some(making) = &mut self.making else { return };
        for (number, slab) in self.slabs.iter_mut().enumerate() {
            if slab.state != State::Free {
                continue;
            }
            let Some((epoch, step)) = making.next_step() else {
                making.ended = true;
                return;
            };
            let span = making.plan.batch(step);
            let batch = BatchId { run: making.course.run, epoch, step };
            slab.assign(batch, span);
            self.filling.push_back(number as u32);
            self.actions.push(Action::Assign { slab: number as u32, batch, span });
        }
    }

    /// Hands over what is complete: the oldest batches only, or any of the oldest one's epoch if order does not matter.
    fn deliver(&mut self) {
        let mut at = 0;
        while let Some(&number) = self.filling.get(at) {
            let oldest = self.slabs[self.filling[0] as usize].batch.epoch;
            let slab = &mut self.slabs[number as usize];
            if slab.batch.epoch != oldest {
                return;
            }
            if slab.is_complete() {
                self.filling.remove(at);
                let (batch, span, result) = slab.hold();
                let generation = slab.generation;
                self.actions.push(Action::Deliver { slab: number, generation, batch, span, result });
            } else if self.settings.ordered {
                return;
            } else {
                at += 1;
            }
        }
    }

    fn returned(&mut self, slab: u32, generation: u32) {
        let slab = &mut self.slabs[slab as usize];
        if slab.state == State::Held && slab.generation == generation {
            slab.state = State::Free;
        }
    }

    /// Stops making what is being made. Slabs with work under way drain; the others are free at once.
    fn drop_course(&mut self) {
        self.making = None;
        for number in std::mem::take(&mut self.filling) {
            let slab = &mut self.slabs[number as usize];
            slab.abandon();
            if slab.state == State::Draining {
                self.actions.push(Action::CancelSlab { slab: number, generation: slab.generation });
            }
        }
    }

    fn done(&mut self, worker: u32, done: Done, now: Instant) {
        let Some(chunk) = self.workers[worker as usize].finish(&done.chunk, now) else {
            return self.kill(worker, Why::Corrupt("a report on slots that it does not owe"), now);
        };
        self.cost.observe(chunk.count, &done);
        match self.slabs[chunk.slab as usize].finish(&chunk, done.outcome) {
            Ok(Some((slot, failure))) => {
                self.sample_failed(chunk.slab, SampleFailure { slot, worker, failure });
            }
            Ok(None) => {}
            Err(what) => return self.kill(worker, Why::Corrupt(what), now),
        }
        self.restarts = 0;
    }

    fn fail(&mut self, error: Error) {
        if !self.failed {
            self.drop_course();
            self.failed = true;
            self.actions.push(Action::Fail { error });
        }
    }

    fn tick(&mut self, now: Instant) {
        let gap = self.last_tick.replace(now).is_some_and(|last| now.saturating_duration_since(last) > GAP);
        for worker in 0..self.settings.workers {
            let state = &mut self.workers[worker as usize];
            if gap {
                state.rearm(now);
            } else if state.cannot_be_ended(now) {
                let text = format!(
                    "worker {worker} was killed and does not end: it hangs in the kernel, on storage most likely"
                );
                return self.fail(Error::new(ErrorKind::WorkerDied, text).with_remedy(
                    "look at the mounts of the data set (a dead NFS or FUSE server) and start again",
                ));
            } else if let Some(limit) = state.overdue(now, &self.settings) {
                self.kill(worker, Why::TimedOut(limit), now);
            }
        }
    }
}

/// The error of a loader whose workers cannot be kept alive.
fn hopeless(what: String, why: &Why) -> Error {
    Error::new(ErrorKind::WorkerDied, format!("{what}: {why}")).with_remedy(why.remedy())
}

/// The first generation of a slab's use; the workers' cancel words start below it.
const BEFORE_FIRST: u32 = FIRST_GENERATION - 1;
