//! What joins the consumer to the supervisor's thread: commands one way, deliveries the other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::failure::SampleError;
use super::supervisor::{BatchId, Course};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::BatchSpan;
use crate::slab::View;
use crate::stats::{Stats, Waits, WorkerStats};
use crate::sync::prim::{AtomicU64, Ordering};
use crate::sys::doorbell::Doorbell;
use crate::sys::limits;
use crate::sys::mapping::Mapping;
use crate::worker::Control;

/// How often a waiting consumer looks whether anything will still come.
const LOOK: Duration = Duration::from_millis(100);

/// What the consumer's side asks for.
pub(super) enum Command {
    /// Make these batches, and put them there.
    Start(Course, Pipe),
    /// Stop making them.
    Cancel { run: u64 },
    /// A slab is free again.
    Return { slab: u32, generation: u32, lists: Lists },
    /// End everything.
    Close,
}

/// Where a course's batches go. The supervisor's thread keeps both ends, so that it can empty what nobody takes any more:
/// batches left in there would keep their slabs from the next course.
pub(super) struct Pipe {
    run: u64,
    sender: Sender<Delivery>,
    receiver: Receiver<Delivery>,
}

impl Pipe {
    /// Returns whether it belongs to that course.
    pub(super) fn is_of(&self, run: u64) -> bool {
        self.run == run
    }

    /// Puts a batch in.
    pub(super) fn send(&self, delivery: Delivery) {
        // The receiving end is ours as well, so it is there.
        let _ = self.sender.send(delivery);
    }

    /// Takes out what nobody has taken yet, and returns the failures of those batches.
    pub(super) fn strand(&self) -> Vec<SampleError> {
        self.receiver.try_iter().flat_map(|mut left| std::mem::take(&mut left.slab.lists.failures)).collect()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        while self.receiver.try_recv().is_ok() {}
    }
}

/// The host's own lists about a batch; they travel with it and come back, so that they are allocated once.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The data set index of each slot.
    pub indices: Vec<u64>,
    /// Whether each slot holds a sample that counts.
    pub valid: Vec<bool>,
    /// Whether each slot holds another sample than the order wanted.
    pub substituted: Vec<bool>,
    /// The samples that could not be made.
    pub failures: Vec<SampleError>,
}

/// The way to the supervisor's thread.
#[derive(Clone)]
pub(super) struct Door {
    commands: Sender<Command>,
    control: Control,
    bell: Arc<Doorbell>,
}

impl Door {
    pub(super) fn new(commands: Sender<Command>, control: Control, bell: Arc<Doorbell>) -> Self {
        Door { commands, control, bell }
    }

    /// Sends a command, and wakes the thread if it sleeps. A thread that has ended needs none.
    pub(super) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() && self.control.host.sleeper.is_sleeping() {
            self.bell.ring();
        }
    }
}

/// One batch on its way to the consumer, or the error in its place.
pub(super) struct Delivery {
    pub batch: BatchId,
    pub span: BatchSpan,
    pub slab: Held,
    pub result: Result<()>,
}

/// A slab outside the supervisor's hands. Dropping it gives the slab back.
pub(super) struct Held {
    pub view: View,
    pub lists: Lists,
    slab: u32,
    generation: u32,
    door: Door,
    shared: Arc<Shared>,
    counted: bool,
}

impl Held {
    pub(super) fn new(
        view: View,
        lists: Lists,
        (slab, generation): (u32, u32),
        door: Door,
        shared: Arc<Shared>,
    ) -> Self {
        Held { view, lists, slab, generation, door, shared, counted: false }
    }

    /// Counts it as kept by the consumer until it is dropped.
    fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            self.shared.kept.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.counted {
            self.shared.kept.fetch_sub(1, Ordering::Relaxed);
        }
        let lists = std::mem::take(&mut self.lists);
        self.door.send(Command::Return { slab: self.slab, generation: self.generation, lists });
    }
}

/// What both sides look at.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Batches that the consumer keeps.
    kept: AtomicU64,
    /// Slabs that there are.
    slabs: AtomicU64,
    /// Not 0 when the loader was dropped.
    closed: AtomicU64,
    mappings: Mutex<Vec<Weak<Mapping>>>,
    stats: Mutex<Stats>,
    waits: Mutex<Waits>,
    fatal: Mutex<Option<Fatal>>,
    /// Samples that could not be made, of batches that will never be handed out since the loader has ended.
    stranded: Mutex<Vec<SampleError>>,
}

/// An error that ends the loader, kept so that every later call can say it again.
#[derive(Clone, Debug)]
struct Fatal {
    kind: ErrorKind,
    message: String,
    remedy: Option<String>,
    path: Option<PathBuf>,
}

