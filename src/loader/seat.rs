//! One worker's place: whoever sits in it now, and the host's ends of everything that leads to it.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::slab::{Lease, PoolSlab, SlabMemory};
use crate::stats::WorkerStats;
use crate::sync::ring::PushError;
use crate::sys::output::Output;
use crate::sys::poll::Epoll;
use crate::sys::process::{Child, Exit};
use crate::worker::{
    Arrival, Body, Chunk, Common, Control, Done, Ends, Header, Inbox, Kind, Place, SlotAddress,
    start_process, start_thread, try_send_frame,
};

/// How a worker ended.
pub(super) enum Ended {
    /// It said that it could not start.
    Refused(String),
    /// Otherwise.
    Exited { text: String, fault: bool, place: Option<Place> },
}

/// A worker's place; empty before the first start and after a failed one.
#[derive(Default)]
pub(super) struct Seat {
    ends: Option<Ends>,
    inbox: Inbox,
    /// Why the worker said it could not start.
    pub refused: Option<String>,
    /// Something was pushed that it may not have seen.
    pushed: bool,
    /// When it was started.
    started: Option<Instant>,
    /// It has said that it is ready.
    ready: bool,
    /// Which memory of each slab it was told of: how often that had been handed out.
    told: Vec<u32>,
    /// It has written to its ring what no worker writes, so that nothing more is taken from it.
    corrupt: bool,
}

impl Seat {
    /// Starts a worker here.
    pub(super) fn start(&mut self, common: &Common, worker: u32, thread: bool) -> Result<()> {
        *self = Seat { started: Some(Instant::now()), ..Seat::default() };
        self.ends = Some(match &common.processes {
            Some(processes) if !thread => start_process(common, processes, worker)?,
            _ => start_thread(common, worker)?,
        });
        Ok(())
    }

    /// Has `epoll` say `first` when the process ends, and `first + 1` when something comes over the socket.
    pub(super) fn register(&self, epoll: &Epoll, first: u64) -> Result<()> {
        let Some(ends) = &self.ends else { return Ok(()) };
        if let Body::Process(child) = &ends.body {
            epoll.add(child.pidfd(), first)?;
        }
        epoll.add(ends.socket.as_fd(), first + 1)
    }

    /// Returns what is told of the worker: its process, and how long it took to start if it has just become ready.
    pub(super) fn stats(&self, ready: bool) -> WorkerStats {
        let pid = match self.ends.as_ref().map(|ends| &ends.body) {
            Some(Body::Process(child)) => Some(child.id()),
            _ => None,
        };
        let start = self.started.filter(|_| ready).map(|started| started.elapsed());
        WorkerStats { pid, start, resident_bytes: None }
    }

    /// The worker serves its host from now on: what it printed before is of no more interest.
    pub(super) fn set_ready(&mut self) {
        self.ready = true;
        if let Some(ends) = &mut self.ends {
            ends.output = None;
        }
    }

    /// Tells a worker that is ready of the slabs that it does not know yet, as far as its socket has room.
    pub(super) fn tell_slabs(&mut self, slabs: &[PoolSlab], control: &Control) {
        let Some(Ends { socket, body: Body::Process(_), .. }) = &self.ends else { return };
        if !self.ready {
            return;
        }
        self.told.resize(slabs.len().max(self.told.len()), 0);
        for (slab, entry) in slabs.iter().enumerate() {
            let count = control.attachment(slab as u32);
            if self.told[slab] == count {
                continue;
            }
            let fd = entry.segment.as_ref().map(|segment| segment.as_fd());
            let header = Header::new(Kind::Attach, 0, [slab as u64, u64::from(count), 0]);
            // One that is gone is told by its pidfd; one without room is tried again with the next tick.
            if !try_send_frame(socket, header, fd.as_slice()).unwrap_or(false) {
                return;
            }
            self.told[slab] = count;
        }
    }

