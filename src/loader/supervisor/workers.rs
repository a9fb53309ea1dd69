//! One worker's life and debts, and whose fault its death was.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use super::{Action, DEATHS_OF_A_SAMPLE, START_TRIES, SampleFailure, Settings, Supervisor, hopeless};
use crate::error::{Error, ErrorKind};
use crate::worker::{Chunk, Failure, Place, Stage};

/// How long a killed process may take to be gone: the kernel ends it at once, unless it hangs in the kernel itself.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);

/// A worker that was ready for so long and owed nothing has failed at nothing when it ends.
const PROVEN: Duration = Duration::from_secs(1);

/// Where a worker stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// There is none.
    #[default]
    Absent,
    /// Started, and has not said yet that it is ready.
    Starting,
    /// Takes chunks.
    Ready,
    /// Told to end, and not gone yet.
    Leaving,
    /// Killed, and not gone yet.
    Dying,
}

/// Why a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::loader) enum Why {
    /// By itself or by a signal; `fault` when what it was doing can be the cause.
    Exited { text: String, fault: bool, place: Option<Place> },
    /// It said that it could not start.
    Refused(String),
    /// We killed it: it took longer than this.
    TimedOut(Duration),
    /// We killed it: it sent what no worker of ours sends.
    Corrupt(&'static str),
}

impl Why {
    /// Returns what the reader can do about it.
    pub(in crate::loader) fn remedy(&self) -> &'static str {
        match self {
            Why::Exited { text, .. } if text.contains("SIGKILL") => {
                "look for an out-of-memory kill (dmesg, memory.events); fewer workers or a larger memory limit help"
            }
            Why::Exited { .. } => "run with .num_workers(0) to see the failure in this process",
            Why::Refused(_) => {
                "mend what it says; the worker program must link the data set and steps of its host"
            }
            Why::TimedOut(_) => "raise .timeout(), or look at the sample and storage it hung on",
            Why::Corrupt(_) => "a step or data set wrote outside its memory: look at its unsafe code",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Exited { text, .. } => f.write_str(text),
            Why::Refused(text) => write!(f, "it refused to start: {text}"),
            Why::TimedOut(limit) => write!(f, "killed after {:.1} s without progress", limit.as_secs_f64()),
            Why::Corrupt(what) => write!(f, "killed for sending {what}"),
        }
    }
}

/// The sample that a worker died on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::loader) struct Suspect {
    pub slab: u32,
    pub slot: u32,
    pub stage: Stage,
    /// Whether the death counts against it.
    pub blamed: bool,
}

/// How many workers each position of an epoch has cost.
#[derive(Debug, Default)]
pub(super) struct Blame {
    deaths: HashMap<(u64, u64), u32>,
}

/// A chunk that a worker owes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    chunk: Chunk,
    /// Slots that it has reported.
    done: u32,
}

impl Lease {
    fn rest(&self) -> std::ops::Range<u32> {
        self.chunk.first + self.done..self.chunk.first + self.chunk.count
    }
}

/// One worker.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub life: Life,
    /// Whether it has ever been ready.
    started: bool,
    /// What it owes, oldest first; it works and reports in this order.
    pub leases: VecDeque<Lease>,
    owed: u32,
    heartbeat: u64,
    /// When it last made progress.
    since: Option<Instant>,
    /// When it last reported, or had nothing to report.
    reported: Option<Instant>,
    /// When it said that it is ready.
    ready: Option<Instant>,
    /// It was told to end, so its end is no death.
    leaving: bool,
    /// Why it was killed.
    verdict: Option<Why>,
}

impl Worker {
    /// Returns the slots it owes.
    pub(super) fn owed(&self) -> u32 {
        self.owed
    }

    /// Gives it a chunk.
    pub(super) fn lease(&mut self, chunk: Chunk, now: Instant) {
        if self.leases.is_empty() {
            (self.since, self.reported) = (Some(now), Some(now));
        }
        self.owed += chunk.count;
        self.leases.push_back(Lease { chunk, done: 0 });
    }

