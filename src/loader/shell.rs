//! The supervisor's thread: gathers what happened from rings, sockets, pidfds and the consumer, asks the state machine
//! what to do, and does it. Decides nothing itself.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::failure::SampleError;
use super::link::{Command, Delivery, Door, Held, Lists, Shared};
use super::seat::{Ended, Seat};
use super::supervisor::{Action, BatchId, Input, SampleEnd, SampleFailure, Supervisor, Why};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::plan::check_room;
use crate::sampler::{BatchPlan, BatchSpan, Sampler};
use crate::slab::{Pool, View};
use crate::sys::poll::Epoll;
use crate::transform::{SampleKey, SampleRng};
use crate::worker::{Arrival, Chunk, Common, Done, Failure, Outcome};

/// How often worker progress is looked at while something is expected of them.
const TICK: Duration = Duration::from_millis(250);

/// The longest sleep of an idle loader. Everything wakes it, so this only bounds what nobody thought of.
const IDLE: Duration = Duration::from_secs(10);

/// How long workers may take to end by themselves before they are killed.
const GRACE: Duration = Duration::from_millis(200);

/// How long a killed process, or a thread that is told to end, is waited for.
const LAST_WAIT: Duration = Duration::from_millis(700);

const BELL: u64 = 0;

/// Everything that the thread owns.
pub(super) struct Shell {
    pub supervisor: Supervisor,
    pub common: Common,
    pub pool: Pool,
    /// Slabs still to reserve.
    pub wanted_slabs: u32,
    pub sampler: Arc<dyn Sampler>,
    pub dataset: KeyedDataset,
    pub seed: u64,
    pub events: Sink,
    pub door: Door,
    pub shared: Arc<Shared>,
    pub commands: Receiver<Command>,
    pub work: Work,
}

/// The data set's length, and its names for samples.
pub(super) struct KeyedDataset {
    pub len: u64,
    pub key: Box<dyn Fn(u64) -> String + Send>,
}

/// What changes as the thread runs.
#[derive(Default)]
pub(super) struct Work {
    seats: Vec<Seat>,
    outlet: Option<(u64, Sender<Delivery>)>,
    plan: Option<Arc<dyn Fn(u64) -> BatchPlan + Send + Sync>>,
    lists: Vec<Lists>,
    last_tick: Option<Instant>,
    closing: bool,
    pool_done: bool,
}

impl Shell {
    /// Runs until the loader is dropped, and ends all workers.
    pub(super) fn run(mut self) {
        let result = Epoll::new().and_then(|epoll| {
            epoll.add(self.common.host_bell.as_fd(), BELL)?;
            self.serve(&epoll)
        });
        if let Err(error) = result {
            self.shared.fail(&error);
        }
        self.work.outlet = None;
        self.end_workers();
    }

    fn serve(&mut self, epoll: &Epoll) -> Result<()> {
        let workers = self.common.num_workers;
        self.work.seats = (0..workers).map(|_| Seat::default()).collect();
        self.work.lists = (0..self.wanted_slabs).map(|_| Lists::default()).collect();
        self.supervisor.step(Input::Open, Instant::now());
        let mut tokens = Vec::new();
        loop {
            let found = self.gather();
            self.act(epoll)?;
            if self.work.closing {
                return Ok(());
            }
            if self.reserve_next() || found {
                continue;
            }
            self.common.control.host.sleeper.announce();
            if !self.gather() {
                epoll.wait(&mut tokens, Some(if self.supervisor.is_busy() { TICK } else { IDLE }))?;
            }
            self.common.control.host.sleeper.awake();
            for token in tokens.drain(..) {
                self.ready(token);
            }
            self.tick();
        }
    }

