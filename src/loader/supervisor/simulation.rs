//! The supervisor against simulated workers that report, stall, lie and die at any moment, and a consumer that takes,
//! keeps, breaks off and starts anew. A failing seed is printed; `FOREBAY_SIM_SEED=N` runs that one alone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Action, BatchId, Course, Input, MaxErrors, OnError, SampleEnd, SampleFailure, Settings, Supervisor, Why,
};
use crate::error::{Error, ErrorKind};
use crate::hash::{SPREAD, mix};
use crate::sampler::{BatchPlan, BatchSpan, Ranks};
use crate::worker::{Chunk, Done, Failure, Outcome, Place, Stage};

/// Splitmix64, from the hash that the samplers use.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(SPREAD);
        mix(self.0) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Default)]
struct SimWorker {
    alive: bool,
    ready: bool,
    /// Killed, and its end not reported yet.
    killed: bool,
    queue: VecDeque<Chunk>,
    /// Slots of the oldest chunk that were reported.
    done: u32,
}

/// What the outside world knows.
struct World {
    rng: Rng,
    now: Instant,
    supervisor: Supervisor,
    workers: Vec<SimWorker>,
    /// For each slab and slot, the worker that may write it.
    writers: BTreeMap<(u32, u32), u32>,
    /// Slots that were filled in the slab's current use.
    filled: Vec<Vec<bool>>,
    generation: Vec<u32>,
    held: Vec<(u32, u32)>,
    is_held: Vec<bool>,
    run: u64,
    plan: BatchPlan,
    epochs: Range<u64>,
    delivered: Vec<BatchId>,
    errors: usize,
    deaths: u64,
    failed: Option<Error>,
    ordered: bool,
    /// A sample that ends every worker, by position.
    poison: Option<u64>,
    spans: Vec<BatchSpan>,
    invalid: usize,
}

