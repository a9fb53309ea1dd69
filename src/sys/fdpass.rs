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

/// Sends a message of a few bytes and its descriptors at once or not at all; `false` when there is no room for it now.
///
/// # Errors
/// As [`send`], but for the time-out.
pub fn try_send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool> {
    match send_some(socket, bytes, fds) {
        // A stream socket takes so few bytes whole or not at all.
        Ok(_) => Ok(true),
        Err(Errno::INTR | Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
        Err(errno) => Err(send_error(errno)),
    }
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::process::{Resource, getrlimit, setrlimit};

    use super::*;
    use crate::sys::doorbell::Doorbell;

    #[test]
    fn descriptors_arrive_with_their_bytes_and_close_on_exec() {
        let (here, there) = pair().unwrap();
        let bell = Doorbell::new().unwrap();
        send(here.as_fd(), b"bell", &[bell.as_fd()]).unwrap();
        let (mut buffer, mut fds) = ([0; 16], Vec::new());
        assert_eq!(recv(there.as_fd(), &mut buffer, &mut fds).unwrap(), 4);
        assert_eq!((&buffer[..4], fds.len()), (&b"bell"[..], 1));
        let flags = rustix::io::fcntl_getfd(&fds[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        Doorbell::from_fd(fds.remove(0)).ring();
        assert!(poll::wait(&[bell.as_fd()], None).unwrap().any());
    }

    #[test]
    fn as_many_as_the_kernel_carries_and_no_more() {
        let (here, there) = pair().unwrap();
        let bell = Doorbell::new().unwrap();
        send(here.as_fd(), b"x", &[bell.as_fd(); MAX_FDS]).unwrap();
        let mut fds = Vec::new();
        assert_eq!(recv(there.as_fd(), &mut [0; 1], &mut fds).unwrap(), 1);
        assert_eq!(fds.len(), MAX_FDS);
        let error = send(here.as_fd(), b"x", &[bell.as_fd(); MAX_FDS + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(send(here.as_fd(), b"", &[bell.as_fd()]).is_err());
    }

    #[test]
    fn a_message_larger_than_the_socket_arrives_whole() {
        let (here, there) = pair().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| i as u8).collect();
        let expected = bytes.clone();
        let sending = std::thread::spawn(move || send(here.as_fd(), &bytes, &[]));
        let (mut buffer, mut received) = (vec![0; 100_000], Vec::new());
        loop {
            let got = recv(there.as_fd(), &mut buffer, &mut Vec::new()).unwrap();
            if got == 0 {
                break;
            }
            received.extend_from_slice(&buffer[..got]);
        }
        sending.join().unwrap().unwrap();
        assert!(received == expected);
    }

    #[test]
    fn a_gone_peer_is_the_end_for_one_side_and_closed_for_the_other() {
        let (here, there) = pair().unwrap();
        send(there.as_fd(), b"unread", &[]).unwrap();
        drop(there);
        assert_eq!(send(here.as_fd(), b"x", &[]).unwrap_err().kind(), ErrorKind::Closed);
        let mut buffer = [0; 16];
        assert_eq!(recv(here.as_fd(), &mut buffer, &mut Vec::new()).unwrap(), 6);
        assert_eq!(recv(here.as_fd(), &mut buffer, &mut Vec::new()).unwrap(), 0);
    }

    /// Changes a limit of the whole process, so it runs in a process of its own: see the test below.
    #[test]
    #[ignore = "started by lost_descriptors_are_an_error_that_names_the_limit"]
    fn receive_at_the_limit() {
        let (here, there) = pair().unwrap();
        let bell = Doorbell::new().unwrap();
        send(here.as_fd(), b"x", &[bell.as_fd(); 100]).unwrap();
        send(here.as_fd(), b"y", &[bell.as_fd(); 2]).unwrap();
        let before = getrlimit(Resource::Nofile);
        let open = crate::sys::limits::open_descriptors().unwrap() as u64;
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(open + 20), ..before }).unwrap();
        let mut fds = Vec::new();
        let error = recv(there.as_fd(), &mut [0; 1], &mut fds).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
        assert!(fds.is_empty());
        assert_eq!(recv(there.as_fd(), &mut [0; 1], &mut fds).unwrap(), 1);
        assert_eq!(fds.len(), 2, "those that came partly were closed again");
    }

    #[test]
    fn lost_descriptors_are_an_error_that_names_the_limit() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "sys::fdpass::tests::receive_at_the_limit"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && text.contains("1 passed"), "{text}");
    }
}