    /// Takes one report from the ring; an `Err` says what is wrong with it.
    pub(super) fn next_report(&mut self) -> Option<Result<Done, &'static str>> {
        let ends = self.ends.as_mut().filter(|_| !self.corrupt)?;
        let report = match ends.dones.try_pop() {
            Ok(words) => Done::decode(&words?).ok_or("a report that makes no sense"),
            Err(_) => Err("an impossible ring index"),
        };
        self.corrupt = report.is_err();
        Some(report)
    }

    /// Takes what has come over the socket. `memory` is asked for the slab of a slot that the worker owes.
    pub(super) fn receive<'a>(
        &mut self,
        memory: &mut dyn FnMut(SlotAddress) -> Option<&'a SlabMemory>,
    ) -> Arrival {
        let Some(ends) = &self.ends else { return Arrival::Pending };
        self.inbox.receive(&ends.socket, |address| {
            let slot = address.slot as usize;
            memory(address).map(|memory| Lease::new(memory, slot..slot + 1))
        })
    }

    /// Sends a chunk; an `Err` says what is wrong with the worker's ring.
    pub(super) fn send(&mut self, chunk: &Chunk) -> Result<(), &'static str> {
        let Some(ends) = self.ends.as_mut() else { return Ok(()) };
        self.pushed = true;
        // The state machine keeps the number of chunks below the ring's capacity, so a full ring is a broken one.
        ends.tasks.try_push(&chunk.encode()).map_err(|error| match error {
            PushError::Full | PushError::Corrupt => "an impossible ring index",
        })
    }

    /// Rings the worker's bell if it sleeps over something that was sent.
    pub(super) fn wake(&mut self) {
        if let Some(ends) = &self.ends
            && std::mem::take(&mut self.pushed)
            && ends.page.sleeper.must_wake()
        {
            ends.bell.ring();
        }
    }

    /// Returns whether the worker would not have to be woken.
    pub(super) fn is_awake(&self) -> bool {
        self.ends.as_ref().is_some_and(|ends| !ends.page.sleeper.is_sleeping())
    }

    /// Returns how many samples the worker has begun.
    pub(super) fn heartbeat(&self) -> Option<u64> {
        self.ends.as_ref().map(|ends| ends.page.status.heartbeat())
    }

    /// Ends the worker by force. A thread cannot be ended: it is left behind, which is the end of it for us.
    pub(super) fn kill(&mut self) -> Option<Ended> {
        match self.ends.as_ref().map(|ends| &ends.body) {
            Some(Body::Process(child)) => {
                // It may be gone already; its pidfd says so either way.
                let _ = child.kill();
                None
            }
            Some(Body::Thread(_)) => {
                let place = self.place();
                self.ends = None;
                Some(Ended::Exited { text: "worker thread given up".into(), fault: true, place })
            }
            None => None,
        }
    }

    /// The socket is at its end. For a process that alone is not its end, so it is helped along.
    pub(super) fn closed(&mut self) -> Option<Ended> {
        match &self.ends.as_ref()?.body {
            Body::Process(child) => {
                let _ = child.kill();
                None
            }
            Body::Thread(_) => {
                let place = self.place();
                self.ends = None;
                Some(match self.refused.take() {
                    Some(text) => Ended::Refused(text),
                    None => Ended::Exited { text: "its thread ended".into(), fault: true, place },
                })
            }
        }
    }

    /// Returns how the process ended, if it did, and empties the seat.
    pub(super) fn reap(&mut self) -> Option<Ended> {
        let ends = self.ends.as_mut()?;
        let Body::Process(child) = &mut ends.body else { return None };
        let exit = match child.try_reap() {
            Ok(exit) => exit?,
            Err(_) => Exit::Unknown,
        };
        let printed = ends.output.as_ref().and_then(Output::tail);
        let place = self.place();
        self.ends = None;
        Some(match self.refused.take() {
            Some(text) => Ended::Refused(text),
            None => {
                let printed = printed.map(|tail| format!("; it printed: {tail}")).unwrap_or_default();
                Ended::Exited { text: format!("{exit}{printed}"), fault: is_fault(exit), place }
            }
        })
    }

    fn place(&self) -> Option<Place> {
        self.ends.as_ref()?.page.status.place()
    }

    /// Closes the socket, which tells the worker to end; with `Write` alone, what it still sends is taken.
    pub(super) fn dismiss(&mut self, how: Shutdown) {
        if let Some(ends) = &self.ends {
            let _ = ends.socket.shutdown(how);
            ends.bell.ring();
        }
    }

    /// Returns whether nobody is here any more.
    pub(super) fn has_ended(&mut self) -> bool {
        match self.ends.as_mut().map(|ends| &mut ends.body) {
            Some(Body::Process(child)) => !matches!(child.try_reap(), Ok(None)),
            Some(Body::Thread(thread)) => thread.is_finished(),
            None => true,
        }
    }

    /// Waits for the end, with force where there is any; a thread that does not end in time is left behind.
    pub(super) fn end(&mut self, limit: Duration) {
        match self.ends.take().map(|ends| ends.body) {
            Some(Body::Process(child)) => end_process(child, limit),
            Some(Body::Thread(thread)) => end_thread(thread, limit),
            None => {}
        }
    }
}

fn end_process(mut child: Child, limit: Duration) {
    if matches!(child.try_reap(), Ok(None)) {
        let _ = child.kill();
        let _ = child.reap_timeout(limit);
    }
}

fn end_thread(thread: JoinHandle<()>, limit: Duration) {
    let deadline = Instant::now() + limit;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    if thread.is_finished() {
        let _ = thread.join();
    }
}

/// Returns whether what the worker was doing can be the cause. A SIGKILL or SIGTERM comes from outside.
fn is_fault(exit: Exit) -> bool {
    match exit {
        Exit::Code(code) => code != 0,
        Exit::Signal { number, .. } => {
            ![libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP].contains(&number)
        }
        Exit::Unknown => false,
    }
}