impl Shared {
    /// Notes that the loader was dropped.
    pub(super) fn close(&self) {
        self.closed.store(1, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Notes that there is one more slab.
    pub(super) fn add_slab(&self) {
        self.slabs.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a slab is made of.
    pub(super) fn add_mapping(&self, mapping: &Arc<Mapping>) {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(mapping));
    }

    pub(super) fn huge_page_bytes(&self) -> Option<u64> {
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.iter().filter_map(Weak::upgrade).map(|mapping| mapping.huge_pages()).sum()
    }

    pub(super) fn stats<R>(&self, change: impl FnOnce(&mut Stats) -> R) -> R {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the statistics, with what has to be looked up now.
    pub(super) fn snapshot(&self) -> Stats {
        let mut stats = self.stats(|stats| stats.clone());
        stats.waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner).summary();
        for worker in &mut stats.workers {
            worker.resident_bytes = worker.pid.and_then(limits::resident_bytes);
        }
        stats
    }

    /// Notes a worker's start or readiness.
    pub(super) fn set_worker(&self, worker: usize, state: WorkerStats) {
        self.stats(|stats| {
            if stats.workers.len() <= worker {
                stats.workers.resize(worker + 1, WorkerStats::default());
            }
            stats.workers[worker] = state;
        });
    }

    /// Keeps the failures of batches that will never be handed out.
    pub(super) fn strand(&self, failures: impl Iterator<Item = SampleError>) {
        self.stranded.lock().unwrap_or_else(PoisonError::into_inner).extend(failures);
    }

    /// Sets the error that ends the loader; the first one stays.
    pub(super) fn fail(&self, error: &Error) {
        let fatal = Fatal {
            kind: error.kind(),
            message: error.message().to_owned(),
            remedy: error.remedy().map(str::to_owned),
            path: error.path().map(Path::to_owned),
        };
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fatal);
    }

    /// Returns the error that has ended the loader.
    pub(super) fn fatal(&self) -> Option<Error> {
        let fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut error = Error::new(fatal.kind, fatal.message);
        if let Some(remedy) = fatal.remedy {
            error = error.with_remedy(remedy);
        }
        if let Some(path) = fatal.path {
            error = error.with_path(path);
        }
        Some(error)
    }
}

/// The consumer's end of one course. Dropping it ends the course.
pub(super) struct Outlet {
    run: u64,
    deliveries: Receiver<Delivery>,
    door: Door,
    shared: Arc<Shared>,
    hold_timeout: Duration,
    opened: Instant,
    /// Nanoseconds since `opened` that the statistics know of.
    counted: AtomicU64,
}

impl Outlet {
    /// Has a course made, and returns where its batches come out.
    pub(super) fn open(course: Course, door: &Door, shared: &Arc<Shared>, hold_timeout: Duration) -> Self {
        // Each delivery has a slab of its own, so there are never more of them than slabs: sending never blocks.
        let (sender, deliveries) = crossbeam_channel::unbounded();
        let run = course.run;
        let pipe = Pipe { run, sender, receiver: deliveries.clone() };
        door.send(Command::Start(course, pipe));
        Outlet {
            run,
            deliveries,
            door: door.clone(),
            shared: Arc::clone(shared),
            hold_timeout,
            opened: Instant::now(),
            counted: AtomicU64::new(0),
        }
    }

    /// Takes the failures of batches that will never be handed out.
    pub(super) fn stranded(&self) -> Vec<SampleError> {
        std::mem::take(&mut self.shared.stranded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the next batch; `None` when another course has taken the place of this one.
    ///
    /// # Errors
    /// The error that has ended the loader; [`ErrorKind::Timeout`] when the consumer keeps every slab.
    pub(super) fn next(&self) -> Result<Option<Delivery>> {
        let started = Instant::now();
        let result = loop {
            match self.deliveries.recv_timeout(LOOK) {
                Ok(mut delivery) => {
                    delivery.slab.count();
                    break Ok(Some(delivery));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    break match self.shared.fatal() {
                        Some(error) => Err(error),
                        None if self.shared.is_closed() => {
                            Err(Error::new(ErrorKind::Closed, "the loader was dropped"))
                        }
                        None => Ok(None),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let (kept, slabs) =
                (self.shared.kept.load(Ordering::Relaxed), self.shared.slabs.load(Ordering::Relaxed));
            if slabs > 0 && kept >= slabs && started.elapsed() >= self.hold_timeout {
                let seconds = self.hold_timeout.as_secs_f64();
                break Err(Error::new(
                    ErrorKind::Timeout,
                    format!("the consumer has kept {kept} batches of {slabs} slabs for {seconds:.1} s, so none can be filled"),
                )
                .with_remedy(format!("drop batches sooner, copy what must stay, or build with .hold({})", kept + 1)));
            }
        };
        let wait = started.elapsed();
        let open = self.opened.elapsed().as_nanos() as u64;
        let passed = Duration::from_nanos(open - self.counted.swap(open, Ordering::Relaxed).min(open));
        self.shared.stats(|stats| {
            stats.consumer_wait += wait;
            stats.elapsed += passed;
            stats.batches += u64::from(matches!(result, Ok(Some(_))));
        });
        self.shared.waits.lock().unwrap_or_else(PoisonError::into_inner).record(wait);
        result
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outlet {{ run: {} }}", self.run)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.door.send(Command::Cancel { run: self.run });
    }
}
