//! The loop of one worker, the same in a process and in a thread: take a chunk, fill its slots, report.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::heap;
use super::page::{Control, DoneRing, Stage, Status, TaskRing, WorkerPage};
use super::protocol::{Chunk, Done, Failure, Outcome, StageTimes};
use super::slabs::Slabs;
use crate::dataset::{Dataset, Payload, Record};
use crate::decode::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::slab::{Lease, SlabMemory};
use crate::sync::ring::{Consumer, Producer, PushError};
use crate::sys::doorbell::Doorbell;
use crate::sys::mapped::Mapped;
use crate::sys::{fdpass, poll};
use crate::transform::{Compiled, SampleKey};

/// The longest sleep of a worker; also how late a lost wake-up is noticed.
const NAP: Duration = Duration::from_millis(100);

/// How long a worker waits before it looks again whether the host has emptied a full ring.
const FULL_NAP: Duration = Duration::from_millis(1);

/// How often a worker looks at its ring before it goes to sleep: a short while, since falling asleep and being
/// woken are system calls. Not tuned by a bench.
const LOOKS: u32 = 200;

/// A worker's ends of everything that joins it to the host.
pub(super) struct Station {
    pub page: Mapped<WorkerPage>,
    pub tasks: Consumer<Mapped<TaskRing>>,
    pub bell: Arc<Doorbell>,
    pub control: Control,
    pub slabs: Slabs,
    pub out: Outbox,
    /// One sample's pixels, for slabs whose slots are sent.
    pub scratch: Vec<u8>,
}

/// The way back to the host.
pub(super) struct Outbox {
    pub dones: Producer<Mapped<DoneRing>>,
    pub host_bell: Arc<Doorbell>,
    pub control: Control,
    pub socket: UnixStream,
}

/// What a worker makes samples with.
pub(super) struct Work {
    pub dataset: Box<dyn Dataset>,
    pub compiled: Compiled,
    pub seed: u64,
    pub record: Record,
}

/// Serves the host until it is gone.
///
/// # Errors
/// When what joins them is broken: a corrupt ring, a slab that cannot be mapped, a socket that ended.
pub(super) fn run(station: &mut Station, work: &mut Work) -> Result<()> {
    let mut idle_since = Instant::now();
    while let Some(chunk) = station.next_chunk()? {
        let wait_ns = nanos(idle_since);
        station.slabs.attach(&station.out.socket, &station.control, chunk.slab)?;
        station.fill(work, chunk, wait_ns)?;
        idle_since = Instant::now();
    }
    Ok(())
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

impl Station {
    /// Waits for the next chunk; `None` when the host is gone.
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        loop {
            for _ in 0..LOOKS {
                if let Some(words) = self.tasks.try_pop().map_err(|_| corrupt())? {
                    return Ok(Some(Chunk::decode(&words)));
                }
                std::hint::spin_loop();
            }
            self.page.sleeper.announce();
            if let Some(words) = self.tasks.try_pop().map_err(|_| corrupt())? {
                self.page.sleeper.awake();
                return Ok(Some(Chunk::decode(&words)));
            }
            let ready = poll::wait(&[self.bell.as_fd(), self.out.socket.as_fd()], Some(NAP));
            self.page.sleeper.awake();
            let ready = ready?;
            if ready.is(0) {
                self.bell.clear();
            }
            if ready.is(1) && !self.slabs.receive(&self.out.socket)? {
                return Ok(None);
            }
        }
    }

    /// Fills the slots of a chunk and reports each of them.
    fn fill(&mut self, work: &mut Work, chunk: Chunk, wait_ns: u64) -> Result<()> {
        let memory = self.slabs.memory(chunk.slab)?;
        let mut target = Target::new(memory.as_ref(), &mut self.scratch, chunk);
        let via_socket = self.slabs.reports_over_socket();
        let mut report = Report::new(chunk, wait_ns);
        let status = &self.page.status;
        for slot in chunk.first..chunk.first.saturating_add(chunk.count) {
            if self.control.is_cancelled(chunk.slab, chunk.generation) {
                self.out.send(report.take(Outcome::Filled), via_socket)?;
                report.covers = chunk.first + chunk.count - slot;
                return self.out.send(report.take(Outcome::Cancelled), via_socket);
            }
            status.begin(chunk.slab, chunk.generation, slot);
            let index = self.control.index(chunk.slab, slot);
            let position = self.control.position(chunk.slab, slot);
            let key = SampleKey::new(work.seed, self.control.epoch(chunk.slab), position);
            let pixels = target.pixels(slot);
            let filled = work.fill(index, key, pixels, &mut report.times, &|stage| status.stage(slot, stage));
            if filled.is_err() {
                target.pixels(slot).fill(0);
            }
            target.commit(&self.out.socket, slot, *filled.as_ref().unwrap_or(&0), status)?;
            report.covers += 1;
            if let Err(error) = &filled {
                self.out.send(report.take(Outcome::Failed(Failure::from(error))), via_socket)?;
            }
        }
        status.end();
        self.out.send(report.take(Outcome::Filled), via_socket)
    }
}

