//! Turns: several loaders on a machine reserve memory one after the other, so that what one measures stays true until it
//! has taken it.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::segment::SHM_DIRECTORY;

/// How often the lock is tried.
const TRY: Duration = Duration::from_millis(1);

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    /// A directory that every program here can open: locking it leaves nothing behind.
    lock: File,
}

impl Turn {
    /// Waits for its turn, but no longer than `limit`: whoever holds it that long is stuck, and room is measured anyway.
    pub fn take(limit: Duration) -> Option<Turn> {
        let directory = File::open(SHM_DIRECTORY).or_else(|_| File::open(std::env::temp_dir())).ok()?;
        let deadline = Instant::now() + limit;
        loop {
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Some(Turn { lock: directory });
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(TRY);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing alone would leave it locked while a process forked meanwhile has the file open.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_turn_at_a_time() {
        let first = Turn::take(Duration::from_secs(10));
        assert!(first.is_some());
        assert!(Turn::take(Duration::from_millis(20)).is_none());
        drop(first);
        assert!(Turn::take(Duration::from_secs(10)).is_some());
    }
}
