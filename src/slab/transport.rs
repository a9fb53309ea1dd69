//! Which memory a slab is made of, and reserving it: the rungs that `auto` walks down.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{SlabLayout, SlabMemory};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::mapping::{Access, Mapping};
use crate::sys::segment::{Backing, Segment};

/// How batches travel from the workers to the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Transport {
    /// `memfd`, then `shm`, then `heap`, each slab by itself; says so when it steps down.
    #[default]
    Auto,
    /// Anonymous shared memory. Bounded by memory limits, not by the size of `/dev/shm`.
    Memfd,
    /// A nameless file on `/dev/shm`. Bounded by the size of that mount (64 MB in a default container).
    Shm,
    /// A nameless mapped file in a directory. Bounded by the disk.
    File,
    /// The consumer's private memory; worker processes send the bytes over a socket.
    Heap,
    /// Worker threads that write into private memory; no processes.
    InProcess,
}

impl Transport {
    /// Every transport, in the order of help texts.
    pub const ALL: [Transport; 6] = [
        Transport::Auto,
        Transport::Memfd,
        Transport::Shm,
        Transport::File,
        Transport::Heap,
        Transport::InProcess,
    ];

    /// Returns the name that [`FromStr`] reads, such as `in-process`.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Memfd => "memfd",
            Transport::Shm => "shm",
            Transport::File => "file",
            Transport::Heap => "heap",
            Transport::InProcess => "in-process",
        }
    }

    /// Returns the kinds of memory to try, best first.
    pub(crate) fn rungs(self, strict: bool) -> &'static [Rung] {
        use Rung::*;
        match (self, strict) {
            (Transport::Auto, false) => &[Memfd, Shm, Heap],
            (Transport::Auto, true) => &[Memfd, Shm],
            (Transport::Memfd, false) => &[Memfd, Heap],
            (Transport::Memfd, true) => &[Memfd],
            (Transport::Shm, false) => &[Shm, Heap],
            (Transport::Shm, true) => &[Shm],
            (Transport::File, false) => &[File, Heap],
            (Transport::File, true) => &[File],
            (Transport::Heap, _) => &[Heap],
            (Transport::InProcess, _) => &[Private],
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Transport::ALL.into_iter().find(|transport| transport.name() == text).ok_or_else(|| {
            let names = Transport::ALL.map(Transport::name).join(", ");
            Error::new(ErrorKind::Config, format!("transport {text:?} is unknown"))
                .with_remedy(format!("use one of {names}"))
        })
    }
}

/// The memory one slab is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rung {
    /// Anonymous shared memory.
    Memfd,
    /// `/dev/shm`.
    Shm,
    /// A file in a directory.
    File,
    /// Private memory that workers send to over a socket.
    Heap,
    /// Private memory that worker threads write to.
    Private,
}

impl Rung {
    /// Returns the name that reports use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Rung::Memfd => "memfd",
            Rung::Shm => "shm",
            Rung::File => "file",
            Rung::Heap => "heap",
            Rung::Private => "private",
        }
    }
}

/// Reserves one slab: every page is there when this returns, or nothing is.
///
/// `before_chunk` is called with a number of bytes before each part of the reservation and may refuse it.
///
/// # Errors
/// What the system or `before_chunk` refused, as [`ErrorKind::SharedMemory`] or [`ErrorKind::Io`].
pub(crate) fn reserve(
    rung: Rung,
    directory: Option<&PathBuf>,
    layout: &Arc<SlabLayout>,
    before_chunk: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<(SlabMemory, Option<Segment>)> {
    let backing = match rung {
        Rung::Memfd => Backing::Memfd,
        Rung::Shm => Backing::Shm,
        Rung::File => Backing::File(directory.cloned().unwrap_or_else(std::env::temp_dir)),
        Rung::Heap | Rung::Private => {
            let mapping = Mapping::private_reserved(layout.bytes, before_chunk)?;
            return Ok((SlabMemory::new(Arc::new(mapping), Arc::clone(layout))?, None));
        }
    };
    let segment = Segment::create(&backing, "slab", layout.bytes, before_chunk)?;
    // The consumer's pages are mapped by fault-around as it reads; the workers, who write, populate theirs.
    let mapping = segment.map(Access::ReadWrite, false)?;
    Ok((SlabMemory::new(Arc::new(mapping), Arc::clone(layout))?, Some(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for transport in Transport::ALL {
            assert_eq!(transport.name().parse::<Transport>().unwrap(), transport);
        }
        let error = "mmap".parse::<Transport>().unwrap_err();
        assert!(error.remedy().unwrap().contains("in-process"), "{error}");
    }
}
