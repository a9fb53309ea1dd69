//! What is told of a sample that could not be made.

use std::fmt;

use crate::error::ErrorKind;

/// A sample that could not be read or decoded, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleError {
    /// The epoch.
    pub epoch: u64,
    /// The sample's position in the epoch's global order.
    pub position: u64,
    /// Its index in the data set.
    pub index: u64,
    /// What the data set calls it: a path, most often.
    pub key: String,
    /// What kind of thing failed.
    pub kind: ErrorKind,
    /// What went wrong, in one sentence.
    pub message: String,
    /// The index of the sample that was made in its place, under [`OnError::Substitute`](crate::OnError::Substitute).
    pub substitute: Option<u64>,
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleError { epoch, position, index, key, kind, message, substitute } = self;
        write!(f, "{kind}: {message} ({key}, sample {index}, position {position}, epoch {epoch})")?;
        match substitute {
            Some(other) => write!(f, "; sample {other} in its place"),
            None => Ok(()),
        }
    }
}
