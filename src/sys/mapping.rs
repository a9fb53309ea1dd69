//! A range of memory, shared or private, as a raw pointer and a length; never a slice, since another process may write it.

use std::os::fd::{AsRawFd, BorrowedFd};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::io::Errno;

use super::segment::CHUNK;
use crate::error::{Error, ErrorKind, Result};

/// What a map of a segment allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads and stores.
    ReadWrite,
    /// Loads; a store kills the process.
    ReadOnly,
}

/// The size of a huge page; smaller maps cannot hold one.
const HUGE_PAGE: usize = 2 << 20;

/// A range of mapped memory, page-aligned, unmapped when dropped.
///
/// It gives a raw pointer and a length. Who reads or writes through it answers for races with other processes.
#[derive(Debug)]
pub struct Mapping {
    raw: MmapRaw,
    access: Access,
}

impl Mapping {
    /// Maps fresh private memory, all zero bytes, for transports without sharing.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the address space or the memory for it cannot be had, or `bytes` is 0.
    pub fn private(bytes: usize) -> Result<Mapping> {
        if bytes == 0 {
            return Err(Error::new(ErrorKind::Limit, "a map of 0 bytes"));
        }
        let map = MmapOptions::new().len(bytes).map_anon().map_err(|source| {
            Error::new(ErrorKind::Limit, format!("map {bytes} bytes of private memory: {source}"))
                .with_source(source)
        })?;
        let mapping = Mapping { raw: map.into(), access: Access::ReadWrite };
        mapping.try_huge_pages();
        Ok(mapping)
    }

    /// Maps private memory and takes its pages at once, in parts of [`CHUNK`]; `before_chunk` may refuse each of them.
    ///
    /// # Errors
    /// As [`private`](Mapping::private); what `before_chunk` returned; [`ErrorKind::Limit`] when pages cannot be had.
    pub fn private_reserved(
        bytes: usize,
        before_chunk: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Mapping> {
        let mapping = Mapping::private(bytes)?;
        for offset in (0..bytes).step_by(CHUNK) {
            let length = CHUNK.min(bytes - offset);
            before_chunk(length)?;
            match mapping.raw.advise_range(Advice::PopulateWrite, offset, length) {
                Ok(()) => {}
                // Before Linux 5.14, and in sandboxes: pages are then taken at first touch.
                Err(error) if is_unsupported(&error) => {}
                Err(source) => {
                    return Err(Error::new(
                        ErrorKind::Limit,
                        format!("take {length} bytes of private memory: {source}"),
                    )
                    .with_source(source));
                }
            }
        }
        Ok(mapping)
    }

    /// Maps the first `bytes` bytes of a descriptor, shared; with `populate`, its page tables are filled at once.
    pub(super) fn shared(
        fd: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
        populate: bool,
    ) -> Result<Mapping> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let raw = match access {
            Access::ReadWrite => options.map_raw(fd.as_raw_fd()),
            Access::ReadOnly => options.map_raw_read_only(fd.as_raw_fd()),
        };
        let raw = raw.map_err(|source| {
            Error::new(ErrorKind::SharedMemory, format!("map {bytes} bytes of shared memory: {source}"))
                .with_source(source)
        })?;
        let mapping = Mapping { raw, access };
        mapping.try_huge_pages();
        if populate {
            mapping.populate()?;
        }
        Ok(mapping)
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty)] // an empty map cannot be made
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns how many bytes of it lie on huge pages now, or `None` where the kernel does not tell.
    ///
    /// It reads all of `/proc/self/smaps`, which takes milliseconds: for reports, not for the hot path.
    pub fn huge_pages(&self) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        huge_bytes_in(&smaps, self.as_ptr() as u64, self.len() as u64)
    }

    /// Asks for huge pages where the map is large enough; a kernel set to `never` agrees and changes nothing.
    fn try_huge_pages(&self) {
        if self.len() >= HUGE_PAGE && self.access == Access::ReadWrite {
            // Refused where the kernel is built without them: the map works all the same.
            let _ = self.raw.advise(Advice::HugePage);
        }
    }

    /// Fills the page tables, after the advice above so that it can take effect.
    ///
    /// Unlike `MAP_POPULATE`, which this is for shared memory otherwise, it reports pages that are not there.
    fn populate(&self) -> Result<()> {
        match self.raw.advise(Advice::PopulateRead) {
            Ok(()) => Ok(()),
            // Before Linux 5.14, and in sandboxes: pages are then mapped at first touch.
            Err(error) if is_unsupported(&error) => Ok(()),
            Err(source) => Err(Error::new(
                ErrorKind::SharedMemory,
                format!(
                    "fill {} bytes of shared memory: {source}: its pages were never reserved",
                    self.len()
                ),
            )
            .with_source(source)),
        }
    }
}

/// Returns whether a kernel or sandbox does not know the advice.
fn is_unsupported(error: &std::io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::PERM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Adds up the huge-page lines of the map areas that begin within `[start, start + len)`.
fn huge_bytes_in(smaps: &str, start: u64, len: u64) -> Option<u64> {
    let mut inside = false;
    let mut found = None;
    for line in smaps.lines() {
        let (head, rest) = line.split_once(char::is_whitespace)?;
        if let Some((low, _)) = head.split_once('-') {
            let low = u64::from_str_radix(low, 16).ok()?;
            inside = (start..start + len).contains(&low);
            found = if inside { found.or(Some(0)) } else { found };
        } else if inside && matches!(head, "ShmemPmdMapped:" | "AnonHugePages:" | "FilePmdMapped:") {
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            found = found.map(|bytes| bytes + kib * 1024);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_zero_and_page_aligned() {
        let mapping = Mapping::private(3 << 20).unwrap();
        assert_eq!(mapping.len(), 3 << 20);
        assert_eq!(mapping.as_ptr() as usize % rustix::param::page_size(), 0);
        assert!(Mapping::private(0).is_err());
    }

    #[test]
    fn huge_bytes_are_summed_over_the_parts_of_the_map() {
        let smaps = "1000-3000 rw-s 00000000 00:01 5 /memfd:a (deleted)\nSize:    8 kB\nShmemPmdMapped:   2048 kB\n\
                     3000-4000 rw-s 00002000 00:01 5 /memfd:a (deleted)\nShmemPmdMapped:   4096 kB\n\
                     4000-5000 rw-p 00000000 00:00 0\nAnonHugePages:    8 kB\nVmFlags: rd wr\n";
        assert_eq!(huge_bytes_in(smaps, 0x1000, 0x3000), Some(6144 * 1024));
        assert_eq!(huge_bytes_in(smaps, 0x4000, 0x1000), Some(8192));
        assert_eq!(huge_bytes_in(smaps, 0x9000, 0x1000), None);
    }

    #[test]
    fn own_map_is_found_in_smaps() {
        let mapping = Mapping::private(64 << 10).unwrap();
        assert_eq!(mapping.huge_pages(), Some(0));
    }
}
