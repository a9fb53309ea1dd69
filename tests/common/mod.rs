//! What the tests of death, life cycle and memory share: processes as `/proc` shows them, a process of a test's own
//! with a watchdog, counts from the environment, and an epoch boiled down to what must not change.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // helpers of tests

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use forebay::{Batch, Transport};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The transports whose workers are processes.
pub(crate) const PROCESS_TRANSPORTS: [Transport; 4] =
    [Transport::Memfd, Transport::Shm, Transport::File, Transport::Heap];

/// Names the one test that a process was started for.
const ALONE: &str = "FOREBAY_TEST_ALONE";

/// Returns a count that a longer run sets by an environment variable.
pub(crate) fn count(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
}

/// Runs `body` in a process of its own, so that what it counts is its own; ends it with a message after `seconds`.
pub(crate) fn alone(test: &str, seconds: u64, body: impl FnOnce()) {
    if env::var_os(ALONE).is_some_and(|name| name == test) {
        watchdog(test, seconds);
        return body();
    }
    let output = this_program(test).env(ALONE, test).output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{test}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Aborts the process if it still runs after `seconds`, so that a hang is a failure with a name.
pub(crate) fn watchdog(test: &str, seconds: u64) {
    let test = test.to_owned();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        eprintln!("watchdog: {test} still runs after {seconds} s");
        std::process::abort();
    });
}

/// This test program again, told to run one test.
pub(crate) fn this_program(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// One process, told from a later one of the same number by when it began.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    state: String,
    began: u64,
}

/// The same process, whatever it is doing.
impl PartialEq for Process {
    fn eq(&self, other: &Process) -> bool {
        (self.pid, self.began) == (other.pid, other.began)
    }
}

impl Process {
    /// Reads `/proc/PID/stat`; `None` when there is no such process.
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
        let (state, parent, began) =
            (fields[0].to_owned(), fields[1].parse().ok()?, fields[19].parse().ok()?);
        Some(Process { pid, parent, state, began })
    }

    /// Returns whether it still runs. One that ended and waits to be reaped does not.
    pub(crate) fn is_alive(&self) -> bool {
        Process::read(self.pid).is_some_and(|now| now.began == self.began && !"ZX".contains(&now.state))
    }

    /// Sends a signal to it and to no other process that may have its number by now; returns whether it was there.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(&pidfd, signal).is_ok()
    }
}

fn processes() -> impl Iterator<Item = Process> {
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::read)
}

/// Returns the running children of a process.
pub(crate) fn children_of(pid: u32) -> Vec<Process> {
    processes().filter(|process| process.parent == pid as i32 && !"ZX".contains(&process.state)).collect()
}

/// Returns this process's running workers.
pub(crate) fn workers() -> Vec<Process> {
    children_of(std::process::id())
}

/// Returns the running processes that were started with `NAME=value` in their environment.
pub(crate) fn marked(name: &str, value: &str) -> Vec<Process> {
    let pair = format!("{name}={value}");
    let has = |process: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == pair.as_bytes())
    };
    processes().filter(|process| has(process) && process.is_alive()).collect()
}

/// Returns how long it takes until `done`; the watchdog bounds it.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

/// Throws numbers. The seed is printed, and can be given back by `FOREBAY_TEST_SEED`.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        let clock = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = env::var("FOREBAY_TEST_SEED").map_or_else(|_| clock(), |text| text.parse().unwrap());
        println!("FOREBAY_TEST_SEED={seed}");
        Dice::seeded(seed)
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Dice(seed | 1)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn millis_below(&mut self, bound: u64) -> Duration {
        Duration::from_micros(self.below(bound * 1000))
    }
}

/// What must be the same of a sample however it was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) position: u64,
    pub(crate) index: u64,
    pub(crate) label: i64,
    pub(crate) valid: bool,
    pub(crate) pixels: u64,
}

/// Boils a batch down.
pub(crate) fn seen(batch: &Batch) -> impl Iterator<Item = Seen> + '_ {
    (0..batch.len()).map(|slot| {
        let mut hasher = DefaultHasher::new();
        batch.sample_bytes(slot).hash(&mut hasher);
        Seen {
            position: batch.position() + slot as u64,
            index: batch.indices()[slot],
            label: batch.labels()[slot],
            valid: batch.valid()[slot],
            pixels: hasher.finish(),
        }
    })
}

/// Boils an epoch without errors down, sorted by position.
pub(crate) fn samples(epoch: impl Iterator<Item = forebay::Result<Batch>>) -> Vec<Seen> {
    let mut all: Vec<Seen> = epoch.flat_map(|batch| seen(&batch.unwrap()).collect::<Vec<_>>()).collect();
    all.sort();
    all
}

/// Returns median and worst of some durations in milliseconds.
pub(crate) fn median_and_worst(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    (ms(times.get(times.len() / 2)), ms(times.last()))
}
