//! Who sleeps and must be woken: the flag between one that waits for messages and those that publish them.

use super::prim::{AtomicU32, Ordering, fence};

/// A flag in shared memory that says whether one side is about to block on its doorbell.
///
/// The sleeper calls [`announce`](Sleeper::announce), looks at its queues once more, blocks only if all are empty, and
/// calls [`awake`](Sleeper::awake) whether it blocked or not. A publisher publishes, then rings the bell if
/// [`must_wake`](Sleeper::must_wake). `README.md` proves that no message is then left lying before a sleeper.
///
/// All zero bytes mean awake.
#[derive(Debug)]
#[repr(C)]
pub struct Sleeper {
    /// Not 0 while the sleeper may be blocked and nobody has promised to ring.
    sleeping: AtomicU32,
}

impl Sleeper {
    /// Creates one that is awake, in memory of this process.
    #[cfg(test)]
    pub fn new() -> Sleeper {
        Sleeper { sleeping: AtomicU32::new(0) }
    }

    /// Says that the caller will block unless it finds something on the look it now takes at its queues.
    pub fn announce(&self) {
        self.sleeping.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the caller does not block any more.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Returns whether the caller, who has published something, must ring the bell; true once a sleep.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load keeps the line shared while nobody sleeps; the swap lets one of several publishers ring.
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }
}
