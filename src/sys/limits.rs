//! What bounds memory, descriptors and processes here, each read anew at every call, and how much room they leave.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfs;
use rustix::process::{Resource, getrlimit};

pub use super::cgroup::{MemoryLimit, memory_levels};
use super::segment::SHM_DIRECTORY;
use crate::error::{Error, Result};

/// The most that is left untouched below a memory limit, for what everyone else takes meanwhile.
const LARGEST_RESERVE: u64 = 64 << 20;

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

/// Returns the space of `/dev/shm`, or `None` where it is not there or tells none.
pub fn shm_mount() -> Option<Space> {
    space_at(Path::new(SHM_DIRECTORY))
}

/// No blocks at all means that no size is known (memfd, unlimited tmpfs, gVisor), not that it is full.
fn space(stat: &StatVfs) -> Option<Space> {
    (stat.f_blocks > 0).then(|| Space {
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Returns how many descriptors this process may open, now and at most; `u64::MAX` is no limit.
pub fn nofile() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// Returns how many descriptors are open in this process.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io), mostly because `/proc` is not mounted.
pub fn open_descriptors() -> Result<usize> {
    let list =
        std::fs::read_dir("/proc/self/fd").map_err(|source| Error::io("read /proc/self/fd", source))?;
    Ok(list.count().saturating_sub(1)) // the list itself is one
}

/// Returns the largest size a file may have, memfds among them, where there is a limit.
pub fn fsize() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Returns how much memory a process has resident, shared pages included; `None` when it is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns how many threads can run at once, after affinity and control groups; at least 1.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the bytes of one line of `/proc/meminfo`.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the room for memory ends at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The size of the file system that the segment lies on.
    FileSystem,
    /// The largest file size (RLIMIT_FSIZE).
    FileSize,
    /// The limit of the control group at this directory.
    CgroupMax(PathBuf),
    /// The throttling limit of the control group at this directory.
    CgroupHigh(PathBuf),
    /// The memory of the machine.
    Machine,
    /// Nothing that could be read.
    Unknown,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::FileSystem => f.write_str("the file system's size"),
            Bound::FileSize => f.write_str("the file size limit (RLIMIT_FSIZE)"),
            Bound::CgroupMax(directory) => write!(f, "the memory limit of {}", directory.display()),
            Bound::CgroupHigh(directory) => write!(f, "memory.high of {}", directory.display()),
            Bound::Machine => f.write_str("the machine's available memory"),
            Bound::Unknown => f.write_str("nothing known"),
        }
    }
}

/// How many bytes can be reserved now, and why not more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many.
    pub bytes: u64,
    /// The number that they come from: the limit itself, before what is used is taken off.
    pub limit: u64,
    /// What they end at.
    pub bounded_by: Bound,
}

/// Returns the room for memory that no file system bounds, beside workers that need nothing.
pub fn room() -> Room {
    room_within(None, 0)
}

/// Returns the room for segments on a file system with this space, beside workers that will need `peak` bytes.
///
/// The peak and a reserve of 5 % of the limit, at most 64 MiB, are kept free below memory limits only.
pub fn room_within(space: Option<Space>, peak: u64) -> Room {
    room_below(space, fsize(), peak)
}

/// Returns the room for private memory, which is no file of any size, beside workers that will need `peak` bytes.
pub fn private_room(peak: u64) -> Room {
    room_below(None, None, peak)
}

fn room_below(space: Option<Space>, file_size: Option<u64>, peak: u64) -> Room {
    let meminfo_text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = meminfo(&meminfo_text, "MemTotal").zip(meminfo(&meminfo_text, "MemAvailable"));
    smallest(space, file_size, &memory_levels(), machine, peak)
}

