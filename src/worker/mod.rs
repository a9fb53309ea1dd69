//! Workers: the messages they exchange with the host, the loop each of them runs, and starting one as a process or as
//! a thread. Does not decide which worker does what: the loader's supervisor does.

mod entry;
mod frame;
mod heap;
mod page;
mod process;
mod protocol;
mod run;
mod setup;
mod slabs;
mod thread;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

pub(crate) use entry::{Launch, launch};
pub use entry::{TestSupport, init, worker_entry};
pub(crate) use frame::{Header, Kind, try_send as try_send_frame};
pub(crate) use heap::{Arrival, Inbox, SlotAddress};
pub(crate) use page::{Control, DoneRing, FIRST_GENERATION, Place, Stage, TASKS, TaskRing, WorkerPage};
pub(crate) use process::start as start_process;
pub(crate) use protocol::{Chunk, Done, Failure, Outcome};
pub(crate) use run::guarded;
pub(crate) use setup::{Packed, Setup};
pub(crate) use slabs::SlabTable;
pub(crate) use thread::start as start_thread;

use crate::sync::ring::{Consumer, Producer};
use crate::sys::doorbell::Doorbell;
use crate::sys::mapped::Mapped;
use crate::sys::output::Output;
use crate::sys::process::Child;
use crate::sys::segment::{Backing, Segment};

/// What all workers of a loader share, kept by the host for those that it starts.
pub(crate) struct Common {
    /// How many workers the loader has.
    pub num_workers: u32,
    /// The setup as text, and the tables it refers to.
    pub packed: Packed,
    /// The area that only the host writes.
    pub control: Control,
    /// Wakes the host.
    pub host_bell: Arc<Doorbell>,
    /// The host's own slabs, which threads use.
    pub table: Arc<SlabTable>,
    /// What processes need beside; `None` when all workers are threads.
    pub processes: Option<Processes>,
}

/// What worker processes are started with.
pub(crate) struct Processes {
    /// The program.
    pub launch: Launch,
    /// [`Packed::text`], read-only.
    pub setup: Segment,
    /// The control area's memory.
    pub control: Segment,
    /// What control segments are made of.
    pub backing: Backing,
}

/// The host's ends of everything that joins it to one worker.
pub(crate) struct Ends {
    /// Their shared page.
    pub page: Mapped<WorkerPage>,
    /// Chunks to do.
    pub tasks: Producer<Mapped<TaskRing>>,
    /// Reports.
    pub dones: Consumer<Mapped<DoneRing>>,
    /// Wakes the worker.
    pub bell: Arc<Doorbell>,
    /// Frames both ways; its end is the worker's signal to stop.
    pub socket: UnixStream,
    /// The worker itself.
    pub body: Body,
    /// What a process has printed so far, until it is ready.
    pub output: Option<Output>,
}

/// What runs a worker.
pub(crate) enum Body {
    /// A process of its own.
    Process(Child),
    /// A thread of the host's process.
    Thread(JoinHandle<()>),
}
