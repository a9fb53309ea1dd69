//! Workers die, hang or never start: the consumer gets the same batches, or one precise error.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does
#![allow(clippy::exit)] // a sample that ends its worker is what is tested

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Dice, PROCESS_TRANSPORTS, Process, Seen, alone, count, median_and_worst, samples, seen, wait_until,
    workers,
};
use forebay::dataset::{Payload, WorkerInfo};
use forebay::prelude::*;
use forebay::{Error, ErrorKind, Event, LoaderBuilder, Result};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

forebay::test_support!();

const SAMPLES: u64 = 203;

fn undisturbed() -> LoaderBuilder {
    let samples = Synthetic::new(SAMPLES, 40, 30).with_delay(Duration::from_micros(200));
    Loader::builder(samples)
        .transform(RandomResizedCrop::new(16))
        .transform(Normalize::IMAGENET)
        .batch_size(8)
        .num_workers(3)
        .shuffle(true)
        .seed(9)
}

fn reference(epoch: u64) -> Vec<Seen> {
    samples(undisturbed().num_workers(0).build().unwrap().epoch(epoch))
}

/// Causes of the deaths that a loader has told.
#[derive(Clone, Default)]
struct Deaths(Arc<Mutex<Vec<(String, Instant)>>>);

impl Deaths {
    /// Has a loader tell its deaths here; no other event is expected of it.
    fn of(&self, builder: LoaderBuilder) -> LoaderBuilder {
        let deaths = self.clone();
        builder.on_event(move |event| match event {
            Event::WorkerDied { cause, .. } => {
                deaths.0.lock().unwrap().push((cause.to_string(), Instant::now()));
            }
            other => panic!("{other}"),
        })
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn causes(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(cause, _)| cause.clone()).collect()
    }
}

/// Kills running workers at random moments until there were `kills`; returns when each was killed.
fn kill_at_random(kills: usize, pause_below_ms: u64, mut dice: Dice) -> Vec<Instant> {
    let mut killed: Vec<(Process, Instant)> = Vec::new();
    while killed.len() < kills {
        thread::sleep(dice.millis_below(pause_below_ms));
        let mut alive = workers();
        alive.retain(|worker| !killed.iter().rev().take(64).any(|(dead, _)| dead == worker));
        if alive.is_empty() {
            continue;
        }
        let victim = alive.swap_remove(dice.below(alive.len() as u64) as usize);
        if victim.signal(Signal::KILL) {
            killed.push((victim, Instant::now()));
        }
    }
    killed.into_iter().map(|(_, at)| at).collect()
}

#[test]
fn killed_workers_change_nothing_on_any_transport() {
    alone("killed_workers_change_nothing_on_any_transport", 240, || {
        for transport in PROCESS_TRANSPORTS {
            let (deaths, kills) = (Deaths::default(), count("FOREBAY_TEST_KILLS_A_TRANSPORT", 12));
            let loader = deaths.of(undisturbed()).transport(transport).build().unwrap();
            let dice = Dice::new();
            let killer = thread::spawn(move || kill_at_random(kills, 40, dice));
            let mut epoch = 0;
            while epoch < 3 || !killer.is_finished() {
                let got = samples(loader.epoch(epoch));
                assert!(got == reference(epoch), "{transport}, epoch {epoch}");
                epoch += 1;
            }
            killer.join().unwrap();
            wait_until(|| deaths.count() >= kills);
            assert_eq!(deaths.count(), kills);
            assert!(deaths.causes().iter().all(|cause| cause.contains("SIGKILL")), "{:?}", deaths.causes());
            assert_eq!((loader.stats().failed, loader.stats().restarts), (0, kills as u64));
            println!("{transport}: {kills} kills over {epoch} epochs");
        }
    });
}

