//! Samples that cannot be made: what becomes of their batch, and how many of them are put up with.

use std::fmt;
use std::str::FromStr;

use super::{Action, BatchId, SampleEnd, SampleFailure, Supervisor};
use crate::error::{Error, ErrorKind, Result};

/// How many other samples are tried in the place of one, before its batch fails after all.
const SUBSTITUTES: u32 = 10;

/// What happens to a batch with a sample that cannot be read or decoded. None of these changes which positions a batch
/// covers, nor the bytes of the other samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// An error comes in the batch's place; the next call goes on behind it.
    #[default]
    Fail,
    /// The slot stays empty: zeros, label 0, and its `valid()` is false.
    Skip,
    /// Another sample takes the slot, drawn from (seed, epoch, position, attempt), and its `substituted()` is true. After
    /// ten that fail as well, the batch fails.
    Substitute,
}

impl OnError {
    /// Every choice, in the order of help texts.
    pub const ALL: [OnError; 3] = [OnError::Fail, OnError::Skip, OnError::Substitute];

    /// Returns the name that [`FromStr`] reads, such as `substitute`.
    pub const fn name(self) -> &'static str {
        match self {
            OnError::Fail => "fail",
            OnError::Skip => "skip",
            OnError::Substitute => "substitute",
        }
    }
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        OnError::ALL.into_iter().find(|choice| choice.name() == text).ok_or_else(|| {
            let names = OnError::ALL.map(OnError::name).join(", ");
            Error::new(ErrorKind::Config, format!("on_error {text:?} is unknown"))
                .with_remedy(format!("use one of {names}"))
        })
    }
}

/// How many samples of one epoch may fail (under [`OnError::Skip`] and [`OnError::Substitute`]) before the loader gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum MaxErrors {
    /// Any number.
    #[default]
    Unlimited,
    /// That many.
    Count(u64),
    /// That share of this rank's samples in the epoch, from 0 to 1: 0.01 is one in a hundred.
    Share(f64),
}

impl MaxErrors {
    /// Returns the number of failures that are allowed among so many samples.
    fn allowed(self, samples: u64) -> u64 {
        match self {
            MaxErrors::Unlimited => u64::MAX,
            MaxErrors::Count(count) => count,
            // 0.29 of 100 is 28.999..., and 29 is meant.
            MaxErrors::Share(share) => (share * samples as f64 + 1e-6) as u64,
        }
    }

    /// Checks that a share is one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`].
    pub(in crate::loader) fn check(self) -> Result<()> {
        match self {
            MaxErrors::Share(share) if !(0.0..=1.0).contains(&share) => {
                Err(Error::new(ErrorKind::Config, format!("max_errors is a share of {share}"))
                    .with_remedy("set a share from 0 to 1 (0% to 100%), or a count"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for MaxErrors {
    /// Writes what [`FromStr`] reads: `unlimited`, `10` or `0.5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxErrors::Unlimited => f.write_str("unlimited"),
            MaxErrors::Count(count) => count.fmt(f),
            // Rounded, since 0.07 times 100 is 7.000000000000001.
            MaxErrors::Share(share) => write!(f, "{}%", (share * 1e12).round() / 1e10),
        }
    }
}

impl FromStr for MaxErrors {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = match text.strip_suffix('%') {
            _ if text == "unlimited" => Some(MaxErrors::Unlimited),
            Some(percent) => percent.parse().ok().map(|percent: f64| MaxErrors::Share(percent / 100.0)),
            None => text.parse().ok().map(MaxErrors::Count),
        };
        read.filter(|read| read.check().is_ok()).ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("max_errors {text:?} is neither a count nor a share"))
                .with_remedy("use a number such as 10, a share from 0% to 100%, or unlimited")
        })
    }
}

/// The failures of the two newest epochs: the end of one and the beginning of the next are made together.
#[derive(Debug, Default)]
pub(super) struct ErrorBudget {
    newest: [EpochFailures; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct EpochFailures {
    run: u64,
    epoch: u64,
    count: u64,
}

impl ErrorBudget {
    /// Counts one failure; returns how many the epoch has had.
    fn count(&mut self, batch: BatchId) -> u64 {
        let is_it = |failures: &EpochFailures| (failures.run, failures.epoch) == (batch.run, batch.epoch);
        let place = self.newest.iter().position(is_it).unwrap_or_else(|| {
            self.newest = [EpochFailures { run: batch.run, epoch: batch.epoch, count: 0 }, self.newest[0]];
            0
        });
        self.newest[place].count += 1;
        self.newest[place].count
    }
}

impl Supervisor {
    /// A sample of a slab that is being filled cannot be made.
    pub(super) fn sample_failed(&mut self, slab: u32, failure: SampleFailure) {
        let state = &mut self.slabs[slab as usize];
        let attempt = state.attempt(failure.slot);
        let end = match self.settings.on_error {
            OnError::Skip => SampleEnd::Empty,
            OnError::Substitute if attempt < SUBSTITUTES => SampleEnd::Substitute(attempt + 1),
            OnError::Fail | OnError::Substitute => SampleEnd::Batch,
        };
        match end {
            SampleEnd::Empty => {}
            SampleEnd::Substitute(attempt) => state.try_again(failure.slot, attempt),
            SampleEnd::Batch => {
                if state.fail(failure.clone()) {
                    self.actions.push(Action::CancelSlab { slab, generation: state.generation });
                }
            }
        }
        let batch = state.batch;
        let failures = self.errors.count(batch);
        self.actions.push(Action::Failed { slab, failure, end });
        let samples = self.making.as_ref().map_or(0, |making| (making.course.plan)(batch.epoch).samples());
        let allowed = self.settings.max_errors.allowed(samples);
        if end != SampleEnd::Batch && failures > allowed {
            let text =
                format!("{failures} of {samples} samples of epoch {} failed, {allowed} may", batch.epoch);
            self.fail(
                Error::new(ErrorKind::Limit, text)
                    .with_remedy("mend or remove the files in the error report, or raise max_errors"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_samples_of_the_epoch() {
        assert_eq!(MaxErrors::Share(0.01).allowed(1000), 10);
        assert_eq!(MaxErrors::Share(0.0).allowed(1000), 0);
        assert_eq!(MaxErrors::Share(0.29).allowed(100), 29);
        assert_eq!(MaxErrors::Count(3).allowed(1), 3);
        assert_eq!(MaxErrors::default().allowed(1), u64::MAX);
    }

    #[test]
    fn choices_are_read_back_from_their_names() {
        for choice in OnError::ALL {
            assert_eq!(choice.to_string().parse::<OnError>().unwrap(), choice);
        }
        assert!("ignore".parse::<OnError>().unwrap_err().remedy().unwrap().contains("substitute"));
        for text in ["unlimited", "0", "10", "0%", "7%", "0.5%", "100%"] {
            assert_eq!(text.parse::<MaxErrors>().unwrap().to_string(), text);
        }
        assert_eq!("29%".parse::<MaxErrors>().unwrap(), MaxErrors::Share(0.29));
        for text in ["", "%", "-1", "1.5", "101%", "-1%", "NaN%", "many"] {
            assert!(text.parse::<MaxErrors>().is_err(), "{text}");
        }
    }
}
