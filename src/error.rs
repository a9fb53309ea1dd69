//! The one error type: what went wrong, about what, and the line that mends it.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

/// A [`Result`](std::result::Result) with forebay's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing failed. The number crosses process borders, so it never changes meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorKind {
    /// A setting is wrong or two settings disagree.
    Config = 1,
    /// The data set could not be opened or a sample could not be read.
    Dataset = 2,
    /// The bytes of a sample are not a picture that can be decoded.
    Decode = 3,
    /// A declared size or a resource is above its limit.
    Limit = 4,
    /// A step of the pipeline failed.
    Transform = 5,
    /// Samples do not fit together into a batch.
    Collate = 6,
    /// A worker ended before its work was done.
    WorkerDied = 7,
    /// A wait reached its limit.
    Timeout = 8,
    /// Shared memory could not be had.
    SharedMemory = 9,
    /// Pages could not be locked or registered with a device.
    Pinning = 10,
    /// The operating system refused something else.
    Io = 11,
    /// The loader is shut down.
    Closed = 12,
}

impl ErrorKind {
    /// Returns the kind with that number, as it crossed a process border.
    pub fn from_wire(number: u16) -> Option<Self> {
        use ErrorKind::*;
        [
            Config,
            Dataset,
            Decode,
            Limit,
            Transform,
            Collate,
            WorkerDied,
            Timeout,
            SharedMemory,
            Pinning,
            Io,
            Closed,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == number)
    }

    /// Returns the name that messages and reports use, such as `shared-memory`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::Dataset => "dataset",
            ErrorKind::Decode => "decode",
            ErrorKind::Limit => "limit",
            ErrorKind::Transform => "transform",
            ErrorKind::Collate => "collate",
            ErrorKind::WorkerDied => "worker-died",
            ErrorKind::Timeout => "timeout",
            ErrorKind::SharedMemory => "shared-memory",
            ErrorKind::Pinning => "pinning",
            ErrorKind::Io => "io",
            ErrorKind::Closed => "closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What failed, about which sample or file, and what mends it.
///
/// `Debug` prints the same text as `Display`, since `fn main() -> forebay::Result<()>` prints `Debug`.
///
/// # Examples
/// ```
/// use forebay::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Config, "batch_size is 0").with_remedy("set batch_size to 1 or more");
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.to_string(), "config: batch_size is 0\n  fix: set batch_size to 1 or more");
/// ```
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    remedy: Option<String>,
    path: Option<PathBuf>,
    index: Option<u64>,
    position: Option<u64>,
    worker: Option<u32>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error from its kind and one sentence without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                remedy: None,
                path: None,
                index: None,
                position: None,
                worker: None,
                source: None,
            }),
        }
    }

    /// Creates an error of kind [`ErrorKind::Io`] from the failed call's name and the last OS error.
    pub fn last_os(call: &str) -> Self {
        Error::io(call, std::io::Error::last_os_error())
    }

    /// Creates an error of kind [`ErrorKind::Io`] from what was tried and how it failed.
    pub fn io(what: impl fmt::Display, source: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, format!("{what}: {source}")).with_source(source)
    }

    /// Adds the line that mends it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.inner.remedy = Some(remedy.into());
        self
    }

    /// Adds the file or directory it is about.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.inner.path = Some(path.as_ref().to_path_buf());
        self
    }

    /// Adds the index of the sample in the data set.
    #[must_use]
    pub fn with_index(mut self, index: u64) -> Self {
        self.inner.index = Some(index);
        self
    }

    /// Adds the sample's position in the epoch's global order.
    #[must_use]
    pub fn with_position(mut self, position: u64) -> Self {
        self.inner.position = Some(position);
        self
    }

    /// Adds the worker it happened in.
    #[must_use]
    pub fn with_worker(mut self, worker: u32) -> Self {
        self.inner.worker = Some(worker);
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Replaces the kind; the text stays.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.inner.kind = kind;
        self
    }

    /// Returns what kind of thing failed.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns the sentence alone, without kind, place and remedy.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns the line that mends it, where there is one.
    pub fn remedy(&self) -> Option<&str> {
        self.inner.remedy.as_deref()
    }

    /// Returns the file or directory it is about.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// Returns the index of the sample in the data set.
    pub fn index(&self) -> Option<u64> {
        self.inner.index
    }

    /// Returns the sample's position in the epoch's global order.
    pub fn position(&self) -> Option<u64> {
        self.inner.position
    }

    /// Returns the worker it happened in.
    pub fn worker(&self) -> Option<u32> {
        self.inner.worker
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        write!(f, "{}: {}", inner.kind, inner.message)?;
        let mut open = false;
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let lead = if open { ", " } else { " (" };
            open = true;
            write!(f, "{lead}{text}")
        };
        if let Some(path) = &inner.path {
            part(f, format_args!("{}", path.display()))?;
        }
        if let Some(index) = inner.index {
            part(f, format_args!("sample {index}"))?;
        }
        if let Some(position) = inner.position {
            part(f, format_args!("position {position}"))?;
        }
        if let Some(worker) = inner.worker {
            part(f, format_args!("worker {worker}"))?;
        }
        if open {
            f.write_str(")")?;
        }
        match &inner.remedy {
            Some(remedy) => write!(f, "\n  fix: {remedy}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, source.to_string()).with_source(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        for number in 1..=12 {
            let kind = ErrorKind::from_wire(number).unwrap();
            assert_eq!(kind as u16, number);
        }
        assert!(ErrorKind::from_wire(0).is_none());
        assert!(ErrorKind::from_wire(13).is_none());
    }

    #[test]
    fn places_are_listed_in_one_bracket() {
        let error =
            Error::new(ErrorKind::Decode, "no end").with_path("a/b.jpg").with_index(4).with_position(9);
        assert_eq!(error.to_string(), "decode: no end (a/b.jpg, sample 4, position 9)");
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
