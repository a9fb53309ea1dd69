//! Starting workers, hearing of their end, and ending them.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::{BELL, Shell};
use crate::error::Error;
use crate::event::Event;
use crate::loader::seat::{Ended, Seat};
use crate::loader::supervisor::{Input, Why};
use crate::sys::limits;
use crate::sys::poll::Epoll;
use crate::worker::{Arrival, Done};

/// How many messages of one worker are taken before the others are looked after.
const MESSAGES_A_LOOK: usize = 64;

/// How long workers may take to end by themselves before they are killed.
const GRACE: Duration = Duration::from_millis(200);

/// How long a killed process, or a thread that is told to end, is waited for.
const LAST_WAIT: Duration = Duration::from_millis(700);

impl Shell {
    /// Looks after the descriptor that is ready.
    pub(super) fn ready(&mut self, token: u64) {
        if token == BELL {
            return self.common.host_bell.clear();
        }
        let (worker, is_socket) = ((token - 1) / 2, token.is_multiple_of(2));
        let (number, now) = (worker as u32, Instant::now());
        if is_socket {
            return self.take_socket(number, now, MESSAGES_A_LOOK);
        }
        // The news may be of the one before: only of one that has ended is it known that all it sent is there to be taken.
        if !self.work.seats[worker as usize].has_ended() {
            return;
        }
        // What it had still sent counts.
        self.gather_reports(worker as usize, now);
        self.take_socket(number, now, usize::MAX);
        if let Some(ended) = self.work.seats[worker as usize].reap() {
            self.worker_ended(number, ended, now);
        }
    }

    /// Takes up to `most` messages from a worker's socket. What it put into its ring before them comes first.
    fn take_socket(&mut self, worker: u32, now: Instant, most: usize) {
        for _ in 0..most {
            self.gather_reports(worker as usize, now);
            let Shell { work, supervisor, pool, .. } = self;
            let arrival = work.seats[worker as usize].receive(&mut |address| {
                let owed = supervisor.owes(worker, address.slab, address.generation, address.slot);
                owed.then(|| &pool.slabs()[address.slab as usize].memory)
            });
            match arrival {
                Arrival::Pending => return,
                Arrival::Ready => {
                    self.shared.set_worker(worker as usize, self.work.seats[worker as usize].stats(true));
                    let seat = &mut self.work.seats[worker as usize];
                    seat.set_ready();
                    seat.tell_slabs(self.pool.slabs(), &self.common.control);
                    self.supervisor.step(Input::Ready { worker }, now);
                }
                Arrival::Refused(text) => self.work.seats[worker as usize].refused = Some(text),
                Arrival::Report(words) => match Done::decode(&words) {
                    Some(done) => self.report(worker, done, now),
                    None => {
                        let what = "a report that makes no sense";
                        return self.supervisor.step(Input::Corrupt { worker, what }, now);
                    }
                },
                Arrival::Corrupt(what) => {
                    return self.supervisor.step(Input::Corrupt { worker, what }, now);
                }
                Arrival::Closed => {
                    // A process is told by its pidfd that it ended; a thread has nothing else.
                    if let Some(ended) = self.work.seats[worker as usize].closed() {
                        self.gather_reports(worker as usize, now);
                        self.worker_ended(worker, ended, now);
                    }
                    return;
                }
            }
        }
    }

    fn worker_ended(&mut self, worker: u32, ended: Ended, now: Instant) {
        let why = match ended {
            Ended::Refused(text) => Why::Refused(text),
            Ended::Exited { text, fault, place } => {
                let before = std::mem::replace(&mut self.work.oom_kills, oom_kills());
                // Nobody but the kernel's own count can tell its kill from a person's.
                match self.work.oom_kills.saturating_sub(before) {
                    0 => Why::Exited { text, fault, place },
                    kills => {
                        let text = format!("{text}: {kills} out-of-memory kill(s) in this memory group");
                        Why::Exited { text, fault: true, place }
                    }
                }
            }
        };
        self.supervisor.step(Input::Gone { worker, why }, now);
    }

    pub(super) fn spawn(&mut self, worker: u32, thread: bool, epoll: &Epoll) {
        let seat = &mut self.work.seats[worker as usize];
        let started = seat
            .start(&self.common, worker, thread)
            .and_then(|()| seat.register(epoll, 1 + 2 * u64::from(worker)));
        if let Err(error) = started {
            // Whatever was started of it ends here.
            self.work.seats[worker as usize] = Seat::default();
            let again = Error::new(error.kind(), error.message().to_owned());
            let again = match error.remedy() {
                Some(remedy) => again.with_remedy(remedy),
                None => again,
            };
            self.tell(&Event::WorkerNotStarted { worker, error });
            self.supervisor.step(Input::NotStarted { worker, error: again }, Instant::now());
        }
    }

    pub(super) fn kill(&mut self, worker: u32) {
        let seat = &mut self.work.seats[worker as usize];
        if let Some(ended) = seat.kill() {
            self.worker_ended(worker, ended, Instant::now());
        }
    }

    /// Ends all workers: those that are idle by themselves, the others by force.
    pub(super) fn end_workers(&mut self) {
        for (slab, _) in self.pool.slabs().iter().enumerate() {
            let generation = self.supervisor.generation(slab as u32);
            self.common.control.cancel(slab as u32, generation);
        }
        self.work.seats.iter_mut().for_each(|seat| seat.dismiss(Shutdown::Both));
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && self.work.seats.iter_mut().any(|seat| !seat.has_ended()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for seat in &mut self.work.seats {
            seat.end(LAST_WAIT);
        }
    }
}

/// Returns how many processes of this memory group, and of those around it, the kernel has killed for want of memory.
pub(super) fn oom_kills() -> u64 {
    limits::memory_levels().iter().filter_map(|level| level.oom_kills).sum()
}
