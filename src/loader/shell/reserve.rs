//! Reserving slabs, one after the other, behind the work that goes on.

use std::time::{Duration, Instant};

use super::Shell;
use crate::error::Result;
use crate::event::Event;
use crate::loader::supervisor::Input;
use crate::plan::Budget;
use crate::slab::Rung;
use crate::sys::turn::Turn;

/// How long another loader's reservation is waited for.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// How often a slab is tried to be got off the heap: seldom, since a try that succeeds keeps the host for a reservation.
const CLIMB: Duration = Duration::from_secs(1);

/// Returns the question whether the next part of a slab fits. A slab that will not fit is not begun; one that is begun may
/// still meet others' memory.
fn gate(budget: &Budget, slab_bytes: usize, taken: u64) -> impl FnMut(Rung, usize) -> Result<()> {
    let mut begun = None;
    move |rung, bytes| {
        let (asked, before) = match begun {
            Some((begun, done)) if begun == rung => (bytes, done),
            _ => (slab_bytes, 0),
        };
        budget.check(rung, asked, taken + before)?;
        begun = Some((rung, before + bytes as u64));
        Ok(())
    }
}

impl Shell {
    /// Reserves the next slab, if one is wanted; returns whether there was something to do.
    pub(super) fn reserve_next(&mut self) -> bool {
        let have = self.pool.slabs().len() as u32;
        if have >= self.wanted_slabs || self.work.pool_done {
            return false;
        }
        let slab_bytes = self.pool.layout.bytes;
        let taken = u64::from(have) * slab_bytes as u64;
        let budget = self.budget.clone();
        // Others measure the same room: nobody else may take it between our look and our reservation.
        let turn = Turn::take(TURN_LIMIT);
        let grown = self.pool.grow(&mut gate(&budget, slab_bytes, taken));
        drop(turn);
        let refused = match grown {
            Ok(step) => {
                if let Some(step) = step {
                    self.work.step_down.get_or_insert(step);
                }
                self.hand_out(have);
                None
            }
            Err(error) => Some(error),
        };
        if refused.is_none() && have + 1 < self.wanted_slabs {
            return true;
        }
        self.work.pool_done = true;
        if let Some(step) = self.work.step_down.take() {
            let got = self.shared.stats(|stats| stats.transport_summary());
            let (wanted, slabs) = (step.wanted.name(), self.wanted_slabs);
            self.tell(&Event::Degraded { wanted, slabs, slab_bytes, got, error: step.error });
        }
        if let Some(error) = refused {
            let least = if self.pool.is_strict() { self.wanted_slabs } else { 2.min(self.wanted_slabs) };
            if have < least {
                let error = if self.pool.is_strict() { error } else { budget.refuse(&error, taken) };
                self.supervisor.step(Input::Refused { error }, Instant::now());
            } else {
                let wanted = self.wanted_slabs;
                self.tell(&Event::PoolShrunk { slabs: have, wanted, slab_bytes, error });
            }
        }
        true
    }

    /// Tells everybody of a slab that has been reserved.
    fn hand_out(&mut self, slab: u32) {
        self.attach(slab);
        self.shared.add_slab();
        self.supervisor.step(Input::Reserved { slab }, Instant::now());
    }

    /// Tells everybody of a slab's memory.
    fn attach(&mut self, slab: u32) {
        let slabs = self.pool.slabs();
        let entry = &slabs[slab as usize];
        self.common.control.set_attachment(slab, self.common.control.attachment(slab) + 1);
        self.common.table.set(slab as usize, entry.memory.clone());
        for seat in &mut self.work.seats {
            seat.tell_slabs(slabs, &self.common.control);
        }
        self.shared.add_mapping(entry.memory.mapping());
        self.shared.stats(|stats| {
            stats.transports = slabs.iter().map(|slab| slab.rung.name()).collect();
            stats.slab_bytes = slabs.len() * entry.memory.mapping().len();
        });
    }

    /// Tries to get a slab that has just come back off the heap, now and then.
    pub(super) fn climb(&mut self, slab: u32) {
        let now = Instant::now();
        let recent = self.work.climbed.is_some_and(|last| now.duration_since(last) < CLIMB);
        if recent || self.common.processes.is_none() || self.pool.slabs()[slab as usize].rung != Rung::Heap {
            return;
        }
        self.work.climbed = Some(now);
        let (budget, slab_bytes) = (self.budget.clone(), self.pool.layout.bytes);
        let shared = self.pool.slabs().iter().filter(|slab| slab.rung != Rung::Heap).count();
        let turn = Turn::take(CLIMB);
        let climbed =
            self.pool.climb(slab as usize, &mut gate(&budget, slab_bytes, (shared * slab_bytes) as u64));
        drop(turn);
        if climbed {
            self.attach(slab);
        }
    }
}
