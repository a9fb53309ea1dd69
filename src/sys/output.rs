//! What a worker prints before it serves its host: kept in memory, so that a failed start can be told with its words.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// How much of the end of it is told.
const TAIL: u64 = 600;

/// A file in memory that a starting worker prints to.
#[derive(Debug)]
pub struct Output(File);

impl Output {
    /// Creates one; `None` where there are no such files, and the worker then prints to the host's standard error.
    pub fn new() -> Option<Output> {
        Some(Output(memfd_create("forebay-output", MemfdFlags::CLOEXEC).ok()?.into()))
    }

    /// Returns the last lines of what was printed.
    pub fn tail(&self) -> Option<String> {
        let length = self.0.metadata().ok()?.len();
        let told = length.min(TAIL);
        let mut bytes = vec![0; told as usize];
        self.0.read_exact_at(&mut bytes, length - told).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends what this process prints to `target` from now on; with `forward`, also what it printed to its [`Output`] so far.
pub fn redirect(target: OwnedFd, forward: bool) {
    let former = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    // A descriptor that cannot be replaced stays; what is printed there is lost, and nothing else.
    let _ = rustix::stdio::dup2_stdout(&target);
    let _ = rustix::stdio::dup2_stderr(&target);
    if let (true, Ok(former)) = (forward, former) {
        let mut text = Vec::new();
        let length = former.metadata().map_or(0, |file| file.len()).min(1 << 20);
        text.resize(length as usize, 0);
        if former.read_exact_at(&mut text, 0).is_ok() {
            let _ = File::from(target).write_all(&text);
        }
    }
}

/// Puts `/dev/null` in the place of standard input.
pub fn detach_stdin() {
    if let Ok(null) = File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

/// Returns this process's standard error for others, or `/dev/null` when it has none.
pub fn standard_error() -> io::Result<OwnedFd> {
    io::stderr()
        .as_fd()
        .try_clone_to_owned()
        .or_else(|_| File::options().write(true).open("/dev/null").map(OwnedFd::from))
}
