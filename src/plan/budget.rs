//! Whether the next part of a slab fits, asked anew before each part, since other programs take memory too.

use crate::error::{Error, ErrorKind, Result};
use crate::slab::Rung;
use crate::sys::limits::{self, Bound, Room};

/// Checks that `bytes` more of that memory can be had without running into a limit that kills.
///
/// # Errors
/// [`ErrorKind::SharedMemory`] with the limit that is in the way, and what raises it.
pub(crate) fn check_room(rung: Rung, bytes: usize) -> Result<()> {
    let space = match rung {
        Rung::Shm => limits::shm_mount(),
        // Its own file system refuses in time, and its pages are written back rather than kept.
        Rung::File => return Ok(()),
        Rung::Memfd | Rung::Heap | Rung::Private => None,
    };
    judge(&limits::room_within(space, 0), rung, bytes)
}

fn judge(room: &Room, rung: Rung, bytes: usize) -> Result<()> {
    if bytes as u64 <= room.bytes {
        return Ok(());
    }
    let text = format!(
        "{} more for a {} slab, but {} are left of {} ({})",
        mib(bytes as u64),
        rung.name(),
        mib(room.bytes),
        mib(room.limit),
        room.bounded_by,
    );
    Err(Error::new(ErrorKind::SharedMemory, text).with_remedy(remedy(room, bytes as u64)))
}

fn remedy(room: &Room, bytes: u64) -> String {
    let more = (room.limit + bytes).div_ceil(1 << 20);
    match &room.bounded_by {
        Bound::FileSystem => format!(
            "docker run --shm-size={more}m | compose (service level) shm_size: {more}m | k8s: emptyDir {{medium: Memory, \
             sizeLimit: {more}Mi}} at /dev/shm | or transport auto or memfd, which the size of /dev/shm does not bound"
        ),
        Bound::CgroupMax(_) | Bound::CgroupHigh(_) => format!(
            "docker run -m {more}m | k8s: resources.limits.memory {more}Mi | or a smaller batch_size, prefetch or dtype u8"
        ),
        Bound::FileSize => "ulimit -f unlimited".into(),
        Bound::Machine | Bound::Unknown => {
            "free memory, or use a smaller batch_size, prefetch or dtype u8".into()
        }
    }
}

/// Returns a size in MiB for messages.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_need_have_and_the_line_that_mends_it() {
        let room = Room { bytes: 10 << 20, limit: 64 << 20, bounded_by: Bound::FileSystem };
        judge(&room, Rung::Shm, 10 << 20).unwrap();
        let error = judge(&room, Rung::Shm, (10 << 20) + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SharedMemory);
        assert!(error.message().contains("10.0 MiB are left of 64.0 MiB"), "{error}");
        assert!(error.remedy().unwrap().contains("--shm-size=75m"), "{error}");
        let room = Room { bounded_by: Bound::CgroupMax("/sys/fs/cgroup".into()), ..room };
        let error = judge(&room, Rung::Memfd, 20 << 20).unwrap_err();
        assert!(error.remedy().unwrap().contains("-m 84m"), "{error}");
    }
}
