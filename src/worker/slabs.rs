//! A worker's view of the slabs: which of them it has mapped, and what the host has said of the others.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::frame::{self, Kind};
use super::page::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::slab::{SlabLayout, SlabMemory};
use crate::sys::mapping::Access;
use crate::sys::poll;
use crate::sys::segment::Segment;

/// How long a worker waits for a slab that a task names, before it gives up on its host.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

/// The slabs of a loader whose workers are threads: all of them use the host's own mapping.
#[derive(Debug, Default)]
pub(crate) struct SlabTable(Mutex<Vec<Option<SlabMemory>>>);

impl SlabTable {
    /// Sets the memory of one slab.
    pub(crate) fn set(&self, slab: usize, memory: SlabMemory) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() <= slab {
            table.resize(slab + 1, None);
        }
        table[slab] = Some(memory);
    }

    fn get(&self, slab: usize) -> Option<SlabMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(slab)?.clone()
    }
}

/// How a worker reaches the slabs.
pub(super) enum Slabs {
    /// A process: maps what it is sent, and sends back slots of what it cannot map.
    Process { layout: Arc<SlabLayout>, attached: Vec<Attached>, sends: bool },
    /// A thread.
    Thread(Arc<SlabTable>),
}

/// What a worker process knows of one slab.
#[derive(Clone, Default)]
pub(super) struct Attached {
    /// How often it was handed out.
    count: u32,
    /// Its memory, unless slots are to be sent.
    memory: Option<SlabMemory>,
}

impl Slabs {
    /// Makes sure that the newest memory of `slab` is known.
    ///
    /// # Errors
    /// When the host is gone or says nothing of it in time.
    pub(super) fn attach(&mut self, socket: &UnixStream, control: &Control, slab: u32) -> Result<()> {
        let started = Instant::now();
        while let Slabs::Process { attached, .. } = self {
            let known = attached.get(slab as usize).map(|slab| slab.count);
            if known == Some(control.attachment(slab)) {
                break;
            }
            let ready = poll::wait(&[socket.as_fd()], Some(Duration::from_millis(100)))?;
            if (ready.is(0) && !self.receive(socket)?) || started.elapsed() > ATTACH_LIMIT {
                return Err(Error::new(ErrorKind::Closed, format!("no memory came for slab {slab}")));
            }
        }
        Ok(())
    }

    /// Returns the memory of a slab; `None` when its slots are to be sent.
    ///
    /// # Errors
    /// When a thread is asked to fill a slab that its host has not set up.
    pub(super) fn memory(&self, slab: u32) -> Result<Option<SlabMemory>> {
        match self {
            Slabs::Process { attached, .. } => Ok(attached[slab as usize].memory.clone()),
            Slabs::Thread(table) => table.get(slab as usize).map(Some).ok_or_else(|| {
                Error::new(ErrorKind::SharedMemory, format!("slab {slab} was used before it was reserved"))
            }),
        }
    }

    /// Returns whether reports go over the socket. From the first slab on whose slots are sent, all of them do: two ways at
    /// once would let one report overtake another.
    pub(super) fn reports_over_socket(&self) -> bool {
        matches!(self, Slabs::Process { sends: true, .. })
    }

    /// Takes one message of the host; `false` when the host is gone.
    ///
    /// # Errors
    /// When the slab in it cannot be mapped.
    pub(super) fn receive(&mut self, socket: &UnixStream) -> Result<bool> {
        let mut fds = Vec::new();
        let Some(header) = frame::receive(socket, &mut fds)? else { return Ok(false) };
        let (Slabs::Process { layout, attached, sends }, Some(Kind::Attach)) = (self, header.kind()) else {
            return Err(Error::new(ErrorKind::Io, "the host sent a message that this worker does not know"));
        };
        let [slab, count, _] = header.words;
        let memory = fds.pop().map(|fd| map(fd, layout)).transpose()?;
        *sends |= memory.is_none();
        if let Some(entry) = attached.get_mut(slab as usize) {
            // The former mapping, if any, goes: one slab is one mapping.
            *entry = Attached { count: count as u32, memory };
        }
        Ok(true)
    }
}

fn map(fd: OwnedFd, layout: &Arc<SlabLayout>) -> Result<SlabMemory> {
    let segment = Segment::from_fd(fd, layout.bytes)?;
    let mapping = segment.map(Access::ReadWrite, true)?;
    SlabMemory::new(Arc::new(mapping), Arc::clone(layout))
}
