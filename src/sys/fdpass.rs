//! Bytes and descriptors over a local socket; it does not know what they mean.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::poll;
use crate::error::{Error, ErrorKind, Result};

/// The most descriptors that the kernel carries in one message (`SCM_MAX_FD`).
pub const MAX_FDS: usize = 253;

/// How long a full socket may stay full before the peer counts as stuck.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// Returns two connected stream sockets, both closed on exec.
///
/// # Errors
/// [`ErrorKind::Io`], mostly for want of descriptors.
pub fn pair() -> Result<(UnixStream, UnixStream)> {
    UnixStream::pair().map_err(|source| Error::io("socketpair", source))
}

/// Sends all of `bytes`, and the descriptors with the first of them. At least one byte must carry descriptors.
///
/// # Errors
/// [`ErrorKind::Limit`] for more than [`MAX_FDS`] descriptors or too many in flight, [`ErrorKind::Closed`] when the peer
/// is gone, [`ErrorKind::Timeout`] when it reads nothing for 30 seconds, [`ErrorKind::Io`].
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    if fds.len() > MAX_FDS || (bytes.is_empty() && !fds.is_empty()) {
        let message = format!(
            "{} descriptors on {} bytes in one message, at most {MAX_FDS} on 1 or more",
            fds.len(),
            bytes.len()
        );
        return Err(Error::new(ErrorKind::Limit, message));
    }
    let mut fds = fds;
    let mut rest = bytes;
    while !rest.is_empty() {
        match send_some(socket, rest, fds) {
            Ok(sent) => {
                rest = &rest[sent..];
                fds = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for_room(socket)?,
            Err(errno) => return Err(send_error(errno)),
        }
    }
    Ok(())
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "the space is made for {MAX_FDS}");
    }
    // Never blocks in the call itself, so that a stuck peer meets the limit above whatever the socket's mode.
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn wait_for_room(socket: BorrowedFd<'_>) -> Result<()> {
    if poll::wait_for(&[socket], PollFlags::OUT, Some(SEND_LIMIT))?.any() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Timeout,
        format!("the peer of a socket read nothing for {} s", SEND_LIMIT.as_secs()),
    ))
}

fn send_error(errno: Errno) -> Error {
    let source = io::Error::from(errno);
    match errno {
        Errno::PIPE | Errno::CONNRESET => {
            Error::new(ErrorKind::Closed, format!("send: {source}")).with_source(source)
        }
        Errno::TOOMANYREFS => {
            Error::new(ErrorKind::Limit, "too many descriptors are on their way between processes")
                .with_source(source)
                .with_remedy("ulimit -n 65536")
        }
        _ => Error::io("send", source),
    }
}

/// Returns whether the peer has closed the socket and everything it sent was taken.
pub fn at_end(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    matches!(rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 0)))
}

/// Receives some bytes, and appends the descriptors that came with them, closed on exec. Returns 0 at the end.
///
/// # Errors
/// [`ErrorKind::Limit`] when descriptors were lost on the way because this process may open no more;
/// [`ErrorKind::Io`], also when a non-blocking socket has nothing.
pub fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize> {
    let before = fds.len();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            // The peer died with bytes of ours unread: its end, like any other.
            Err(Errno::CONNRESET) => return Ok(0),
            other => break other.map_err(|errno| Error::io("receive", errno.into()))?,
        }
    };
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            fds.extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        let got = fds.len() - before;
        fds.truncate(before);
        return Err(Error::new(
            ErrorKind::Limit,
            format!(
                "only {got} descriptors of a message arrived: this process may open no more (RLIMIT_NOFILE)"
            ),
        )
        .with_remedy("ulimit -n 65536"));
    }
    Ok(message.bytes)
}
