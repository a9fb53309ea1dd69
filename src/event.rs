//! What a loader tells its user while it runs: a closed list, each with a stable code, numbers, and the remedy.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Something that the person at the terminal should know. It never changes which batches come, nor their bytes.
///
/// Events go to [`on_event`](crate::LoaderBuilder::on_event) and to the `log` facade; with neither, each is printed as one
/// line (and its remedy) on standard error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A worker ended before its work was done; another has taken its place.
    WorkerDied {
        /// Its number.
        worker: u32,
        /// How it ended.
        cause: String,
        /// The sample it was at: its key, its index and the stage.
        sample: Option<(String, u64, &'static str)>,
        /// Samples that are made again by others.
        reissued: u32,
        /// Deaths that are still put up with before a chunk is finished.
        restarts_left: u32,
        /// What the reader can do.
        remedy: &'static str,
    },
    /// A worker could not be started; the others do its work.
    WorkerNotStarted {
        /// Its number.
        worker: u32,
        /// Why.
        error: Error,
    },
    /// Slabs were made of other memory than asked for.
    Degraded {
        /// The memory that was tried first.
        wanted: &'static str,
        /// How many slabs were wanted.
        slabs: u32,
        /// Bytes of one slab.
        slab_bytes: usize,
        /// The memory that they got, by name and count.
        got: String,
        /// What forced it.
        error: Error,
    },
    /// There are fewer slabs than asked for.
    PoolShrunk {
        /// Slabs that there are.
        slabs: u32,
        /// Slabs that were asked for.
        wanted: u32,
        /// Bytes of one slab.
        slab_bytes: usize,
        /// What forced it.
        error: Error,
    },
}

impl Event {
    /// Returns the stable name of this kind of event.
    pub const fn code(&self) -> &'static str {
        match self {
            Event::WorkerDied { .. } => "worker-died",
            Event::WorkerNotStarted { .. } => "worker-not-started",
            Event::Degraded { .. } => "degraded",
            Event::PoolShrunk { .. } => "pool-shrunk",
        }
    }

    /// Returns what the reader can do about it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Event::WorkerDied { remedy, .. } => Some(remedy),
            Event::WorkerNotStarted { error, .. }
            | Event::Degraded { error, .. }
            | Event::PoolShrunk { error, .. } => error.remedy(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning[{}]: ", self.code())?;
        match self {
            Event::WorkerDied { worker, cause, sample, reissued, restarts_left, .. } => {
                write!(f, "worker {worker} {cause}")?;
                if let Some((key, index, stage)) = sample {
                    write!(f, " at sample {index} ({key}, {stage})")?;
                }
                write!(
                    f,
                    "; {reissued} samples made again, batches unchanged, {restarts_left} restarts left"
                )?;
            }
            Event::WorkerNotStarted { worker, error } => {
                write!(
                    f,
                    "worker {worker} could not be started: {}; the others do its work",
                    error.message()
                )?;
            }
            Event::Degraded { wanted, got, error, .. } => {
                write!(f, "no {wanted} for all slabs: {} -> {got}; batches unchanged", error.message())?;
            }
            Event::PoolShrunk { slabs, wanted, slab_bytes, error } => {
                let mib = *slab_bytes as f64 / f64::from(1 << 20);
                write!(
                    f,
                    "{slabs} of {wanted} slabs of {mib:.1} MiB: {}; batches unchanged",
                    error.message()
                )?;
            }
        }
        match self.remedy() {
            Some(remedy) => write!(f, "\n  fix: {remedy}"),
            None => Ok(()),
        }
    }
}

/// What is called with each event.
type Handler = dyn Fn(&Event) + Send + Sync;

/// Where a loader's events go.
#[derive(Clone, Default)]
pub(crate) struct Sink(Option<Arc<Handler>>);

impl Sink {
    /// Sends events to `handler`.
    pub(crate) fn new(handler: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Sink(Some(Arc::new(handler)))
    }

    /// Tells the user.
    pub(crate) fn emit(&self, event: &Event) {
        let logged = log::log_enabled!(log::Level::Warn);
        if logged {
            log::warn!("{event}");
        }
        match &self.0 {
            Some(handler) => handler(event),
            None if logged => {}
            None => print(event),
        }
    }
}

/// The sink of last resort: the library prints nowhere else.
#[allow(clippy::print_stderr)]
fn print(event: &Event) {
    eprintln!("forebay {event}");
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Sink(handler)" } else { "Sink(stderr)" })
    }
}
