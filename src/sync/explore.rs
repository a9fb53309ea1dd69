//! What the loom cases of this room share: counting what was explored, and a doorbell without a time limit.

#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};

/// Runs a case in every interleaving that loom finds, and prints how many there were.
pub fn explore(name: &str, case: impl Fn() + Send + Sync + 'static) {
    explore_within(None, name, case);
}

/// Runs a case in every interleaving with at most so many forced switches of threads, where all would take hours.
pub fn explore_within(switches: Option<usize>, name: &str, case: impl Fn() + Send + Sync + 'static) {
    let count = std::sync::Arc::new(std::sync::Mutex::new(0_u64));
    let counter = std::sync::Arc::clone(&count);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = switches;
    model.check(move || {
        *counter.lock().unwrap() += 1;
        case();
    });
    println!("explored {name}: {} executions", count.lock().unwrap());
}

/// A bell as an eventfd is one: it rings until it is cleared. A wait that nobody ends is a deadlock, which loom reports.
#[derive(Default)]
pub struct Bell {
    rings: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Rings.
    pub fn ring(&self) {
        *self.rings.lock().unwrap() = true;
        self.rung.notify_one();
    }

    /// Blocks until it rings, and silences it.
    pub fn wait_and_clear(&self) {
        let mut rings = self.rings.lock().unwrap();
        while !*rings {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = false;
    }
}

/// A stand-in for plain memory: loom fails when two threads use it, one of them writing, without an order between them.
///
/// Loom never delays a load past a later store, so for a slot that is overwritten too early this stands watch.
#[derive(Default)]
pub struct Plain(UnsafeCell<()>);

// SAFETY: it holds no data, and whether threads use it in order is what loom checks.
unsafe impl Sync for Plain {}

impl Plain {
    /// Reads.
    pub fn read(&self) {
        self.0.with(|_| ());
    }

    /// Writes.
    pub fn write(&self) {
        self.0.with_mut(|_| ());
    }
}
