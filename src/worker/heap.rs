//! The heap transport: slots that could not be shared travel over the control socket. The worker's half sends them;
//! the host's half takes whatever has arrived, straight into the slots, and never waits.

use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::frame::{HEADER_BYTES, Header, Kind, TEXT_LIMIT};
use super::protocol::{Chunk, DONE_WORDS};
use crate::error::{Error, Result};
use crate::slab::Lease;

/// What the host reads from one socket before it looks after the other workers.
const BYTES_A_WAKE: usize = 1 << 20;

/// Sends one slot: its pixels and its label.
///
/// # Errors
/// When the host is gone.
pub(crate) fn send_slot(
    socket: &UnixStream,
    chunk: &Chunk,
    slot: u32,
    pixels: &[u8],
    label: i64,
) -> Result<()> {
    let length = (pixels.len() + size_of::<i64>()) as u32;
    let words = [u64::from(chunk.slab), u64::from(chunk.generation), u64::from(slot)];
    send_all(socket, Header::new(Kind::Slot, length, words).as_bytes())?;
    send_all(socket, pixels)?;
    send_all(socket, &label.to_ne_bytes())
}

/// Sends a done message behind the slots it reports.
///
/// # Errors
/// When the host is gone.
pub(crate) fn send_report(socket: &UnixStream, words: &[u64; DONE_WORDS]) -> Result<()> {
    send_all(socket, Header::new(Kind::Report, size_of_val(words) as u32, [0; 3]).as_bytes())?;
    send_all(socket, bytemuck::cast_slice(words))
}

fn send_all(mut socket: &UnixStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            // The socket has a write time-out, so that a worker whose host stands still is not deaf meanwhile.
            Err(error) if matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::Interrupted) => {}
            Err(error) => return Err(Error::io("send to the host", error)),
        }
    }
    Ok(())
}

/// What has arrived from a worker.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// The handshake succeeded.
    Ready,
    /// The worker cannot start, and why.
    Refused(String),
    /// A done message, behind its slots.
    Report(Box<[u64; DONE_WORDS]>),
    /// Nothing more for now.
    Pending,
    /// The worker closed its end.
    Closed,
    /// The bytes are none that a worker of ours sends.
    Corrupt(&'static str),
}

/// A slot that a worker wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAddress {
    /// Which slab.
    pub slab: u32,
    /// Which use of the slab.
    pub generation: u32,
    /// Which slot.
    pub slot: u32,
}

/// The host's half of one worker's socket: where in the stream it is.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header, then of the payload, that have arrived.
    have: usize,
    payload: Vec<u8>,
}

impl Inbox {
    /// Takes what has arrived, up to the next message that means something.
    ///
    /// `lease` gives the right to write a slot for this worker, or `None` when it owes no such slot. It is asked again
    /// for each part that arrives, so nothing is written once the slot is no longer owed.
    pub(crate) fn receive<'a>(
        &mut self,
        socket: &UnixStream,
        mut lease: impl FnMut(SlotAddress) -> Option<Lease<'a>>,
    ) -> Arrival {
        let mut budget = BYTES_A_WAKE;
        loop {
            if self.have < HEADER_BYTES {
                match read(socket, &mut self.header[self.have..]) {
                    Ok(count) => self.have += count,
                    Err(end) => return end,
                }
                continue;
            }
            let header = Header::from_bytes(&self.header);
            let done = match header.kind() {
                Some(Kind::Slot) => self.receive_slot(socket, &header, &mut budget, &mut lease),
                Some(Kind::Ready) if header.length == 0 => Ok(Some(Arrival::Ready)),
                Some(Kind::Refused) if header.length <= TEXT_LIMIT => self
                    .receive_payload(socket, header.length as usize)
                    .map(|payload| Some(Arrival::Refused(String::from_utf8_lossy(payload).into_owned()))),
                Some(Kind::Report) if header.length as usize == DONE_WORDS * 8 => {
                    self.receive_payload(socket, DONE_WORDS * 8).map(|payload| {
                        let mut words = Box::new([0u64; DONE_WORDS]);
                        bytemuck::cast_slice_mut(words.as_mut_slice()).copy_from_slice(payload);
                        Some(Arrival::Report(words))
                    })
                }
                _ => return Arrival::Corrupt("a message of unknown kind or length on its socket"),
            };
            match done {
                Ok(Some(arrival)) => {
                    self.have = 0;
                    return arrival;
                }
                Ok(None) => self.have = 0,
                Err(end) => return end,
            }
        }
    }

    fn receive_payload(&mut self, socket: &UnixStream, length: usize) -> Result<&[u8], Arrival> {
        self.payload.resize(length, 0);
        while self.have < HEADER_BYTES + length {
            self.have += read(socket, &mut self.payload[self.have - HEADER_BYTES..])?;
        }
        Ok(&self.payload)
    }

    fn receive_slot<'a>(
        &mut self,
        socket: &UnixStream,
        header: &Header,
        budget: &mut usize,
        lease: &mut impl FnMut(SlotAddress) -> Option<Lease<'a>>,
    ) -> Result<Option<Arrival>, Arrival> {
        let [Ok(slab), Ok(generation), Ok(slot)] = header.words.map(u32::try_from) else {
            return Err(Arrival::Corrupt("a slot address that does not exist"));
        };
        let Some(mut lease) = lease(SlotAddress { slab, generation, slot }) else {
            return Err(Arrival::Corrupt("a slot that it does not owe"));
        };
        let slot = slot as usize;
        let (pixels, label) = (lease.image(slot).len(), size_of::<i64>());
        if header.length as usize != pixels + label {
            return Err(Arrival::Corrupt("a slot of the wrong length"));
        }
        loop {
            let have = self.have - HEADER_BYTES;
            if have < pixels {
                let part = &mut lease.image(slot)[have..];
                let length = part.len().min(*budget);
                let count = read(socket, &mut part[..length])?;
                self.have += count;
                *budget -= count;
                if *budget == 0 {
                    return Err(Arrival::Pending);
                }
            } else if have < pixels + label {
                self.payload.resize(label, 0);
                self.have += read(socket, &mut self.payload[have - pixels..])?;
            } else {
                let bytes = self.payload[..label].try_into().unwrap_or_default();
                lease.set_label(slot, i64::from_ne_bytes(bytes));
                return Ok(None);
            }
        }
    }
}