const BATCH: u32 = 5;

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let workers = 1 + rng.below(6) as u32;
        let slabs = 1 + rng.below(4) as u32;
        let ordered = rng.chance(60);
        let on_error = [OnError::Skip, OnError::Fail, OnError::Substitute][rng.below(3) as usize];
        let samples = rng.below(40);
        let plan = BatchPlan::new(samples, 0, BATCH, &Ranks::default(), false).unwrap();
        let poison = (rng.chance(30) && samples > 0).then(|| rng.below(samples));
        let settings = Settings {
            workers,
            slabs,
            ordered,
            timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(5),
            max_restarts: u32::MAX,
            on_error,
            max_errors: MaxErrors::Unlimited,
            persistent: rng.chance(70),
            replaceable: true,
            fall_back: false,
        };
        World {
            now: Instant::now(),
            supervisor: Supervisor::new(settings),
            workers: (0..workers).map(|_| SimWorker::default()).collect(),
            writers: BTreeMap::new(),
            filled: vec![vec![false; BATCH as usize]; slabs as usize],
            generation: vec![0; slabs as usize],
            held: Vec::new(),
            is_held: vec![false; slabs as usize],
            run: 0,
            plan,
            epochs: 0..0,
            delivered: Vec::new(),
            errors: 0,
            deaths: 0,
            failed: None,
            ordered,
            poison,
            spans: vec![BatchSpan::default(); slabs as usize],
            invalid: 0,
            rng,
        }
    }

    fn step(&mut self, input: Input) {
        self.supervisor.step(input, self.now);
        self.act();
    }

    fn act(&mut self) {
        let actions: Vec<Action> = self.supervisor.act(self.now, &|worker| worker % 2 == 0).collect();
        for action in actions {
            match action {
                Action::Spawn { worker, .. } => {
                    self.workers[worker as usize] = SimWorker { alive: true, ..SimWorker::default() };
                }
                Action::Kill { worker } | Action::Dismiss { worker } => {
                    self.workers[worker as usize].killed = true;
                }
                Action::Assign { slab, span, .. } => {
                    let at = slab as usize;
                    assert!(!self.is_held[at], "a slab was assigned while the consumer has it");
                    let written = self.writers.range((slab, 0)..(slab + 1, 0)).count();
                    assert_eq!(written, 0, "a slab was assigned while workers may write it");
                    self.filled[at].fill(false);
                    self.generation[at] += 1;
                    self.spans[at] = span;
                }
                Action::Send { worker, chunk } => self.send(worker, chunk),
                Action::CancelSlab { .. } | Action::Died { .. } => {}
                Action::Failed { slab, failure, end } => {
                    self.filled[slab as usize][failure.slot as usize] = end == SampleEnd::Empty;
                    self.invalid += 1;
                }
                Action::Deliver { slab, generation, batch, span, result } => {
                    self.deliver(slab, generation, batch, span, result);
                }
                Action::Fail { error } => self.failed = Some(error),
            }
        }
    }

    fn send(&mut self, worker: u32, chunk: Chunk) {
        let state = &mut self.workers[worker as usize];
        assert!(state.alive && state.ready && !state.killed, "a chunk was sent to nobody");
        assert_eq!(chunk.generation, self.generation[chunk.slab as usize]);
        assert!(!self.is_held[chunk.slab as usize], "a chunk of a slab that the consumer has");
        assert!(chunk.count > 0 && chunk.first + chunk.count <= self.spans[chunk.slab as usize].len);
        for slot in chunk.first..chunk.first + chunk.count {
            let before = self.writers.insert((chunk.slab, slot), worker);
            assert_eq!(before, None, "two workers may write one slot");
        }
        state.queue.push_back(chunk);
    }

    fn deliver(
        &mut self,
        slab: u32,
        generation: u32,
        batch: BatchId,
        span: BatchSpan,
        result: Result<(), SampleFailure>,
    ) {
        assert_eq!(batch.run, self.run, "a batch of a former course was delivered");
        let written = self.writers.range((slab, 0)..(slab + 1, 0)).count();
        assert_eq!(written, 0, "a slab was delivered while workers may write it");
        match result {
            Ok(()) => {
                let slots = &self.filled[slab as usize][..span.len as usize];
                assert!(slots.iter().all(|filled| *filled), "a batch was delivered with a hole");
            }
            Err(_) => self.errors += 1,
        }
        if let (true, Some(last)) = (self.ordered, self.delivered.last()) {
            assert!((last.epoch, last.step) < (batch.epoch, batch.step), "out of order");
        }
        assert!(!self.delivered.contains(&batch), "a batch was delivered twice");
        self.delivered.push(batch);
        self.held.push((slab, generation));
        self.is_held[slab as usize] = true;
    }

    /// Gives one slab back.
    fn give_back(&mut self, at: usize) {
        let (slab, generation) = self.held.swap_remove(at);
        self.is_held[slab as usize] = false;
        self.step(Input::Returned { slab, generation });
    }

    fn start(&mut self) {
        self.run += 1;
        self.delivered.clear();
        let first = self.rng.below(3);
        self.epochs = first..first + 1 + self.rng.below(2);
        let plan = self.plan;
        let course = Course {
            run: self.run,
            epochs: self.epochs.clone(),
            first_step: 0,
            done: Default::default(),
            plan: Arc::new(move |_| plan),
        };
        self.step(Input::Start(course));
    }

    fn wanted(&self) -> usize {
        (self.plan.steps() * (self.epochs.end - self.epochs.start)) as usize
    }

    fn position(&self, chunk: &Chunk, slot: u32) -> u64 {
        self.spans[chunk.slab as usize].first_position + u64::from(slot)
    }

    /// A worker does some of its oldest chunk, or dies of it.
    fn work(&mut self, worker: usize) {
        let state = &self.workers[worker];
        let Some(chunk) = state.queue.front().copied() else { return };
        let first = chunk.first + state.done;
        let left = chunk.first + chunk.count - first;
        let count = 1 + self.rng.below(u64::from(left)) as u32;
        let current = self.generation[chunk.slab as usize] == chunk.generation;
        let poison =
            (first..first + count).find(|slot| current && Some(self.position(&chunk, *slot)) == self.poison);
        if let Some(slot) = poison {
            return self.die(worker, true, Some(slot));
        }
        let outcome = if self.rng.chance(3) {
            let failure = Failure { kind: ErrorKind::Decode, message: "bad".into(), remedy: None };
            Outcome::Failed(failure)
        } else {
            Outcome::Filled
        };
        let good = if outcome == Outcome::Filled { count } else { count - 1 };
        for slot in first..first + count {
            assert_eq!(self.writers.remove(&(chunk.slab, slot)), Some(worker as u32));
            if slot < first + good {
                self.filled[chunk.slab as usize][slot as usize] = true;
            }
        }
        let state = &mut self.workers[worker];
        state.done += count;
        if state.done == chunk.count {
            state.queue.pop_front();
            state.done = 0;
        }
        let done = Done { chunk: Chunk { first, count, ..chunk }, outcome, times: Default::default() };
        self.step(Input::Done { worker: worker as u32, done });
    }

    /// A worker ends; `slot` is what its status says it was at.
    fn die(&mut self, worker: usize, fault: bool, slot: Option<u32>) {
        self.deaths += 1;
        self.writers.retain(|_, writer| *writer != worker as u32);
        let state = std::mem::take(&mut self.workers[worker]);
        let place = slot.zip(state.queue.front()).map(|(slot, chunk)| Place {
            slab: chunk.slab,
            generation: chunk.generation,
            slot,
            stage: Stage::Transform,
        });
        let why = Why::Exited { text: "killed by SIGSEGV".into(), fault, place };
        self.step(Input::Gone { worker: worker as u32, why });
    }

    /// A worker reports what it does not owe: anything at all, or more of its chunk than there is left.
    fn lie(&mut self, worker: usize) {
        let state = &self.workers[worker];
        let owed = state.queue.front().map(|chunk| Chunk {
            first: chunk.first + state.done,
            count: chunk.count - state.done,
            ..*chunk
        });
        let mut word = || self.rng.below(7) as u32;
        let chunk = match owed {
            Some(owed) if word() < 4 => Chunk { count: (owed.count + 1 + word()) * word().min(1), ..owed },
            _ => Chunk { slab: word(), generation: word(), first: word(), count: word() },
        };
        let is_true = owed.is_some_and(|owed| {
            (owed.slab, owed.generation, owed.first) == (chunk.slab, chunk.generation, chunk.first)
                && (1..=owed.count).contains(&chunk.count)
        });
        if !is_true {
            let done = Done { chunk, outcome: Outcome::Filled, times: Default::default() };
            self.step(Input::Done { worker: worker as u32, done });
            assert!(self.workers[worker].killed, "a lie was believed");
        }
    }

    /// Something happens.
    fn happen(&mut self) {
        let worker = self.rng.below(self.workers.len() as u64) as usize;
        let SimWorker { alive, ready, killed, .. } = self.workers[worker];
        match self.rng.below(100) {
            _ if killed => self.die(worker, false, None),
            0..5 if alive => self.die(worker, false, None),
            5..8 if alive && ready => {
                let front =
                    self.workers[worker].queue.front().map(|chunk| chunk.first + self.workers[worker].done);
                self.die(worker, true, front);
            }
            8..9 if alive && ready => self.lie(worker),
            9..10 => self.start(),
            10..11 => self.step(Input::Cancel { run: self.run }),
            11..13 => {
                self.now += Duration::from_secs(1 + self.rng.below(9));
                self.step(Input::Tick);
            }
            13..40 if !self.held.is_empty() => {
                let at = self.rng.below(self.held.len() as u64) as usize;
                self.give_back(at);
            }
            _ if alive && !ready => {
                self.workers[worker].ready = true;
                self.step(Input::Ready { worker: worker as u32 });
            }
            _ if alive => self.work(worker),
            _ => {}
        }
    }

    /// From here on nothing goes wrong (but for the poison): the course must come to its end.
    fn finish(&mut self) {
        self.start();
        for _ in 0..100_000 {
            if self.delivered.len() == self.wanted() || self.failed.is_some() {
                return;
            }
            for worker in 0..self.workers.len() {
                let SimWorker { alive, ready, killed, .. } = self.workers[worker];
                if killed {
                    self.die(worker, false, None);
                } else if alive && !ready {
                    self.workers[worker].ready = true;
                    self.step(Input::Ready { worker: worker as u32 });
                } else if alive {
                    self.work(worker);
                }
            }
            while !self.held.is_empty() {
                self.give_back(0);
            }
        }
        panic!("stuck: {} of {} batches, {:#?}", self.delivered.len(), self.wanted(), self.supervisor);
    }
}

fn simulate(seed: u64) -> (u64, usize) {
    let mut world = World::new(seed);
    world.step(Input::Open);
    for slab in 0..world.generation.len() as u32 {
        world.step(Input::Reserved { slab });
    }
    world.start();
    for _ in 0..400 {
        world.happen();
    }
    world.finish();
    if let Some(error) = &world.failed {
        assert!(error.message().contains("did not start"), "{error}");
    }
    (world.deaths, world.errors + world.invalid)
}

#[test]
fn nothing_is_lost_or_written_twice_whoever_dies() {
    let one = std::env::var("FOREBAY_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..4000, |seed: u64| seed..seed + 1);
    let (mut deaths, mut failures) = (0, 0);
    for seed in seeds.clone() {
        let result = std::panic::catch_unwind(|| simulate(seed));
        let (died, failed) = result.unwrap_or_else(|_| panic!("FOREBAY_SIM_SEED={seed} replays this"));
        deaths += died;
        failures += failed;
    }
    assert!(one.is_some() || (deaths > 100_000 && failures > 1000), "{deaths} deaths, {failures} failures");
}