/// The long run: many kills over the epochs of one run.
#[test]
fn kills_at_random_moments_of_one_run_lose_and_repeat_nothing() {
    alone("kills_at_random_moments_of_one_run_lose_and_repeat_nothing", 1800, || {
        let (deaths, kills) = (Deaths::default(), count("FOREBAY_TEST_KILLS", 60));
        // Workers that idle since every slab is full are killed as well, without a chunk between them.
        let loader = deaths.of(undisturbed()).max_restarts(1000).build().unwrap();
        let slabs = loader.prefetch() as usize + 1;
        let dice = Dice::new();
        let killer = thread::spawn(move || kill_at_random(kills, 50, dice));
        let (mut epochs, mut handed_out) = (Vec::new(), Vec::new());
        for epoch in loader.epochs(u64::MAX) {
            let mut got = Vec::new();
            for batch in epoch {
                let batch = batch.unwrap();
                got.extend(seen(&batch));
                handed_out.push(Instant::now());
            }
            got.sort();
            epochs.push(got);
            if killer.is_finished() {
                break;
            }
        }
        let killed = killer.join().unwrap();
        wait_until(|| deaths.count() >= kills);
        assert_eq!(deaths.count(), kills);
        assert_eq!((loader.stats().failed, loader.stats().restarts), (0, kills as u64));
        for (epoch, got) in epochs.iter().enumerate() {
            assert!(*got == reference(epoch as u64), "epoch {epoch}");
        }
        // A kill is over when every batch that can have been under way has been handed out.
        let recovery = killed.iter().filter_map(|&at| {
            let next = handed_out.partition_point(|time| *time < at);
            Some(handed_out.get(next + slabs - 1)?.duration_since(at))
        });
        let (median, worst) = median_and_worst(recovery.collect());
        println!(
            "{kills} kills, {} restarts, {} epochs, {} batches: 0 samples lost, repeated or failed; \
             recovery median {median:.1} ms, worst {worst:.1} ms",
            loader.stats().restarts,
            epochs.len(),
            handed_out.len()
        );
    });
}

#[test]
fn a_worker_that_stands_still_is_replaced() {
    alone("a_worker_that_stands_still_is_replaced", 120, || {
        let deaths = Deaths::default();
        let loader = deaths.of(undisturbed()).timeout(Duration::from_millis(800)).build().unwrap();
        assert!(samples(loader.epoch(0)) == reference(0));
        let stopped = workers().swap_remove(0);
        assert!(stopped.signal(Signal::STOP));
        let mut epoch = 1;
        while deaths.count() == 0 {
            assert!(samples(loader.epoch(epoch)) == reference(epoch), "epoch {epoch}");
            epoch += 1;
        }
        assert!(!stopped.is_alive());
        assert_eq!(deaths.count(), 1);
        assert!(deaths.causes()[0].contains("0.8 s without progress"), "{:?}", deaths.causes());
        assert_eq!(loader.stats().failed, 0);
    });
}

/// What a sample does to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Deed {
    Nothing,
    Abort,
    Fault,
    Exit,
    Hang,
    Panic,
}

impl Deed {
    fn act(self) {
        match self {
            Deed::Nothing => {}
            Deed::Abort => std::process::abort(),
            // The first one meets the runtime's handler for stack overflows, which then stands aside.
            Deed::Fault => loop {
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::SEGV);
            },
            Deed::Exit => std::process::exit(7),
            Deed::Hang => loop {
                thread::sleep(Duration::from_secs(1));
            },
            Deed::Panic => panic!("a sample that panics"),
        }
    }

    /// What the report on it says.
    fn cause(self) -> &'static str {
        match self {
            Deed::Nothing => "",
            Deed::Abort => "SIGABRT",
            Deed::Fault => "SIGSEGV",
            Deed::Exit => "code 7",
            Deed::Hang => "0.5 s without progress",
            Deed::Panic => "a sample that panics",
        }
    }
}

/// 64 pictures, one of which is a trap; or every start is one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trap {
    at_read: Deed,
    at_start: Deed,
    refuses: bool,
    every: bool,
}

const TRAP: u64 = 29;
const TRAPS: u64 = 64;
const NO_TRAP: Trap = Trap { at_read: Deed::Nothing, at_start: Deed::Nothing, refuses: false, every: false };