/// Reads what is there; an `Err` says why nothing is.
fn read(mut socket: &UnixStream, buffer: &mut [u8]) -> Result<usize, Arrival> {
    loop {
        match socket.read(buffer) {
            Ok(0) => return Err(Arrival::Closed),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return Err(Arrival::Pending),
            // The other end of a socket pair that died with unread data.
            Err(_) => return Err(Arrival::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::slab::{FieldSpec, SlabLayout, SlabMemory};
    use crate::sys::mapping::Mapping;
    use crate::tensor::DType;

    const PIXELS: usize = 3 * 400 * 400;

    fn memory() -> SlabMemory {
        let field = |name: &str, dtype, shape: &[usize]| FieldSpec {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
        };
        let specs = vec![field("image", DType::U8, &[PIXELS]), field("label", DType::I64, &[])];
        let layout = Arc::new(SlabLayout::new(4, specs).unwrap());
        SlabMemory::new(Arc::new(Mapping::private(layout.bytes).unwrap()), layout).unwrap()
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (host, worker) = UnixStream::pair().unwrap();
        host.set_nonblocking(true).unwrap();
        worker.set_nonblocking(true).unwrap();
        (host, worker)
    }

    #[test]
    fn slots_arrive_in_parts_and_before_their_report() {
        let (host, worker) = pair();
        let memory = memory();
        let chunk = Chunk { slab: 1, generation: 5, first: 1, count: 2 };
        let sender = std::thread::spawn(move || {
            for slot in [1u32, 2] {
                let pixels: Vec<u8> = (0..PIXELS).map(|at| (at as u32 * 7 + slot) as u8).collect();
                send_slot(&worker, &chunk, slot, &pixels, -i64::from(slot)).unwrap();
            }
            send_report(&worker, &[9; DONE_WORDS]).unwrap();
            worker
        });
        let mut inbox = Inbox::default();
        let report = loop {
            match inbox.receive(&host, |address| {
                assert_eq!((address.slab, address.generation), (1, 5));
                Some(Lease::new(&memory, 1..3))
            }) {
                Arrival::Pending => std::thread::yield_now(),
                arrival => break arrival,
            }
        };
        assert!(matches!(report, Arrival::Report(words) if *words == [9; DONE_WORDS]));
        let mut lease = Lease::new(&memory, 0..4);
        for slot in [1usize, 2] {
            assert!(lease.image(slot).iter().enumerate().all(|(at, &v)| v == (at * 7 + slot) as u8));
        }
        drop(sender.join().unwrap());
        assert!(matches!(inbox.receive(&host, |_| None), Arrival::Closed));
    }

    #[test]
    fn a_slot_that_is_not_owed_is_corrupt() {
        let (host, worker) = pair();
        let chunk = Chunk { slab: 0, generation: 1, first: 0, count: 1 };
        send_slot(&worker, &chunk, 0, &[0; 16], 0).unwrap();
        assert!(matches!(Inbox::default().receive(&host, |_| None), Arrival::Corrupt(_)));
    }

    #[test]
    fn a_slot_of_another_length_is_corrupt() {
        let (host, worker) = pair();
        let memory = memory();
        let chunk = Chunk { slab: 0, generation: 1, first: 0, count: 1 };
        send_slot(&worker, &chunk, 0, &[0; 16], 0).unwrap();
        let arrival = Inbox::default().receive(&host, |_| Some(Lease::new(&memory, 0..1)));
        assert!(matches!(arrival, Arrival::Corrupt(_)));
    }

    #[test]
    fn unknown_frames_are_corrupt() {
        for bytes in [[0u8; HEADER_BYTES], [0xff; HEADER_BYTES]] {
            let (host, mut worker) = pair();
            worker.write_all(&bytes).unwrap();
            assert!(matches!(Inbox::default().receive(&host, |_| None), Arrival::Corrupt(_)));
        }
    }

    #[test]
    fn a_refusal_arrives_whole() {
        let (host, worker) = pair();
        super::super::frame::send_text(&worker, Kind::Refused, "no such file").unwrap();
        let arrival = Inbox::default().receive(&host, |_| None);
        assert!(matches!(arrival, Arrival::Refused(text) if text == "no such file"));
    }
}
