//! Reserving slabs, one after the other, behind the work that goes on.

use std::time::{Duration, Instant};

use super::Shell;
use crate::event::Event;
use crate::loader::supervisor::Input;
use crate::sys::turn::Turn;

/// How long another loader's reservation is waited for.
const TURN_LIMIT: Duration = Duration::from_secs(5);

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
        let mut begun = None;
        let grown = self.pool.grow(&mut |rung, bytes| {
            // A slab that will not fit is not begun; one that is begun may still meet others' memory.
            let (asked, before) = match begun {
                Some((begun, done)) if begun == rung => (bytes, done),
                _ => (slab_bytes, 0),
            };
            budget.check(rung, asked, taken + before)?;
            begun = Some((rung, before + bytes as u64));
            Ok(())
        });
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
        let entry = &self.pool.slabs()[slab as usize];
        self.common.control.set_attachment(slab, 1);
        self.common.table.set(slab as usize, entry.memory.clone());
        for seat in &mut self.work.seats {
            seat.tell_slabs(self.pool.slabs(), &self.common.control);
        }
        let slabs = self.pool.slabs();
        self.shared.add_slab(entry.memory.mapping());
        self.shared.stats(|stats| {
            stats.transports.push(entry.rung.name());
            stats.slab_bytes = slabs.len() * entry.memory.mapping().len();
        });
        self.supervisor.step(Input::Reserved { slab }, Instant::now());
    }
}
