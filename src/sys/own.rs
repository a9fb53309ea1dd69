//! What a process does to itself: binds to its parent, takes a name, closes what it inherited, counts its threads.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

use rustix::process::Signal;

use crate::error::{Error, ErrorKind, Result};

/// Makes this process end with the thread that started it, and fails if that is gone already.
///
/// # Errors
/// [`ErrorKind::Closed`] when the parent is not `expected_parent`, [`ErrorKind::Io`].
pub fn bind_to_parent(expected_parent: u32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Error::io("PR_SET_PDEATHSIG", errno.into()))?;
    // Set too late it is never sent, so the parent is looked at afterwards.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    if parent == expected_parent {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Closed,
        format!("the host, process {expected_parent}, is gone; the parent is {parent}"),
    ))
}

/// Makes this process the first that the kernel takes when memory runs out, rather than its host: it can be replaced.
pub fn offer_to_oom_killer() {
    // Raising it needs no privilege; where it cannot be written, the kernel judges by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Names this thread, and in the main thread the process, in process lists: at most 15 bytes count.
pub fn set_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Closes every descriptor from 3 on but those in `keep`.
///
/// Only for the first lines of a worker's `main`, when no value in the process owns a descriptor yet but the caller.
///
/// # Errors
/// [`ErrorKind::Io`].
pub fn close_descriptors_except(keep: &[RawFd]) -> Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).collect();
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep {
        if kept > first {
            close_range(first, kept - 1)?;
        }
        first = first.max(kept + 1);
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: the call touches no memory; that nobody owns what it closes is the duty of `close_descriptors_except`.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if rc == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Before Linux 5.9, and in some sandboxes.
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            close_one_by_one(first, last)
        }
        error => Err(Error::io("close_range", error)),
    }
}

fn close_one_by_one(first: u32, last: u32) -> Result<()> {
    let open: Vec<u32> = std::fs::read_dir("/proc/self/fd")
        .map_err(|source| Error::io("read /proc/self/fd", source))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| (first..=last).contains(fd))
        .collect();
    for fd in open {
        // SAFETY: as in `close_range`; the list's own descriptor is closed already, which EBADF says harmlessly.
        unsafe { libc::close(fd as RawFd) };
    }
    Ok(())
}

/// Returns how many threads this process has.
///
/// # Errors
/// [`ErrorKind::Io`], mostly because `/proc` is not mounted.
pub fn thread_count() -> Result<usize> {
    let tasks =
        std::fs::read_dir("/proc/self/task").map_err(|source| Error::io("read /proc/self/task", source))?;
    Ok(tasks.count())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::Duration;

    use super::*;
    use crate::sys::fdpass;
    use crate::sys::process::{Executable, Exit, spawn};

    const LONG: Duration = Duration::from_secs(60);

    /// Closes the descriptors of the whole process: see the test below.
    #[test]
    #[ignore = "started by all_but_the_kept_descriptors_close"]
    fn close_descriptors() {
        let fds: Vec<RawFd> =
            (0..6).map(|_| crate::sys::doorbell::Doorbell::new().unwrap()).map(leak).collect();
        close_descriptors_except(&[fds[4], fds[1], fds[4], 0, -1]).unwrap();
        let open = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
        let left: Vec<bool> = fds.iter().map(|&fd| open(fd)).collect();
        assert_eq!(left, [false, true, false, false, true, false]);
        assert!(open(0) && open(1) && open(2));
        close_one_by_one(3, u32::MAX).unwrap();
        assert!(!open(fds[1]) && !open(fds[4]) && open(2));
    }

    fn leak(bell: crate::sys::doorbell::Doorbell) -> RawFd {
        let fd = bell.as_fd().as_raw_fd();
        std::mem::forget(bell);
        fd
    }

    #[test]
    fn all_but_the_kept_descriptors_close() {
        let (_here, there) = fdpass::pair().unwrap();
        let args = ["--ignored", "--exact", "sys::own::tests::close_descriptors"].map(OsString::from);
        let mut child = spawn(&Executable::current().unwrap(), &args, &[], there.as_fd(), None).unwrap();
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Code(0)));
    }
}
