//! The supervisor's thread: gathers what happened from rings, sockets, pidfds and the consumer, asks the state machine
//! what to do, and does it. Decides nothing itself.

mod perform;
mod reserve;
mod workers;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::link::{Command, Door, Lists, Pipe, Shared};
use super::seat::Seat;
use super::supervisor::{Input, Supervisor};
use crate::error::{ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::plan::Budget;
use crate::sampler::{BatchPlan, Sampler};
use crate::slab::{Pool, StepDown};
use crate::sys::poll::Epoll;
use crate::worker::{Common, Done, Outcome, guarded};

/// How often worker progress is looked at while something is expected of them.
const TICK: Duration = Duration::from_millis(250);

/// The longest sleep of an idle loader. Everything wakes it, so this only bounds what nobody thought of.
const IDLE: Duration = Duration::from_secs(10);

/// How long deaths and sockets may wait while reports keep coming.
const LOOK: Duration = Duration::from_millis(1);

/// Reports that are taken from one worker before the others are looked after: a liar could send for ever.
const REPORTS_A_LOOK: usize = 64;

const BELL: u64 = 0;

/// Everything that the thread owns.
pub(super) struct Shell {
    pub supervisor: Supervisor,
    pub common: Common,
    pub pool: Pool,
    /// Slabs to reserve.
    pub wanted_slabs: u32,
    pub budget: Budget,
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
    outlet: Option<Pipe>,
    plan: Option<Arc<dyn Fn(u64) -> BatchPlan + Send + Sync>>,
    lists: Vec<Lists>,
    last_tick: Option<Instant>,
    closing: bool,
    pool_done: bool,
    climbed: Option<Instant>,
    step_down: Option<StepDown>,
    oom_kills: u64,
}

impl Shell {
    /// Runs until the loader is dropped, and ends all workers.
    pub(super) fn run(mut self) {
        let result = Epoll::new().and_then(|epoll| {
            epoll.add(self.common.host_bell.as_fd(), BELL)?;
            guarded(ErrorKind::Closed, "the loader's own thread", || self.serve(&epoll))
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
        self.work.oom_kills = workers::oom_kills();
        self.supervisor.step(Input::Open, Instant::now());
        let (mut tokens, mut looked) = (Vec::new(), Instant::now());
        loop {
            let found = self.gather();
            self.act(epoll)?;
            if self.work.closing {
                return Ok(());
            }
            let busy = self.reserve_next() || found;
            if busy && looked.elapsed() < LOOK {
                continue;
            }
            self.common.control.host.sleeper.announce();
            let limit = match busy || self.gather() {
                true => Duration::ZERO,
                false if self.supervisor.is_busy() => TICK,
                false => IDLE,
            };
            epoll.wait(&mut tokens, Some(limit))?;
            looked = Instant::now();
            self.common.control.host.sleeper.awake();
            for token in tokens.drain(..) {
                self.ready(token);
            }
            self.tick();
        }
    }

    /// Tells the user of something that is not as it was asked for.
    fn tell(&self, event: &Event) {
        self.shared.stats(|stats| stats.degradations += 1);
        self.events.emit(event);
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
            // The consumer learns why from the error that is set.
            Command::Start(..) if self.shared.fatal().is_some() => {}
            // No epoch has no batches by this road; nobody may wait for them.
            Command::Start(course, _) if course.epochs.is_empty() => {}
            Command::Start(course, pipe) => {
                // Those of a course that was dropped are nobody's any more.
                self.work.lists.iter_mut().for_each(|lists| lists.failures.clear());
                self.work.outlet = Some(pipe);
                self.work.plan = Some(Arc::clone(&course.plan));
                self.supervisor.step(Input::Start(course), now);
            }
            Command::Cancel { run } => {
                if self.work.outlet.as_ref().is_some_and(|pipe| pipe.is_of(run)) {
                    self.work.outlet = None;
                }
                self.supervisor.step(Input::Cancel { run }, now);
            }
            Command::Return { slab, generation, mut lists } => {
                lists.failures.clear();
                self.work.lists[slab as usize] = lists;
                if self.supervisor.generation(slab) == generation {
                    self.climb(slab);
                }
                self.supervisor.step(Input::Returned { slab, generation }, now);
            }
            Command::Close => self.work.closing = true,
        }
    }

    fn gather_reports(&mut self, worker: usize, now: Instant) -> bool {
        let mut found = false;
        for _ in 0..REPORTS_A_LOOK {
            let Some(report) = self.work.seats[worker].next_report() else { break };
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

    fn tick(&mut self) {
        let now = Instant::now();
        if self.work.last_tick.is_some_and(|last| now.saturating_duration_since(last) < TICK) {
            return;
        }
        self.work.last_tick = Some(now);
        let (slabs, control) = (self.pool.slabs(), &self.common.control);
        for (worker, seat) in self.work.seats.iter_mut().enumerate() {
            seat.tell_slabs(slabs, control);
            if let Some(count) = seat.heartbeat() {
                self.supervisor.step(Input::Heartbeat { worker: worker as u32, count }, now);
            }
        }
        self.supervisor.step(Input::Tick, now);
        let states = self.supervisor.slab_states().collect();
        self.shared.stats(|stats| stats.slabs = states);
    }
}
