//! A bell that one process rings and another waits for: an eventfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A bell: readable from the first ring on until it is cleared.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), mostly for want of descriptors.
    pub fn new() -> Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::io("eventfd", errno.into()))?;
        Ok(Doorbell { fd })
    }

    /// Takes a bell that another process sent.
    pub fn from_fd(fd: OwnedFd) -> Doorbell {
        Doorbell { fd }
    }

    /// Rings. A bell that rings already stays so.
    pub fn ring(&self) {
        // The only other answer of an eventfd is EAGAIN, when 2^64 - 2 rings are pending: it rings then.
        while rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    /// Silences it, to be called by the side that waits, before it looks at what it was woken for.
    pub fn clear(&self) {
        while rustix::io::read(&self.fd, &mut [0_u8; 8]) == Err(Errno::INTR) {}
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::poll;

    fn rings(bell: &Doorbell) -> bool {
        poll::wait(&[bell.as_fd()], Some(Duration::ZERO)).unwrap().any()
    }

    #[test]
    fn a_bell_rings_until_it_is_cleared() {
        let bell = Doorbell::new().unwrap();
        assert!(!rings(&bell));
        bell.clear();
        bell.ring();
        bell.ring();
        assert!(rings(&bell));
        assert!(rings(&bell));
        bell.clear();
        assert!(!rings(&bell));
    }

    #[test]
    fn a_sent_bell_is_the_same_bell() {
        let here = Doorbell::new().unwrap();
        let there = Doorbell::from_fd(here.as_fd().try_clone_to_owned().unwrap());
        there.ring();
        assert!(rings(&here));
        here.clear();
        assert!(!rings(&there));
    }

    #[test]
    fn a_full_bell_does_not_block() {
        let bell = Doorbell::new().unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        bell.ring();
        assert!(rings(&bell));
    }
}
