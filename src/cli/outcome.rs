//! How a sub-command ends.

use std::fmt;
use std::io;

/// A sub-command ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything worked: exit code 0.
    Done,
    /// Some samples or files failed, each was reported: exit code 1.
    SomeFailed,
}

impl Outcome {
    /// Returns the outcome for that many failed samples.
    pub(crate) fn from_failed(failed: u64) -> Self {
        if failed == 0 { Outcome::Done } else { Outcome::SomeFailed }
    }
}

/// A sub-command could not go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library refused: exit code 2.
    Engine(forebay::Error),
    /// Standard output could not be written: exit code 2.
    Output(io::Error),
    /// The reader of standard output is gone: exit code 0.
    OutputClosed,
}

impl From<forebay::Error> for Failure {
    fn from(error: forebay::Error) -> Self {
        Failure::Engine(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => error.fmt(f),
            Failure::Output(error) => write!(f, "io: standard output: {error}"),
            Failure::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_samples_give_exit_code_one() {
        assert_eq!(Outcome::from_failed(0), Outcome::Done);
        assert_eq!(Outcome::from_failed(3), Outcome::SomeFailed);
    }
}
