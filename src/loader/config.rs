//! A checked configuration: plain data, every number decided.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::slab::Transport;
use crate::sys::limits;

use super::{MaxErrors, OnError};

/// What a loader was built with.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub batch_size: u32,
    pub num_workers: u32,
    pub prefetch: u32,
    pub hold: u32,
    pub transport: Transport,
    pub strict: bool,
    pub file_dir: Option<PathBuf>,
    pub unordered: bool,
    pub persistent_workers: bool,
    pub on_error: OnError,
    pub max_errors: MaxErrors,
    pub timeout: Duration,
    pub hold_timeout: Duration,
    pub max_restarts: u32,
}

/// The most samples a batch may have: slot numbers and their sums stay far from the end of 32 bits.
const MAX_BATCH: usize = 1 << 24;

/// The most slabs a loader may have.
const MAX_SLABS: u64 = 4096;

/// The most workers a loader may have.
const MAX_WORKERS: usize = 1024;

/// Descriptors of the host beside slabs and workers: epoll, doorbell, setup, control, executable, and some to spare for
/// files that the program itself opens meanwhile.
const OTHER_DESCRIPTORS: u64 = 16;

/// Descriptors a worker costs its host: pidfd, socket, doorbell, and its page while it is sent.
const WORKER_DESCRIPTORS: u64 = 4;

impl Config {
    /// Returns how many slabs there are: batches made ahead and batches that the consumer keeps.
    pub(super) fn slabs(&self) -> u32 {
        self.prefetch + self.hold
    }

    /// Checks the descriptors that it will take against the limit.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] with the number that is needed.
    pub(super) fn check_descriptors(&self, tables: usize) -> Result<()> {
        let need = u64::from(self.slabs())
            + u64::from(self.num_workers) * WORKER_DESCRIPTORS
            + tables as u64
            + OTHER_DESCRIPTORS;
        let open = limits::open_descriptors()? as u64;
        let (soft, _) = limits::nofile();
        if open + need <= soft {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Limit,
            format!("{need} more descriptors are needed ({open} are open), but RLIMIT_NOFILE is {soft}"),
        )
        .with_remedy(format!(
            "ulimit -n {}, or fewer workers or a smaller prefetch",
            (open + need).next_power_of_two()
        )))
    }
}

/// Checks a batch size.
///
/// # Errors
/// [`ErrorKind::Config`].
pub(super) fn batch_size(asked: usize) -> Result<u32> {
    if (1..=MAX_BATCH).contains(&asked) {
        return Ok(asked as u32);
    }
    Err(Error::new(ErrorKind::Config, format!("batch_size is {asked}"))
        .with_remedy(format!("set batch_size to 1..={MAX_BATCH}")))
}

/// Decides the number of workers: as asked, or this process's share of the processors.
///
/// # Errors
/// [`ErrorKind::Config`].
pub(super) fn num_workers(asked: Option<usize>) -> Result<u32> {
    match asked {
        Some(count) if count <= MAX_WORKERS => Ok(count as u32),
        Some(count) => Err(Error::new(ErrorKind::Config, format!("num_workers is {count}")).with_remedy(
            format!("set num_workers to 0..={MAX_WORKERS}; more workers than processors gain nothing"),
        )),
        None => Ok((limits::cpus() / local_ranks()?).clamp(1, MAX_WORKERS) as u32),
    }
}

/// Decides how many batches are made ahead: enough slots for two chunks a worker, two batches at least.
///
/// # Errors
/// [`ErrorKind::Config`].
pub(super) fn prefetch(
    asked: Option<usize>,
    hold: usize,
    workers: u32,
    batch_size: u32,
) -> Result<(u32, u32)> {
    let prefetch =
        asked.map_or_else(|| u64::from((2 * workers).div_ceil(batch_size).max(2)), |asked| asked as u64);
    if prefetch == 0 {
        return Err(Error::new(ErrorKind::Config, "prefetch is 0").with_remedy("set prefetch to 1 or more"));
    }
    if prefetch.saturating_add(hold as u64) > MAX_SLABS {
        return Err(Error::new(
            ErrorKind::Config,
            format!("prefetch {prefetch} and hold {hold} are too many slabs"),
        )
        .with_remedy(format!("keep their sum at most {MAX_SLABS}")));
    }
    Ok((prefetch as u32, hold as u32))
}

/// Returns among how many ranks this machine is divided.
///
/// # Errors
/// [`ErrorKind::Config`] when `LOCAL_WORLD_SIZE` is no positive number.
pub(super) fn local_ranks() -> Result<usize> {
    let Some(text) = std::env::var_os("LOCAL_WORLD_SIZE") else { return Ok(1) };
    text.to_str().and_then(|text| text.trim().parse().ok()).filter(|ranks| *ranks > 0).ok_or_else(|| {
        Error::new(ErrorKind::Config, format!("LOCAL_WORLD_SIZE is {text:?}"))
            .with_remedy("set it to the number of ranks on this machine, or unset it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_slots_for_two_chunks_a_worker() {
        assert_eq!(prefetch(None, 1, 2, 64).unwrap(), (2, 1));
        assert_eq!(prefetch(None, 1, 32, 32).unwrap(), (2, 1));
        assert_eq!(prefetch(None, 1, 64, 32).unwrap(), (4, 1));
        assert_eq!(prefetch(None, 1, 8, 1).unwrap(), (16, 1));
        assert_eq!(prefetch(Some(1), 0, 8, 1).unwrap(), (1, 0));
    }

    #[test]
    fn impossible_numbers_are_named() {
        for error in [
            batch_size(0).unwrap_err(),
            batch_size(usize::MAX).unwrap_err(),
            num_workers(Some(usize::MAX)).unwrap_err(),
            prefetch(Some(0), 1, 1, 1).unwrap_err(),
            prefetch(Some(usize::MAX), usize::MAX, 1, 1).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.remedy().is_some(), "{error}");
        }
    }
}
