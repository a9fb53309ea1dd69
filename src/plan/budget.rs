//! Whether slabs fit, asked anew before each part of one, since other programs take memory too; and what would fit.

use crate::error::{Error, ErrorKind, Result};
use crate::slab::Rung;
use crate::sys::limits::{self, Bound, Room};

/// What a worker process is expected to take beside the slabs: its own pages, a file, a decoded picture and scratch.
/// `Pss_Anon` in the `smaps_rollup` of a worker was 5.5 MiB on pictures of 0.2 megapixels, and 78 to 92 MiB on pictures of
/// 10 megapixels, which this does not cover: there a tight limit may cost workers, which the kernel takes first.
const PROCESS_PEAK: u64 = 24 << 20;

/// The same for a worker thread, which shares the program's pages.
const THREAD_PEAK: u64 = 8 << 20;

const MIB: u64 = 1 << 20;

/// The memory that a loader wants, as far as limits are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Slabs wanted.
    pub slabs: u64,
    /// Bytes of one slab.
    pub slab_bytes: u64,
    /// Bytes of one sample in it.
    pub sample_bytes: u64,
    /// Workers.
    pub workers: u64,
    /// Whether they are processes.
    pub processes: bool,
}

impl Budget {
    /// Checks that the next `bytes` of a slab can be had without running into a limit that kills. `taken` counts the bytes
    /// of slabs that were reserved before.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] with the limit that is in the way, and what raises it.
    pub(crate) fn check(&self, rung: Rung, bytes: usize, taken: u64) -> Result<()> {
        let room = match rung {
            Rung::Shm => limits::room_within(limits::shm_mount(), self.peak()),
            Rung::Memfd => limits::room_within(None, self.peak()),
            Rung::Heap | Rung::Private => limits::private_room(self.peak()),
            // Its own file system refuses in time, and its pages are written back rather than kept.
            Rung::File => return Ok(()),
        };
        self.judge(&room, rung, bytes as u64, taken)
    }

    fn judge(&self, room: &Room, rung: Rung, bytes: u64, taken: u64) -> Result<()> {
        if bytes <= room.bytes {
            return Ok(());
        }
        let Budget { slabs, slab_bytes, .. } = self;
        let text = format!(
            "{slabs} slabs x {} need {}, and {} of {} are left for {} memory ({})",
            mib(*slab_bytes),
            mib(slabs * slab_bytes),
            mib(room.bytes),
            mib(room.limit),
            rung.name(),
            room.bounded_by,
        );
        let missing = (slabs * slab_bytes).saturating_sub(taken).saturating_sub(room.bytes);
        Err(Error::new(ErrorKind::SharedMemory, text).with_remedy(raise(room, missing)))
    }

    /// Returns the error of a loader that cannot have enough slabs, with settings that would do. `taken` counts the bytes of
    /// the slabs that it did get.
    pub(crate) fn refuse(&self, cause: &Error, taken: u64) -> Error {
        let room = limits::room_within(None, 0);
        let free = room.bytes.saturating_add(taken);
        let raise = cause.remedy().unwrap_or("raise the limit");
        let remedy = match self.settings(free) {
            Some(settings) => format!("{settings} | or {raise}"),
            None => raise.to_owned(),
        };
        Error::new(cause.kind(), format!("not even 2 slabs can be had: {}", cause.message()))
            .with_remedy(remedy)
    }

    /// Returns the largest settings that fit into `free` bytes: fewer workers where their own memory is the trouble.
    fn settings(&self, free: u64) -> Option<String> {
        let processes = self.processes.then_some([self.workers, 1]).into_iter().flatten();
        let choices = processes.map(|workers| (workers, workers * PROCESS_PEAK)).chain([(0, THREAD_PEAK)]);
        for (workers, peak) in choices {
            // One tenth stays, since other programs move too.
            let slab = free.saturating_sub(peak) / 10 * 9 / 2;
            let batch = slab.saturating_sub(PAGE_SLACK) / self.sample_bytes.max(1);
            if batch > 0 {
                return Some(format!(
                    "--batch-size {batch} --prefetch 1 --num-workers {workers} \
                     (.batch_size({batch}).prefetch(1).num_workers({workers}))"
                ));
            }
        }
        None
    }

