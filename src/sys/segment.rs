//! Shared memory: created, sized, reserved page by page before anyone touches it, sealed, and mapped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FileType, Mode, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::Errno;

pub use super::backing::{Backing, SHM_DIRECTORY};
use super::backing::{reserve, write_all_at};
pub use super::mapping::{Access, Mapping};
use crate::error::{Error, ErrorKind, Result};

/// The largest piece reserved by one call: small enough to look at the limits in between, and to end between two
/// ticks of a timer on kernels that undo an interrupted call.
pub const CHUNK: usize = 16 << 20;

/// A piece of shared memory: an owned descriptor whose pages are all reserved.
///
/// Dropping it closes the descriptor; the memory lives on while a map or another descriptor of it does.
#[derive(Debug)]
pub struct Segment {
    fd: OwnedFd,
    bytes: usize,
    backing: &'static str,
    /// The one read-only map that all who read this segment in this process share.
    reader: OnceLock<Arc<Mapping>>,
}

impl Segment {
    /// Creates a segment of at least `bytes` bytes, in whole pages, all of them reserved and zero.
    ///
    /// `before_chunk` is called with the size of each piece before it is reserved; an error from it ends the creation.
    /// On any error nothing remains.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when the memory cannot be had; what `before_chunk` returned.
    pub fn create(
        backing: &Backing,
        name: &str,
        bytes: usize,
        before_chunk: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Segment> {
        let bytes = round_to_pages(bytes)?;
        check_file_size_limit(bytes)?;
        let fd = backing.open(name)?;
        let _ = fchmod(&fd, Mode::RUSR | Mode::WUSR); // a memfd is open to every user of the machine otherwise
        ftruncate(&fd, bytes as u64).map_err(|errno| shortage(&fd, backing, bytes, bytes, errno))?;
        let mut done = 0;
        while done < bytes {
            let chunk = CHUNK.min(bytes - done);
            before_chunk(chunk)?;
            reserve(&fd, done, chunk).map_err(|errno| shortage(&fd, backing, bytes, bytes - done, errno))?;
            done += chunk;
        }
        if *backing == Backing::Memfd {
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
                .map_err(|errno| failed("seal", errno))?;
        }
        Ok(Segment { fd, bytes, backing: backing.name(), reader: OnceLock::new() })
    }

    /// Takes a descriptor that another process sent, of which `bytes` bytes are to be used.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when it is no file or memfd, or is smaller than that.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<Segment> {
        let size = size_of_file(&fd)?;
        if bytes == 0 || bytes > size {
            return Err(Error::new(
                ErrorKind::SharedMemory,
                format!("a received segment holds {size} bytes, {bytes} are to be used"),
            ));
        }
        let sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let backing = if sealed { Backing::Memfd.name() } else { "file" };
        Ok(Segment { fd, bytes, backing, reader: OnceLock::new() })
    }

    /// Takes a descriptor that another process sent, with all its bytes.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when it is no file or memfd, or is empty.
    pub fn from_fd_whole(fd: OwnedFd) -> Result<Segment> {
        let size = size_of_file(&fd)?;
        Segment::from_fd(fd, size)
    }

    /// Returns the size in bytes; whole pages where this process created it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `memfd`, `shm` or `file`; a received segment that is not sealed is called `file`.
    pub fn backing_name(&self) -> &'static str {
        self.backing
    }

    /// Forbids every new way to write; writable maps that exist stay so. Returns false where this backing cannot.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when the kernel refuses for another reason.
    pub fn seal_future_write(&self) -> Result<bool> {
        self.seal(SealFlags::FUTURE_WRITE)
    }

    /// Forbids writing, resizing and further seals, for ever. Returns false where this backing cannot.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when a writable map of it is left, among others.
    pub fn seal_all(&self) -> Result<bool> {
        self.seal(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    }

    fn seal(&self, seals: SealFlags) -> Result<bool> {
        match fcntl_add_seals(&self.fd, seals) {
            Ok(()) => Ok(true),
            // A file on tmpfs: EPERM. One on disk: EINVAL. So is a seal that the kernel does not know yet.
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            Err(errno) => Err(failed("seal", errno)),
        }
    }

    /// Returns whether nobody can write to it any more.
    #[cfg(test)]
    pub fn is_write_sealed(&self) -> bool {
        fcntl_get_seals(&self.fd).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
    }

    /// Writes all of `bytes` from `offset` on, without a map.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when they do not fit, or the segment is sealed.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes as u64) {
            return Err(Error::new(
                ErrorKind::SharedMemory,
                format!("{} bytes at {offset} do not fit into a segment of {}", bytes.len(), self.bytes),
            ));
        }
        write_all_at(self.fd.as_fd(), bytes, offset).map_err(|errno| failed("write", errno))
    }

    /// Maps all of it; `populate` fills the page tables at once, which later saves a fault a page.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when the map cannot be made, or pages of it are not there.
    pub fn map(&self, access: Access, populate: bool) -> Result<Mapping> {
        Mapping::shared(self.fd.as_fd(), self.bytes, access, populate)
    }

    /// Returns the read-only map of it that this process shares, made at the first call.
    ///
    /// # Errors
    /// As [`Segment::map`].
    pub fn reader(&self) -> Result<Arc<Mapping>> {
        if let Some(mapping) = self.reader.get() {
            return Ok(Arc::clone(mapping));
        }
        let mapping = Arc::new(self.map(Access::ReadOnly, false)?);
        Ok(Arc::clone(self.reader.get_or_init(|| mapping)))
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns `bytes` rounded up to whole pages.
///
/// # Errors
/// [`ErrorKind::SharedMemory`] for 0 and for what no file can hold.
pub fn round_to_pages(bytes: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(rustix::param::page_size())
        .filter(|&rounded| rounded > 0 && rounded <= i64::MAX as usize)
        .ok_or_else(|| Error::new(ErrorKind::SharedMemory, format!("a segment cannot have {bytes} bytes")))
}

/// Refuses a size that the kernel would answer with SIGXFSZ, which ends the process.
fn check_file_size_limit(bytes: usize) -> Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if bytes as u64 > limit => Err(Error::new(
            ErrorKind::SharedMemory,
            format!("a segment needs {bytes} bytes, the file size limit is {limit}"),
        )
        .with_remedy("ulimit -f unlimited")),
        _ => Ok(()),
    }
}

