//! Frames on the control socket: a fixed header, then `length` bytes. Descriptors ride on the header.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fdpass;

/// The longest text that a worker may send.
pub(crate) const TEXT_LIMIT: u32 = 64 * 1024;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Host to worker: worker number and count; descriptors of everything but slabs.
    Hello = 1,
    /// Host to worker: slab number, attachment, bytes; its descriptor, or none when slots are to be sent.
    Attach = 2,
    /// Worker to host: the handshake succeeded.
    Ready = 3,
    /// Worker to host: it did not, and why.
    Refused = 4,
    /// Worker to host: the bytes of one slot.
    Slot = 5,
    /// Worker to host: a done message that must not overtake the slots before it.
    Report = 6,
}

impl Kind {
    fn from_wire(number: u32) -> Option<Self> {
        use Kind::*;
        [Hello, Attach, Ready, Refused, Slot, Report].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    kind: u32,
    /// Bytes that follow.
    pub length: u32,
    /// What they mean depends on the kind.
    pub words: [u64; 3],
}

/// Size of a header on the wire.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

impl Header {
    /// Creates a header.
    pub(crate) fn new(kind: Kind, length: u32, words: [u64; 3]) -> Self {
        Header { kind: kind as u32, length, words }
    }

    /// Returns what the frame is; `None` for a number that nobody of ours sends.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::from_wire(self.kind)
    }

    /// Reads a header from its bytes.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        bytemuck::pod_read_unaligned(bytes)
    }

    /// Returns its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

/// Sends a frame without payload, with descriptors.
///
/// # Errors
/// When the other side is gone.
pub(crate) fn send(socket: &UnixStream, header: Header, fds: &[BorrowedFd<'_>]) -> Result<()> {
    debug_assert_eq!(header.length, 0);
    fdpass::send(socket.as_fd(), header.as_bytes(), fds)
}

/// Sends a frame without payload if there is room for it now.
///
/// # Errors
/// When the other side is gone.
pub(crate) fn try_send(socket: &UnixStream, header: Header, fds: &[BorrowedFd<'_>]) -> Result<bool> {
    fdpass::try_send(socket.as_fd(), header.as_bytes(), fds)
}

/// Sends a frame with a text.
///
/// # Errors
/// When the other side is gone.
pub(crate) fn send_text(socket: &UnixStream, kind: Kind, text: &str) -> Result<()> {
    let text = &text[..text.floor_char_boundary(TEXT_LIMIT as usize)];
    let header = Header::new(kind, text.len() as u32, [0; 3]);
    fdpass::send(socket.as_fd(), header.as_bytes(), &[])?;
    fdpass::send(socket.as_fd(), text.as_bytes(), &[])
}

/// Receives one header and its descriptors, waiting for it; `None` when the other side is gone.
///
/// # Errors
/// When descriptors were lost, or the stream ends within a header.
pub(crate) fn receive(socket: &UnixStream, fds: &mut Vec<OwnedFd>) -> Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    let mut have = 0;
    while have < HEADER_BYTES {
        match fdpass::recv(socket.as_fd(), &mut bytes[have..], fds)? {
            0 if have == 0 => return Ok(None),
            0 => return Err(Error::new(ErrorKind::Io, "the control socket ended within a message")),
            count => have += count,
        }
    }
    Ok(Some(Header::from_bytes(&bytes)))
}