    fn peak(&self) -> u64 {
        self.workers * if self.processes { PROCESS_PEAK } else { THREAD_PEAK }
    }
}

/// What a slab is larger than its samples at most: its fields' alignment and the rest of its last page.
const PAGE_SLACK: u64 = 8192;

/// Returns what makes room for `missing` bytes more.
fn raise(room: &Room, missing: u64) -> String {
    let size = room.limit.saturating_add(missing).div_ceil(MIB);
    match &room.bounded_by {
        Bound::FileSystem => format!(
            "docker run --shm-size={size}m | compose (service level) shm_size: {size}m | k8s: emptyDir {{medium: Memory, \
             sizeLimit: {size}Mi}} at /dev/shm\n  no restart possible: --transport auto or memfd (memfd ignores the size of \
             /dev/shm), or dtype u8"
        ),
        Bound::CgroupMax(_) | Bound::CgroupHigh(_) => format!(
            "docker run -m {size}m | compose mem_limit: {size}m | k8s: resources.limits.memory {size}Mi\n  no restart \
             possible: a smaller batch_size or prefetch, fewer workers, or dtype u8"
        ),
        Bound::FileSize => "ulimit -f unlimited".into(),
        Bound::Machine | Bound::Unknown => {
            "free memory, or use a smaller batch_size or prefetch, fewer workers, or dtype u8".into()
        }
    }
}

/// Returns a size in MiB for messages.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 samples of 224 x 224 f32, prefetch 2.
    fn budget() -> Budget {
        let sample_bytes = 3 * 224 * 224 * 4 + 8;
        let slab_bytes = (64u64 * sample_bytes).next_multiple_of(4096);
        Budget { slabs: 3, slab_bytes, sample_bytes, workers: 2, processes: true }
    }

    #[test]
    fn a_refusal_names_need_have_and_the_size_that_does() {
        let room = Room { bytes: 27 << 20, limit: 64 << 20, bounded_by: Bound::FileSystem };
        let taken = budget().slab_bytes;
        budget().judge(&room, Rung::Shm, 27 << 20, taken).unwrap();
        let error = budget().judge(&room, Rung::Shm, (27 << 20) + 1, taken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SharedMemory);
        assert!(error.message().contains("3 slabs x 36.8 MiB need 110.3 MiB"), "{error}");
        assert!(error.message().contains("27.0 MiB of 64.0 MiB are left"), "{error}");
        // 64 - 27 - 36.8 are somebody else's: 110.3 and those.
        assert!(error.remedy().unwrap().contains("--shm-size=111m"), "{error}");
        let room = Room { bounded_by: Bound::CgroupMax("/sys/fs/cgroup".into()), ..room };
        let error = budget().judge(&room, Rung::Memfd, 60 << 20, 0).unwrap_err();
        assert!(error.remedy().unwrap().contains("-m 148m"), "{error}");
    }

    #[test]
    fn settings_fit_into_what_they_are_made_for() {
        for free in (1..400).map(|mib| mib * MIB) {
            let Some(settings) = budget().settings(free) else {
                assert!(free < 12 * MIB, "nothing fits into {free}");
                continue;
            };
            let number = |flag: &str| -> u64 {
                let rest = settings.split_once(flag).unwrap().1;
                rest.split(' ').nth(1).unwrap().parse().unwrap()
            };
            let (batch, workers) = (number("--batch-size"), number("--num-workers"));
            let slab = (batch * budget().sample_bytes).next_multiple_of(4096) + 64;
            let peak = if workers == 0 { THREAD_PEAK } else { workers * PROCESS_PEAK };
            assert!(2 * slab + peak <= free, "{settings} into {free}");
        }
    }
}