#[typetag::serde]
impl Dataset for Trap {
    fn len(&self) -> u64 {
        TRAPS
    }

    fn start(&mut self, _: &WorkerInfo) -> Result<()> {
        self.at_start.act();
        match self.refuses {
            true => Err(Error::new(ErrorKind::Dataset, "the shelf is locked")),
            false => Ok(()),
        }
    }

    fn read(&mut self, index: u64, record: &mut Record) -> Result<()> {
        if index == TRAP || self.every {
            self.at_read.act();
        }
        record.bytes.extend((0..48).map(|at| (index * 5 + at) as u8));
        record.payload = Payload::Rgb8 { width: 4, height: 4 };
        record.label = index as i64;
        Ok(())
    }

    fn key(&self, index: u64) -> String {
        format!("shelf/{index}")
    }

    fn image_size(&self) -> Option<(u32, u32)> {
        Some((4, 4))
    }
}

/// A step that is a trap for the same picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Snare(Deed);

#[typetag::serde]
impl Transform for Snare {
    fn apply(&self, sample: &mut Sample, _: &mut SampleRng) -> Result<()> {
        if sample.label() == TRAP as i64 {
            self.0.act();
        }
        Ok(())
    }
}

fn trapped(at_read: Deed, in_step: Deed) -> LoaderBuilder {
    Loader::builder(Trap { at_read, ..NO_TRAP })
        .transform(Snare(in_step))
        .output(DType::U8, Layout::Nhwc)
        .batch_size(8)
        .num_workers(2)
        .shuffle(true)
        .timeout(Duration::from_millis(500))
        .on_event(|_| {})
}

/// Each deed in the data set and in a step, with the stage that its report names.
fn deeds() -> impl Iterator<Item = (Deed, Deed, Deed, &'static str)> {
    [Deed::Abort, Deed::Fault, Deed::Exit, Deed::Hang, Deed::Panic]
        .into_iter()
        .flat_map(|deed| [(deed, deed, Deed::Nothing, "read"), (deed, Deed::Nothing, deed, "transform")])
}

#[test]
fn a_sample_that_ends_its_workers_is_one_empty_slot_under_skip() {
    alone("a_sample_that_ends_its_workers_is_one_empty_slot_under_skip", 240, || {
        let mut reference = samples(trapped(Deed::Nothing, Deed::Nothing).build().unwrap().epoch(0));
        reference.retain(|sample| sample.index != TRAP);
        for (deed, at_read, in_step, stage) in deeds() {
            let loader = trapped(at_read, in_step).on_error(OnError::Skip).build().unwrap();
            let mut got = samples(loader.epoch(0));
            let empty = got.extract_if(.., |sample| sample.index == TRAP).collect::<Vec<_>>();
            assert!(got == reference, "{deed:?} in {stage}");
            assert!(
                matches!(&empty[..], [Seen { valid: false, label: 0, .. }]),
                "{deed:?} in {stage}: {empty:?}"
            );
            assert!(got.iter().all(|sample| sample.valid));
        }
    });
}

#[test]
fn a_sample_that_ends_its_workers_is_one_precise_error_under_fail() {
    alone("a_sample_that_ends_its_workers_is_one_precise_error_under_fail", 240, || {
        for (deed, at_read, in_step, stage) in deeds() {
            let loader = trapped(at_read, in_step).build().unwrap();
            let (good, bad): (Vec<_>, Vec<_>) =
                loader.epoch(0).map(|batch| batch.map(|batch| batch.len())).partition(Result::is_ok);
            assert_eq!((good.len() as u64, bad.len()), (TRAPS / 8 - 1, 1), "{deed:?} in {stage}");
            let error = bad.into_iter().next().unwrap().unwrap_err();
            let text = error.to_string();
            assert_eq!(error.index(), Some(TRAP), "{text}");
            assert!(error.position().is_some(), "{text}");
            for part in [deed.cause(), "shelf/29"] {
                assert!(text.contains(part), "{deed:?} in {stage} misses {part:?}: {text}");
            }
            match deed {
                Deed::Panic if stage == "read" => assert_eq!(error.kind(), ErrorKind::Dataset, "{text}"),
                Deed::Panic => assert_eq!(error.kind(), ErrorKind::Transform, "{text}"),
                _ => {
                    assert_eq!(error.kind(), ErrorKind::WorkerDied, "{text}");
                    assert!(text.contains(stage), "{deed:?} in {stage}: {text}");
                }
            }
            // The loader is none the worse for it.
            assert_eq!(loader.epoch(1).filter(Result::is_ok).count() as u64, TRAPS / 8 - 1, "{deed:?}");
        }
    });
}

