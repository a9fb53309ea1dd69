//! Waiting for descriptors with a time limit, for a few at a time or for many that stay registered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The most descriptors that [`wait`] takes.
pub const MAX_WAIT: usize = 16;

/// The longest wait the kernel is asked for; a longer one starts again.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Which of the descriptors handed to [`wait`] are readable, at their end or in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    mask: u32,
}

impl Ready {
    /// Returns whether the descriptor at that place of the list is.
    pub fn is(self, place: usize) -> bool {
        place < MAX_WAIT && self.mask >> place & 1 == 1
    }

    /// Returns whether any is; false means that the time is up.
    pub fn any(self) -> bool {
        self.mask != 0
    }
}

/// Waits until one of at most [`MAX_WAIT`] descriptors is readable, or the time is up.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io).
///
/// # Panics
/// With more descriptors than that.
pub fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Ready> {
    wait_for(fds, PollFlags::IN, timeout)
}

/// Waits as [`wait`] does, for the given events.
pub(super) fn wait_for(
    fds: &[BorrowedFd<'_>],
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<Ready> {
    assert!(fds.len() <= MAX_WAIT, "wait takes at most {MAX_WAIT} descriptors");
    let Some(first) = fds.first() else {
        std::thread::sleep(timeout.unwrap_or(LONGEST));
        return Ok(Ready { mask: 0 });
    };
    let mut polled: [PollFd<'_>; MAX_WAIT] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(*fds.get(i).unwrap_or(first), events));
    let polled = &mut polled[..fds.len()];
    until(timeout, |limit| Ok(poll(polled, limit)? > 0).map(|some| some.then_some(())))
        .map_err(|errno| Error::io("poll", errno.into()))?;
    let mask = polled.iter().enumerate().map(|(i, fd)| u32::from(!fd.revents().is_empty()) << i).sum();
    Ok(Ready { mask })
}

/// Calls `wait` with what is left of the time until it returns something or the time is up, across signals.
fn until<T>(
    timeout: Option<Duration>,
    mut wait: impl FnMut(Option<&Timespec>) -> Result<Option<T>, Errno>,
) -> Result<Option<T>, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut left = timeout;
    loop {
        let limit = left.map(|left| {
            let left = left.min(LONGEST);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        match wait(limit.as_ref()) {
            Ok(None) | Err(Errno::INTR) => {}
            other => return other,
        }
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
    }
}

/// Many registered descriptors, each with a number of the caller's, waited for together.
///
/// Level-triggered: what is not read is reported again.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// How many tokens one wait returns at most; the rest come with the next.
    const BATCH: usize = 64;

    /// Creates an empty set.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), mostly for want of descriptors.
    pub fn new() -> Result<Epoll> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::io("epoll_create", errno.into()))?;
        Ok(Epoll { fd })
    }

    /// Registers a descriptor under a token, for reading, end and error. Remove it before it is closed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it is registered already or cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> Result<()> {
        epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|errno| Error::io("epoll_ctl add", errno.into()))
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it is not registered.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Result<()> {
        epoll::delete(&self.fd, fd).map_err(|errno| Error::io("epoll_ctl delete", errno.into()))
    }

    /// Waits for any of them, or until the time is up, and puts the tokens of those that are ready into `tokens`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn wait(&self, tokens: &mut Vec<u64>, timeout: Option<Duration>) -> Result<()> {
        tokens.clear();
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); Self::BATCH];
        until(timeout, |limit| {
            let (events, _) = epoll::wait(&self.fd, &mut space, limit)?;
            tokens.extend(events.iter().map(|event| event.data.u64()));
            Ok((!tokens.is_empty()).then_some(()))
        })
        .map_err(|errno| Error::io("epoll_wait", errno.into()))?;
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
