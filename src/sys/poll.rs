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
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())).or(timeout);
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

    /// Registers a descriptor under a token, for reading, end and error. It leaves when it is closed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it is registered already or cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> Result<()> {
        epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|errno| Error::io("epoll_ctl add", errno.into()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::doorbell::Doorbell;
    use crate::sys::fdpass;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn the_ready_ones_are_named() {
        let bells: Vec<_> = (0..3).map(|_| Doorbell::new().unwrap()).collect();
        let fds: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
        bells[0].ring();
        bells[2].ring();
        let ready = wait(&fds, None).unwrap();
        assert!(ready.is(0) && !ready.is(1) && ready.is(2) && !ready.is(3) && !ready.is(40));
    }

    #[test]
    fn a_wait_without_news_takes_its_time() {
        let bell = Doorbell::new().unwrap();
        for fds in [&[bell.as_fd()][..], &[]] {
            let start = Instant::now();
            assert!(!wait(fds, Some(SHORT)).unwrap().any());
            assert!(start.elapsed() >= SHORT);
        }
    }

    #[test]
    fn a_closed_peer_counts_as_ready() {
        let (here, there) = fdpass::pair().unwrap();
        drop(there);
        assert!(wait(&[here.as_fd()], None).unwrap().any());
    }

    #[test]
    fn epoll_names_tokens_until_they_are_served_or_removed() {
        let (epoll, a, b) = (Epoll::new().unwrap(), Doorbell::new().unwrap(), Doorbell::new().unwrap());
        epoll.add(a.as_fd(), u64::MAX).unwrap();
        epoll.add(b.as_fd(), 7).unwrap();
        assert!(epoll.add(b.as_fd(), 8).is_err());
        let mut tokens = vec![99];
        epoll.wait(&mut tokens, Some(SHORT)).unwrap();
        assert!(tokens.is_empty());
        a.ring();
        b.ring();
        for _ in 0..2 {
            epoll.wait(&mut tokens, None).unwrap();
            tokens.sort_unstable();
            assert_eq!(tokens, [7, u64::MAX]);
        }
        a.clear();
        epoll.wait(&mut tokens, None).unwrap();
        assert_eq!(tokens, [7]);
        drop(b);
        epoll.wait(&mut tokens, Some(SHORT)).unwrap();
        assert!(tokens.is_empty());
    }

    #[test]
    fn waits_without_end_are_asked_for_in_pieces() {
        let mut asked = Vec::new();
        let answer = until(Some(Duration::MAX), |limit| {
            asked.push(limit.unwrap().tv_sec);
            Ok((asked.len() == 3).then_some(5))
        });
        assert_eq!((answer, asked), (Ok(Some(5)), vec![86_400; 3]));
        let answer = until(None, |limit| if limit.is_none() { Ok(Some(1)) } else { Err(Errno::INVAL) });
        assert_eq!(answer, Ok(Some(1)));
    }
}