    /// Takes in commands and reports; returns whether there were any.
    fn gather(&mut self) -> bool {
        let now = Instant::now();
        let mut found = false;
        while let Ok(command) = self.commands.try_recv() {
            found = true;
            self.command(command, now);
        }
        for worker in 0..self.work.seats.len() {
            found |= self.gather_reports(worker, now);
        }
        found
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Start(course, outlet) => {
                self.work.outlet = Some((course.run, outlet));
                self.work.plan = Some(Arc::clone(&course.plan));
                self.supervisor.step(Input::Start(course), now);
            }
            Command::Cancel { run } => {
                if self.work.outlet.as_ref().is_some_and(|(current, _)| *current == run) {
                    self.work.outlet = None;
                }
                self.supervisor.step(Input::Cancel { run }, now);
            }
            Command::Return { slab, generation, lists } => {
                self.work.lists[slab as usize] = lists;
                self.supervisor.step(Input::Returned { slab, generation }, now);
            }
            Command::Close => self.work.closing = true,
        }
    }

    fn gather_reports(&mut self, worker: usize, now: Instant) -> bool {
        let mut found = false;
        while let Some(report) = self.work.seats[worker].next_report() {
            found = true;
            match report {
                Ok(done) => self.report(worker as u32, done, now),
                Err(what) => {
                    self.supervisor.step(Input::Corrupt { worker: worker as u32, what }, now);
                    break;
                }
            }
        }
        found
    }

    fn report(&mut self, worker: u32, done: Done, now: Instant) {
        let (times, failed) = (done.times, matches!(done.outcome, Outcome::Failed(_)));
        let made = if done.outcome == Outcome::Cancelled { 0 } else { u64::from(done.chunk.count) };
        self.shared.stats(|stats| {
            stats.samples += made;
            stats.failed += u64::from(failed);
            stats.bytes = stats.bytes.saturating_add(times.bytes);
            stats.read = stats.read.saturating_add(Duration::from_nanos(times.read_ns));
            stats.decode = stats.decode.saturating_add(Duration::from_nanos(times.decode_ns));
            stats.transform = stats.transform.saturating_add(Duration::from_nanos(times.transform_ns));
            stats.idle = stats.idle.saturating_add(Duration::from_nanos(times.wait_ns));
        });
        self.supervisor.step(Input::Done { worker, done }, now);
    }

    /// Looks after the descriptor that is ready.
    fn ready(&mut self, token: u64) {
        if token == BELL {
            return self.common.host_bell.clear();
        }
        let (worker, is_socket) = ((token - 1) / 2, token.is_multiple_of(2));
        let (number, now) = (worker as u32, Instant::now());
        if is_socket {
            return self.take_socket(number, now);
        }
        // The process has ended. What it had still sent counts.
        self.gather_reports(worker as usize, now);
        self.take_socket(number, now);
        if let Some(ended) = self.work.seats[worker as usize].reap() {
            self.worker_ended(number, ended, now);
        }
    }

    fn take_socket(&mut self, worker: u32, now: Instant) {
        loop {
            let Shell { work, supervisor, pool, .. } = self;
            let arrival = work.seats[worker as usize].receive(&mut |address| {
                let owed = supervisor.owes(worker, address.slab, address.generation, address.slot);
                owed.then(|| &pool.slabs()[address.slab as usize].memory)
            });
            match arrival {
                Arrival::Pending => return,
                Arrival::Ready => self.supervisor.step(Input::Ready { worker }, now),
                Arrival::Refused(text) => self.work.seats[worker as usize].refused = Some(text),
                Arrival::Report(words) => match Done::decode(&words) {
                    Some(done) => self.report(worker, done, now),
                    None => {
                        let what = "a report that makes no sense";
                        return self.supervisor.step(Input::Corrupt { worker, what }, now);
                    }
                },
                Arrival::Corrupt(what) => {
                    return self.supervisor.step(Input::Corrupt { worker, what }, now);
                }
                Arrival::Closed => {
                    // A process is told by its pidfd that it ended; a thread has nothing else.
                    if let Some(ended) = self.work.seats[worker as usize].closed() {
                        self.gather_reports(worker as usize, now);
                        self.worker_ended(worker, ended, now);
                    }
                    return;
                }
            }
        }
    }

    fn worker_ended(&mut self, worker: u32, ended: Ended, now: Instant) {
        let why = match ended {
            Ended::Refused(text) => Why::Refused(text),
            Ended::Exited { text, fault, place } => Why::Exited { text, fault, place },
        };
        self.supervisor.step(Input::Gone { worker, why }, now);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.work.last_tick.is_some_and(|last| now.saturating_duration_since(last) < TICK) {
            return;
        }
        self.work.last_tick = Some(now);
        for (worker, seat) in self.work.seats.iter().enumerate() {
            if let Some(count) = seat.heartbeat() {
                self.supervisor.step(Input::Heartbeat { worker: worker as u32, count }, now);
            }
        }
        self.supervisor.step(Input::Tick, now);
        let states = self.supervisor.slab_states().collect();
        self.shared.stats(|stats| stats.slabs = states);
    }

    /// Does what the state machine says, and wakes the workers that got something.
    fn act(&mut self, epoll: &Epoll) -> Result<()> {
        let seats = &self.work.seats;
        let awake = |worker: u32| seats[worker as usize].is_awake();
        let actions: Vec<Action> = self.supervisor.act(Instant::now(), &awake).collect();
        for action in actions {
            self.perform(action, epoll)?;
        }
        for seat in &mut self.work.seats {
            seat.wake();
        }
        Ok(())
    }

    fn perform(&mut self, action: Action, epoll: &Epoll) -> Result<()> {
        match action {
            Action::Spawn { worker, thread } => self.spawn(worker, thread, epoll),
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
                self.shared.fail(&error);
                self.work.outlet = None;
            }
        }
        Ok(())
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
            SampleEnd::Empty => lists.valid[slot] = false,
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

    fn spawn(&mut self, worker: u32, thread: bool, epoll: &Epoll) {
        let seat = &mut self.work.seats[worker as usize];
        let started = seat.start(&self.common, worker, thread).and_then(|()| {
            seat.register(epoll, 1 + 2 * u64::from(worker))?;
            for (slab, entry) in self.pool.slabs().iter().enumerate() {
                seat.attach(slab as u32, self.common.control.attachment(slab as u32), entry)?;
            }
            Ok(())
        });
        if let Err(error) = started {
            let again = Error::new(error.kind(), error.message().to_owned());
            let again = match error.remedy() {
                Some(remedy) => again.with_remedy(remedy),
                None => again,
            };
            self.events.emit(&Event::WorkerNotStarted { worker, error });
            self.supervisor.step(Input::NotStarted { worker, error: again }, Instant::now());
        }
    }

    fn kill(&mut self, worker: u32) {
        let seat = &mut self.work.seats[worker as usize];
        if let Some(ended) = seat.kill() {
            self.worker_ended(worker, ended, Instant::now());
        }
    }

    fn assign(&mut self, slab: u32, batch: BatchId, span: BatchSpan) -> Result<()> {
        let Some(plan) = &self.work.plan else { return Ok(()) };
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
        self.common.control.assign(slab, batch.epoch, span.first_position, &lists.indices);
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
        let lists = std::mem::take(&mut self.work.lists[slab as usize]);
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
        if let Some((run, outlet)) = &self.work.outlet
            && *run == batch.run
        {
            // A consumer that is gone drops the delivery, which gives the slab back.
            let _ = outlet.send(delivery);
        }
    }

    /// Reserves the next slab, if one is wanted; returns whether there was something to do.
    fn reserve_next(&mut self) -> bool {
        let have = self.pool.slabs().len() as u32;
        if have >= self.wanted_slabs || self.work.pool_done {
            return false;
        }
        match self.pool.grow(&mut check_room) {
            Ok((entry, step)) => {
                if let Some(step) = step {
                    let (wanted, got) = (step.wanted.name(), entry.rung.name());
                    self.events.emit(&Event::Degraded { slab: have, wanted, got, error: step.error });
                }
                self.hand_out(have);
            }
            Err(error) => {
                self.work.pool_done = true;
                if have < 2.min(self.wanted_slabs) {
                    self.shared.fail(&error);
                    self.work.outlet = None;
                } else {
                    let (slab_bytes, wanted) = (self.pool.layout.bytes, self.wanted_slabs);
                    self.events.emit(&Event::PoolShrunk { slabs: have, wanted, slab_bytes, error });
                }
            }
        }
        true
    }

    /// Tells everybody of a slab that has been reserved.
    fn hand_out(&mut self, slab: u32) {
        let entry = &self.pool.slabs()[slab as usize];
        self.common.control.set_attachment(slab, 1);
        self.common.table.set(slab as usize, entry.memory.clone());
        for seat in &mut self.work.seats {
            // A worker that cannot be told is dead, and its successor is told at its start.
            let _ = seat.attach(slab, 1, entry);
        }
        let slabs = self.pool.slabs();
        self.shared.add_slab(entry.memory.mapping());
        self.shared.stats(|stats| {
            stats.transports.push(entry.rung.name());
            stats.slab_bytes = slabs.len() * entry.memory.mapping().len();
        });
        self.supervisor.step(Input::Reserved { slab }, Instant::now());
    }

    /// Ends all workers: those that are idle by themselves, the others by force.
    fn end_workers(&mut self) {
        for (slab, _) in self.pool.slabs().iter().enumerate() {
            let generation = self.supervisor.generation(slab as u32);
            self.common.control.cancel(slab as u32, generation);
        }
        self.work.seats.iter_mut().for_each(Seat::dismiss);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && self.work.seats.iter_mut().any(|seat| !seat.has_ended()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for seat in &mut self.work.seats {
            seat.end(LAST_WAIT);
        }
    }
}