fn first_error(loader: &Loader) -> Error {
    loader.epoch(0).find_map(Result::err).unwrap()
}

#[test]
fn workers_that_die_at_every_start_are_a_start_up_error() {
    alone("workers_that_die_at_every_start_are_a_start_up_error", 120, || {
        for (deed, cause) in
            [(Deed::Abort, "SIGABRT"), (Deed::Exit, "code 7"), (Deed::Panic, "a sample that panics")]
        {
            let start = Instant::now();
            let loader = Loader::builder(Trap { at_start: deed, ..NO_TRAP }).num_workers(2).on_event(|_| {});
            let error = first_error(&loader.build().unwrap());
            assert_eq!(error.kind(), ErrorKind::WorkerDied, "{error}");
            let text = error.to_string();
            assert!(text.contains("3 workers in a row did not start") && text.contains(cause), "{text}");
            println!("{deed:?} at every start: error after {:?}", start.elapsed());
        }
    });
}

#[test]
fn why_a_data_set_does_not_start_is_told() {
    alone("why_a_data_set_does_not_start_is_told", 60, || {
        for transport in [Transport::Memfd, Transport::InProcess] {
            let loader =
                Loader::builder(Trap { refuses: true, ..NO_TRAP }).num_workers(2).transport(transport);
            let loader = loader.on_event(|_| {}).build().unwrap();
            let error = first_error(&loader);
            assert!(error.to_string().contains("the shelf is locked"), "{transport}: {error}");
            // It is told again to whoever asks again.
            assert!(first_error(&loader).to_string().contains("the shelf is locked"));
        }
    });
}

#[test]
fn deaths_without_a_finished_chunk_are_bounded() {
    alone("deaths_without_a_finished_chunk_are_bounded", 120, || {
        let deaths = Deaths::default();
        let builder = Loader::builder(Trap { at_read: Deed::Abort, every: true, ..NO_TRAP }).num_workers(1);
        let loader = deaths.of(builder).on_error(OnError::Skip).max_restarts(4).build().unwrap();
        let error = first_error(&loader);
        assert_eq!(error.kind(), ErrorKind::WorkerDied, "{error}");
        assert!(error.to_string().contains("5 worker deaths"), "{error}");
        assert!(error.to_string().contains("SIGABRT"), "{error}");
        assert_eq!(deaths.count(), 4);
        wait_until(|| workers().is_empty());
    });
}

/// A worker that is dead is not waited for: a loader dropped in the middle of deaths ends all the same.
#[test]
fn a_loader_dropped_amid_deaths_leaves_no_worker() {
    alone("a_loader_dropped_amid_deaths_leaves_no_worker", 120, || {
        let (stop, killed) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice::new();
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(dice.millis_below(15));
                    let alive = workers();
                    let hit = alive.first().is_some_and(|worker| worker.signal(Signal::KILL));
                    killed.fetch_add(usize::from(hit), Ordering::Relaxed);
                }
            });
            for round in 0..count("FOREBAY_TEST_DROPS", 25) {
                let builder = undisturbed().max_restarts(u32::MAX).on_event(|_| {});
                let loader = builder.transport(PROCESS_TRANSPORTS[round % 4]).build().unwrap();
                let taken = loader.epoch(0).take(round % 5).filter(Result::is_ok).count();
                assert!(taken <= round % 5);
                drop(loader);
                assert!(workers().is_empty(), "round {round}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!("{} workers killed", killed.into_inner());
    });
}