    /// Checks a report against its oldest chunk and takes the slots off it; `None` when they are not the next ones.
    pub(super) fn finish(&mut self, reported: &Chunk, now: Instant) -> Option<Chunk> {
        let lease = self.leases.front_mut()?;
        let rest = lease.rest();
        let right = (reported.slab, reported.generation, reported.first)
            == (lease.chunk.slab, lease.chunk.generation, rest.start);
        if !right || reported.count == 0 || reported.count > rest.len() as u32 {
            return None;
        }
        lease.done += reported.count;
        self.owed -= reported.count;
        if lease.rest().is_empty() {
            self.leases.pop_front();
        }
        (self.since, self.reported) = (Some(now), Some(now));
        Some(*reported)
    }

    /// Returns whether a slot is in the unreported rest of its oldest chunk.
    pub(super) fn owes(&self, slab: u32, generation: u32, slot: u32) -> bool {
        self.leases.front().is_some_and(|lease| {
            (lease.chunk.slab, lease.chunk.generation) == (slab, generation) && lease.rest().contains(&slot)
        })
    }

    /// Takes in its count of samples begun.
    pub(super) fn beat(&mut self, count: u64, now: Instant) {
        if self.heartbeat != count {
            self.heartbeat = count;
            self.since = Some(now);
        }
    }

    /// Forgives the time until now.
    pub(super) fn rearm(&mut self, now: Instant) {
        (self.since, self.reported) = (self.since.map(|_| now), self.reported.map(|_| now));
    }

    /// Returns whether it was killed long ago and is still there.
    pub(super) fn cannot_be_ended(&self, now: Instant) -> bool {
        let killed = self.since.filter(|_| self.life == Life::Dying);
        killed.is_some_and(|killed| now.saturating_duration_since(killed) > KILL_TIMEOUT)
    }

    /// Returns the limit that it has overrun.
    pub(super) fn overdue(&self, now: Instant, settings: &Settings) -> Option<Duration> {
        let limit = match self.life {
            Life::Ready if !self.leases.is_empty() => settings.timeout,
            Life::Starting | Life::Leaving => settings.start_timeout,
            _ => return None,
        };
        let longer = |since: Option<Instant>, limit: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) > limit)
        };
        // Its own word on its progress is believed for as long as its chunk may take in all.
        let chunk = self.leases.front().map_or(1, |lease| lease.rest().len() as u32);
        let late = longer(self.since, limit)
            || (self.life == Life::Ready && longer(self.reported, limit.saturating_mul(chunk)));
        late.then_some(limit)
    }
}

impl Supervisor {
    pub(super) fn spawn(&mut self, worker: u32, now: Instant) {
        let state = &mut self.workers[worker as usize];
        *state = Worker { life: Life::Starting, since: Some(now), ..Worker::default() };
        self.actions.push(Action::Spawn { worker, thread: self.threads });
    }

    pub(super) fn ready(&mut self, worker: u32, now: Instant) {
        let state = &mut self.workers[worker as usize];
        if state.life == Life::Starting {
            state.life = Life::Ready;
            (state.started, state.ready) = (true, Some(now));
            state.since = Some(now);
            self.start_failures = 0;
        }
    }

    /// Returns whether there is, or may be, work for workers.
    fn is_making(&self) -> bool {
        self.making.as_ref().is_some_and(|making| !making.ended) || !self.filling.is_empty()
    }