/// Where the slots of a chunk go.
enum Target<'a> {
    /// Into a slab that this worker has mapped.
    Slab(Lease<'a>),
    /// Over the socket.
    Socket { scratch: &'a mut Vec<u8>, chunk: Chunk },
}

impl<'a> Target<'a> {
    fn new(memory: Option<&'a SlabMemory>, scratch: &'a mut Vec<u8>, chunk: Chunk) -> Self {
        let slots = chunk.first as usize..chunk.first as usize + chunk.count as usize;
        match memory {
            Some(memory) => Target::Slab(Lease::new(memory, slots)),
            None => Target::Socket { scratch, chunk },
        }
    }

    fn pixels(&mut self, slot: u32) -> &mut [u8] {
        match self {
            Target::Slab(lease) => lease.image(slot as usize),
            Target::Socket { scratch, .. } => scratch,
        }
    }

    fn commit(&mut self, socket: &UnixStream, slot: u32, label: i64, status: &Status) -> Result<()> {
        match self {
            Target::Slab(lease) => {
                lease.set_label(slot as usize, label);
                Ok(())
            }
            Target::Socket { scratch, chunk } => {
                status.stage(slot, Stage::Send);
                heap::send_slot(socket, chunk, slot, scratch, label)
            }
        }
    }
}

/// What has been done of a chunk since the last message.
struct Report {
    chunk: Chunk,
    covers: u32,
    times: StageTimes,
}

impl Report {
    fn new(chunk: Chunk, wait_ns: u64) -> Self {
        Report { chunk, covers: 0, times: StageTimes { wait_ns, ..StageTimes::default() } }
    }

    /// Returns the message on the slots since the last one, and begins the next.
    fn take(&mut self, outcome: Outcome) -> Done {
        let chunk = Chunk { count: self.covers, ..self.chunk };
        self.chunk.first += self.covers;
        self.covers = 0;
        Done { chunk, outcome, times: std::mem::take(&mut self.times) }
    }
}

impl Outbox {
    /// Sends a report unless it covers nothing, and wakes the host if it sleeps.
    fn send(&mut self, done: Done, via_socket: bool) -> Result<()> {
        if done.chunk.count == 0 {
            return Ok(());
        }
        let words = done.encode();
        if via_socket {
            return heap::send_report(&self.socket, &words);
        }
        while let Err(error) = self.dones.try_push(&words) {
            if error != PushError::Full {
                return Err(corrupt());
            }
            self.wake_host();
            if fdpass::at_end(self.socket.as_fd()) {
                return Err(Error::new(ErrorKind::Closed, "the host is gone"));
            }
            std::thread::sleep(FULL_NAP);
        }
        self.wake_host();
        Ok(())
    }

    fn wake_host(&self) {
        if self.control.host.sleeper.is_sleeping() {
            self.host_bell.ring();
        }
    }
}

impl Work {
    /// Makes one sample: reads it, and writes its pixels.
    fn fill(
        &mut self,
        index: u64,
        key: SampleKey,
        pixels: &mut [u8],
        times: &mut StageTimes,
        stage: &dyn Fn(Stage),
    ) -> Result<i64> {
        let start = Instant::now();
        self.record.clear();
        let read = guarded(ErrorKind::Dataset, "the data set", || self.dataset.read(index, &mut self.record));
        times.read_ns += nanos(start);
        times.bytes += self.record.bytes.len() as u64;
        read?;
        stage(Stage::Transform);
        let bytes = self.record.bytes.as_slice();
        let source = match self.record.payload {
            Payload::Encoded => Source::Encoded(bytes),
            Payload::Rgb8 { width, height } => Source::Rgb8 { width, height, pixels: bytes },
        };
        let label = self.record.label;
        let ran =
            guarded(ErrorKind::Transform, "the pipeline", || self.compiled.run(source, label, key, pixels))?;
        times.decode_ns += ran.decode_ns;
        times.transform_ns += ran.transform_ns;
        Ok(ran.label)
    }
}

/// The error of a ring whose other side is broken.
fn corrupt() -> Error {
    Error::new(ErrorKind::Io, "the host's ring index is impossible")
}

/// Turns a panic of user code into an error.
pub(crate) fn guarded<T>(kind: ErrorKind, whose: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Err(Error::new(kind, format!("{whose} panicked: {text}")))
    })
}