/// The arithmetic of [`room_below`] on numbers that were read; `machine` is total and available memory.
fn smallest(
    space: Option<Space>,
    file_size: Option<u64>,
    levels: &[MemoryLimit],
    machine: Option<(u64, u64)>,
    peak: u64,
) -> Room {
    let memory = |limit: u64, free: u64, bounded_by: Bound| {
        let reserve = (limit / 20).min(LARGEST_RESERVE);
        Room { bytes: free.saturating_sub(reserve).saturating_sub(peak), limit, bounded_by }
    };
    let maxima = levels.iter().filter_map(|level| {
        let limit = level.limit?;
        Some(memory(limit, level.free_below(limit), Bound::CgroupMax(level.source.clone())))
    });
    let highs = levels.iter().filter_map(|level| {
        let high = level.high?;
        Some(memory(high, level.free_below(high), Bound::CgroupHigh(level.source.clone())))
    });
    let file_system = space.map(|s| Room { bytes: s.free, limit: s.total, bounded_by: Bound::FileSystem });
    let file_size = file_size.map(|limit| Room { bytes: limit, limit, bounded_by: Bound::FileSize });
    let machine = machine.map(|(total, available)| memory(total, available, Bound::Machine));
    file_system
        .into_iter()
        .chain(file_size)
        .chain(maxima)
        .chain(highs)
        .chain(machine)
        .min_by_key(|room| room.bytes)
        .unwrap_or(Room { bytes: u64::MAX, limit: u64::MAX, bounded_by: Bound::Unknown })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::segment::{Backing, Segment};

    const MIB: u64 = 1 << 20;

    fn level(limit: Option<u64>, high: Option<u64>, usage: u64, reclaimable: u64) -> MemoryLimit {
        MemoryLimit { limit, high, usage, reclaimable, oom_kills: None, source: "/g".into() }
    }

    #[test]
    fn the_tightest_number_bounds_the_room_and_is_named() {
        let machine = Some((16_000 * MIB, 9_000 * MIB));
        let room = smallest(None, None, &[], machine, 1000 * MIB);
        assert_eq!((room.bytes, room.bounded_by), (7936 * MIB, Bound::Machine));

        let levels =
            [level(Some(1000 * MIB), Some(900 * MIB), 500 * MIB, 100 * MIB), level(None, None, 0, 0)];
        let room = smallest(None, None, &levels, machine, 0);
        assert_eq!((room.bytes, room.bounded_by), (455 * MIB, Bound::CgroupHigh("/g".into())));

        let room = smallest(None, None, &[level(Some(1000 * MIB), None, 980 * MIB, 0)], machine, 0);
        assert_eq!((room.bytes, room.limit, room.bounded_by), (0, 1000 * MIB, Bound::CgroupMax("/g".into())));

        let space = Some(Space { total: 64 * MIB, free: 60 * MIB });
        let room = smallest(space, Some(100 * MIB), &levels, machine, 0);
        assert_eq!((room.bytes, room.limit, room.bounded_by), (60 * MIB, 64 * MIB, Bound::FileSystem));

        let room = smallest(None, Some(10 * MIB), &levels, machine, 0);
        assert_eq!((room.bytes, room.bounded_by), (10 * MIB, Bound::FileSize));
    }

    #[test]
    fn nothing_known_bounds_nothing() {
        assert_eq!(smallest(None, None, &[], None, 5).bounded_by, Bound::Unknown);
    }

    #[test]
    fn a_memfd_tells_no_space_and_dev_shm_does() {
        let segment = Segment::create(&Backing::Memfd, "space", 4096, &mut |_| Ok(())).unwrap();
        assert_eq!(space_of(segment.as_fd()), None);
        if let Some(space) = shm_mount() {
            assert!(space.free <= space.total);
        }
    }

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:       24576 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(MIB));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo("MemAvailable: many kB", "MemAvailable"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(cpus() >= 1);
        assert!(open_descriptors().unwrap() >= 3);
        let (soft, hard) = nofile();
        assert!(soft <= hard);
        let room = room();
        assert!(room.bytes <= room.limit, "{room:?}");
        assert_ne!(room.bounded_by, Bound::Unknown);
    }
}
