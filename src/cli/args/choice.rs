//! The values that `run`'s flags with few choices take.

use std::str::FromStr;

use clap::ValueEnum;

/// A pipeline by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// RandomResizedCrop, RandomHorizontalFlip, Normalize with ImageNet's numbers; shuffled
    Train,
    /// Resize to 8/7 of the size, CenterCrop, Normalize with ImageNet's numbers; in order
    Eval,
}

/// What one line of the digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestPer {
    /// A line an epoch
    Epoch,
    /// A line a batch
    Batch,
}

/// How many workers: as many as suit the machine, or a number. 0 loads in the calling thread's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    Auto,
    Count(usize),
}

impl Workers {
    /// Returns the number asked for, or nothing for `auto`.
    pub(crate) fn count(self) -> Option<usize> {
        match self {
            Workers::Auto => None,
            Workers::Count(count) => Some(count),
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Workers::Auto),
            number => {
                number.parse().map(Workers::Count).map_err(|_| "it may be `auto` or a number from 0".into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_number_or_auto() {
        assert_eq!("auto".parse::<Workers>().unwrap().count(), None);
        assert_eq!("0".parse::<Workers>().unwrap().count(), Some(0));
        assert!("-1".parse::<Workers>().is_err());
        assert!("many".parse::<Workers>().is_err());
    }
}