fn size_of_file(fd: &OwnedFd) -> Result<usize> {
    let stat = fstat(fd).map_err(|errno| failed("fstat", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => usize::try_from(stat.st_size).map_err(|_| failed("fstat", Errno::OVERFLOW)),
        other => Err(Error::new(
            ErrorKind::SharedMemory,
            format!("a received descriptor is a {other:?}, not a segment"),
        )),
    }
}

pub(super) fn failed(what: &str, errno: Errno) -> Error {
    let source = io::Error::from(errno);
    Error::new(ErrorKind::SharedMemory, format!("{what}: {source}")).with_source(source)
}

/// Says how much is missing where, when pages could not be reserved.
fn shortage(fd: &OwnedFd, backing: &Backing, bytes: usize, left: usize, errno: Errno) -> Error {
    if !matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::NOMEM) {
        return failed(&format!("reserve {bytes} bytes of {}", backing.name()), errno);
    }
    let free =
        super::limits::space_of(fd.as_fd()).map_or("unknown".to_owned(), |space| space.free.to_string());
    let source = io::Error::from(errno);
    let message =
        format!("a {} segment of {bytes} bytes needs {left} more, free are {free}: {source}", backing.name());
    let error = Error::new(ErrorKind::SharedMemory, message).with_source(source);
    match backing {
        Backing::Memfd => error,
        Backing::Shm => error.with_path(SHM_DIRECTORY).with_remedy(format!(
            "docker run --shm-size={}m, or transport memfd, which the size of /dev/shm does not bound",
            (bytes >> 20) + 1
        )),
        Backing::File(directory) => error.with_path(directory),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::sys::backing::open_nameless;

    fn backings() -> Vec<(Backing, Option<tempfile::TempDir>)> {
        let directory = tempfile::tempdir().unwrap();
        let file = Backing::File(directory.path().to_path_buf());
        vec![(Backing::Memfd, None), (Backing::Shm, None), (file, Some(directory))]
    }

    fn create(backing: &Backing, bytes: usize) -> Result<Segment> {
        Segment::create(backing, "test", bytes, &mut |_| Ok(()))
    }

    #[test]
    fn every_page_is_reserved_before_it_is_touched() {
        for (backing, _directory) in backings() {
            for bytes in [1, 4096, 4097, (3 << 20) + 5] {
                let segment = create(&backing, bytes).unwrap();
                assert_eq!(segment.bytes(), bytes.next_multiple_of(rustix::param::page_size()));
                let stat = fstat(&segment.fd).unwrap();
                assert_eq!(stat.st_size as usize, segment.bytes(), "{backing:?}");
                assert!(stat.st_blocks as usize * 512 >= segment.bytes(), "{backing:?}");
            }
        }
    }

    #[test]
    fn nothing_of_it_has_a_name() {
        for (backing, directory) in backings() {
            let segment = create(&backing, 4096).unwrap();
            if let Some(directory) = directory {
                assert_eq!(directory.path().read_dir().unwrap().count(), 0);
            }
            let link = format!("/proc/self/fd/{}", segment.fd.as_raw_fd());
            let target = std::fs::read_link(link).unwrap();
            assert!(target.to_str().unwrap().ends_with(" (deleted)"), "{target:?}");
            assert_eq!(segment.backing_name(), backing.name());
        }
    }

    #[test]
    fn a_memfd_cannot_be_resized_and_files_are_not_sealed() {
        for (backing, _directory) in backings() {
            let segment = create(&backing, 8192).unwrap();
            let sealed = backing == Backing::Memfd;
            assert_eq!(ftruncate(&segment.fd, 4096) == Err(Errno::PERM), sealed, "{backing:?}");
            assert_eq!(ftruncate(&segment.fd, 16_384) == Err(Errno::PERM), sealed, "{backing:?}");
            assert_eq!(segment.seal_future_write().unwrap(), sealed, "{backing:?}");
            assert_eq!(segment.seal_all().unwrap(), sealed, "{backing:?}");
        }
    }

    #[test]
    fn after_the_future_write_seal_only_old_maps_can_write() {
        let segment = create(&Backing::Memfd, 4096).unwrap();
        let _old = segment.map(Access::ReadWrite, false).unwrap();
        assert!(segment.seal_future_write().unwrap());
        assert!(segment.map(Access::ReadWrite, false).is_err());
        assert!(segment.write_at(&[1], 0).is_err());
        assert!(segment.map(Access::ReadOnly, true).is_ok());
        assert!(!segment.is_write_sealed());
    }

    #[test]
    fn a_writable_map_keeps_the_last_seal_away() {
        let segment = create(&Backing::Memfd, 4096).unwrap();
        let map = segment.map(Access::ReadWrite, false).unwrap();
        assert!(segment.seal_all().is_err());
        drop(map);
        assert!(segment.seal_all().unwrap());
        assert!(segment.is_write_sealed());
    }

    #[test]
    fn each_chunk_is_asked_for_and_a_refusal_ends_it() {
        let mut asked = Vec::new();
        let bytes = 2 * CHUNK + 4096;
        Segment::create(&Backing::Memfd, "chunks", bytes, &mut |chunk| {
            asked.push(chunk);
            Ok(())
        })
        .unwrap();
        assert_eq!(asked, [CHUNK, CHUNK, 4096]);
        let error = Segment::create(&Backing::Memfd, "chunks", bytes, &mut |chunk| match chunk {
            CHUNK => Ok(()),
            _ => Err(Error::new(ErrorKind::Limit, "no more")),
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }

    #[test]
    fn writes_reach_the_last_byte_and_no_further() {
        for (backing, _directory) in backings() {
            let segment = create(&backing, 10_000).unwrap();
            segment.write_at(b"abc", 12_285).unwrap();
            assert!(segment.write_at(b"abc", 12_286).is_err());
            assert!(segment.write_at(b"abc", u64::MAX).is_err());
            let mut back = [1; 4];
            assert_eq!(rustix::io::pread(&segment, &mut back, 12_284).unwrap(), 4);
            assert_eq!(&back, b"\0abc");
        }
    }

    /// Needs a file system of its own to fill: `FOREBAY_SMALL_TMPFS` names a tmpfs of at most 64 MiB.
    #[test]
    fn a_full_file_system_is_an_error_that_leaves_nothing() {
        let Some(directory) = std::env::var_os("FOREBAY_SMALL_TMPFS").map(std::path::PathBuf::from) else {
            eprintln!("skipped: FOREBAY_SMALL_TMPFS is not set");
            return;
        };
        let space = || crate::sys::limits::space_at(&directory).unwrap();
        let before = space();
        assert!(before.total <= 64 << 20, "{before:?} is not small");
        let backing = Backing::File(directory.clone());
        let error = create(&backing, before.free as usize + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SharedMemory);
        assert!(error.to_string().contains("free are"), "{error}");
        assert_eq!(space(), before);
        let all = create(&backing, before.free as usize).unwrap();
        assert_eq!(space().free, 0);
        assert!(create(&backing, 1).is_err());
        let map = all.map(Access::ReadWrite, true).unwrap();
        drop((all, map));
        assert_eq!(space(), before);
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        assert!(create(&Backing::Memfd, 0).is_err());
        assert!(create(&Backing::Memfd, usize::MAX).is_err());
        assert!(create(&Backing::File("/nowhere/at/all".into()), 1).is_err());
        let small = create(&Backing::Memfd, 4096).unwrap();
        assert!(Segment::from_fd(small.fd.try_clone().unwrap(), 4097).is_err());
        assert!(Segment::from_fd(small.fd.try_clone().unwrap(), 0).is_err());
        assert_eq!(Segment::from_fd_whole(small.fd).unwrap().bytes(), 4096);
        let socket = crate::sys::fdpass::pair().unwrap().0;
        assert!(Segment::from_fd(socket.into(), 1).is_err());
    }

    #[test]
    fn pages_that_were_never_reserved_are_found_when_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let fd = open_nameless(directory.path()).unwrap();
        ftruncate(&fd, 4096).unwrap();
        let segment = Segment::from_fd(fd.try_clone().unwrap(), 4096).unwrap();
        ftruncate(&fd, 0).unwrap();
        assert_eq!(segment.map(Access::ReadOnly, true).unwrap_err().kind(), ErrorKind::SharedMemory);
    }
}
