//! What bounds memory, descriptors and processes here: each is read anew at every call.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::StatVfs;

/// The size of a file system and what is free in it for us, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What this user can still take.
    pub free: u64,
}

/// Returns the space of the file system that a descriptor lies on, or `None` where none is told, as for a memfd.
pub fn space_of(fd: BorrowedFd<'_>) -> Option<Space> {
    space(&rustix::fs::fstatvfs(fd).ok()?)
}

/// Returns the space of the file system that holds `path`, or `None` where it is not there or tells none.
pub fn space_at(path: &Path) -> Option<Space> {
    space(&rustix::fs::statvfs(path).ok()?)
}

/// No blocks at all means that no size is known (memfd, unlimited tmpfs, gVisor), not that it is full.
fn space(stat: &StatVfs) -> Option<Space> {
    (stat.f_blocks > 0).then(|| Space {
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}
