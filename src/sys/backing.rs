//! Where shared memory comes from: files without a name, and reserving their pages before anyone touches them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, memfd_create};
use rustix::io::Errno;

use super::segment::failed;
use super::signals::Blocked;
use crate::error::Result;

/// How often one piece may be interrupted without progress; signals are blocked, so only a debugger gets this far.
const MAX_INTERRUPTS: u32 = 10_000;

/// The directory of POSIX shared memory.
pub const SHM_DIRECTORY: &str = "/dev/shm";

/// Where the memory of a segment comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous shared memory; the size of `/dev/shm` does not bound it.
    Memfd,
    /// A nameless file on `/dev/shm`.
    Shm,
    /// A nameless file in this directory.
    File(PathBuf),
}

impl Backing {
    /// Returns the name that messages use: `memfd`, `shm` or `file`.
    pub fn name(&self) -> &'static str {
        match self {
            Backing::Memfd => "memfd",
            Backing::Shm => "shm",
            Backing::File(_) => "file",
        }
    }

    /// Opens an empty file of it that has no name, or loses its name at once.
    pub(super) fn open(&self, name: &str) -> Result<OwnedFd> {
        match self {
            Backing::Memfd => open_memfd(name),
            Backing::Shm => open_nameless(Path::new(SHM_DIRECTORY)),
            Backing::File(directory) => open_nameless(directory),
        }
    }
}

fn open_memfd(name: &str) -> Result<OwnedFd> {
    let name: String = format!("forebay-{name}").chars().filter(|c| c.is_ascii_graphic()).take(100).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(&*name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 the flag is unknown.
        Err(Errno::INVAL) => memfd_create(&*name, flags),
        other => other,
    }
    .map_err(|errno| failed("memfd_create", errno))
}

/// Opens a file in `directory` that nobody else can open by name.
pub(super) fn open_nameless(directory: &Path) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    let opened = match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => open_and_unlink(directory),
        other => other,
    };
    opened.map_err(|errno| failed("create a file", errno).with_path(directory))
}

/// Opens a new file under a name nobody can guess, and takes the name away.
fn open_and_unlink(directory: &Path) -> Result<OwnedFd, Errno> {
    use std::hash::{BuildHasher, Hasher};
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL | OFlags::CREATE | OFlags::NOFOLLOW;
    loop {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let path = directory.join(format!(".forebay-{random:016x}"));
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno),
            Ok(fd) => {
                rustix::fs::unlink(&path)?;
                return Ok(fd);
            }
        }
    }
}

/// Reserves `len` bytes from `offset` on. An interrupted call is repeated in smaller steps, so that each can end.
pub(super) fn reserve(fd: &OwnedFd, offset: usize, len: usize) -> Result<(), Errno> {
    let _blocked = Blocked::all();
    let (mut offset, end) = (offset, offset + len);
    let mut step = len;
    let mut interrupts = 0;
    while offset < end {
        let now = step.min(end - offset);
        match fallocate(fd, FallocateFlags::empty(), offset as u64, now as u64) {
            Ok(()) => {
                offset += now;
                interrupts = 0;
            }
            Err(Errno::INTR) if interrupts < MAX_INTERRUPTS => {
                interrupts += 1;
                step = (step / 2).next_multiple_of(rustix::param::page_size());
            }
            // Some file systems cannot reserve: zeros that are written are there as well.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(fd.as_fd(), offset, end - offset),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn write_zeros(fd: BorrowedFd<'_>, offset: usize, len: usize) -> Result<(), Errno> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut done = 0;
    while done < len {
        let now = ZEROS.len().min(len - done);
        write_all_at(fd, &ZEROS[..now], (offset + done) as u64)?;
        done += now;
    }
    Ok(())
}

pub(super) fn write_all_at(fd: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn the_fallback_leaves_no_name_either() {
        let directory = tempfile::tempdir().unwrap();
        let fd = open_and_unlink(directory.path()).unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        let stat = fstat(&fd).unwrap();
        assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, 0o600));
    }

    #[test]
    fn file_systems_without_reservation_get_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let fd = open_nameless(directory.path()).unwrap();
        write_zeros(fd.as_fd(), 0, 200_000).unwrap();
        assert_eq!(fstat(&fd).unwrap().st_size, 200_000);
    }
}