    /// Lets the workers end when everything was made.
    pub(super) fn dismiss_idle(&mut self, now: Instant) {
        if !self.begun || self.is_making() {
            return;
        }
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if worker.life == Life::Ready && worker.leases.is_empty() {
                (worker.life, worker.leaving, worker.since) = (Life::Leaving, true, Some(now));
                self.actions.push(Action::Dismiss { worker: number as u32 });
            }
        }
    }

    /// Starts the workers that were let go. One that is still leaving is followed when it is gone.
    pub(super) fn call_back(&mut self, now: Instant) {
        for worker in 0..self.settings.workers {
            if self.workers[worker as usize].life == Life::Absent {
                self.spawn(worker, now);
            }
        }
    }

    /// Has a worker killed, once.
    pub(super) fn kill(&mut self, worker: u32, why: Why, now: Instant) {
        let state = &mut self.workers[worker as usize];
        if matches!(state.life, Life::Starting | Life::Ready | Life::Leaving) {
            (state.life, state.since) = (Life::Dying, Some(now));
            state.verdict = Some(why);
            self.actions.push(Action::Kill { worker });
        }
    }

    /// Goes on with the workers that there are. When there are none, threads take over if they may.
    pub(super) fn not_started(&mut self, worker: u32, error: Error, now: Instant) {
        self.workers[worker as usize] = Worker::default();
        if self.workers.iter().any(|worker| worker.life != Life::Absent) {
            return;
        }
        if self.settings.fall_back && !self.threads {
            self.threads = true;
            (0..self.settings.workers).for_each(|worker| self.spawn(worker, now));
        } else {
            self.fail(error);
        }
    }

    /// Takes back what a worker owed, and puts another in its place.
    pub(super) fn gone(&mut self, worker: u32, why: Why, now: Instant) {
        let state = std::mem::take(&mut self.workers[worker as usize]);
        if state.leaving {
            if self.is_making() && !self.failed {
                self.spawn(worker, now);
            }
            return;
        }
        let (timed_out, place) = match (&state.verdict, &why) {
            (Some(Why::TimedOut(_)), Why::Exited { place, .. }) => (true, *place),
            (_, Why::Exited { place, .. }) => (false, *place),
            _ => (false, None),
        };
        let fault = timed_out || (state.verdict.is_none() && matches!(&why, Why::Exited { fault: true, .. }));
        let why = state.verdict.clone().unwrap_or(why);
        let suspect = suspect(&state, place, fault);
        let reissued = self.take_back(worker, &state, suspect, &why);
        if self.failed {
            return;
        }
        // A kill from outside is nobody's failure; but one that goes on for ever must end, so it counts as a restart.
        if !state.started && !matches!(why, Why::Exited { fault: false, .. }) {
            self.start_failures += 1;
            if self.start_failures >= START_TRIES {
                let what = format!("{START_TRIES} workers in a row did not start");
                return self.fail(hopeless(what, &why));
            }
        }
        let proven = state.ready.is_some_and(|ready| now.saturating_duration_since(ready) > PROVEN);
        self.restarts += u32::from(!proven || !state.leases.is_empty());
        if self.threads || !self.settings.replaceable {
            return self.fail(hopeless(format!("worker {worker} is gone and cannot be replaced"), &why));
        }
        let Some(restarts_left) = self.settings.max_restarts.checked_sub(self.restarts) else {
            let what = format!("{} worker deaths without a finished chunk between them", self.restarts);
            return self.fail(hopeless(what, &why));
        };
        self.actions.push(Action::Died { worker, why, suspect, reissued, restarts_left });
        self.spawn(worker, now);
    }

    /// Puts a dead worker's slots back on their slabs; returns how many are to be done again.
    fn take_back(&mut self, worker: u32, state: &Worker, suspect: Option<Suspect>, why: &Why) -> u32 {
        let blamed = suspect.filter(|suspect| suspect.blamed);
        let mut reissued = 0;
        for (place, lease) in state.leases.iter().enumerate().rev() {
            let rest = lease.rest();
            let alone = blamed.filter(|_| place == 0).map(|suspect| suspect.slot);
            let slab = &mut self.slabs[lease.chunk.slab as usize];
            let count = rest.len() as u32;
            if slab.reissue(rest, alone) {
                reissued += count;
            }
        }
        if let Some(suspect) = blamed {
            let slab = &mut self.slabs[suspect.slab as usize];
            let position = slab.span.first_position + u64::from(suspect.slot);
            let deaths = self.blame.deaths.entry((slab.batch.epoch, position)).or_default();
            *deaths += 1;
            if *deaths >= DEATHS_OF_A_SAMPLE && slab.give_up(suspect.slot) {
                *deaths = 0;
                reissued -= 1;
                let message = format!(
                    "it ended its worker {DEATHS_OF_A_SAMPLE} times, in {}: {why}",
                    suspect.stage.name()
                );
                let failure = Failure { kind: ErrorKind::WorkerDied, message, remedy: None };
                let failure = SampleFailure { slot: suspect.slot, worker, failure };
                self.sample_failed(suspect.slab, failure);
            }
        }
        reissued
    }
}

/// Returns the sample that a worker was at when it ended, if its word agrees with what it owed.
fn suspect(state: &Worker, place: Option<Place>, fault: bool) -> Option<Suspect> {
    let (place, lease) = (place?, state.leases.front()?);
    let owed = (lease.chunk.slab, lease.chunk.generation) == (place.slab, place.generation)
        && lease.rest().contains(&place.slot);
    owed.then_some(Suspect { slab: place.slab, slot: place.slot, stage: place.stage, blamed: fault })
}
