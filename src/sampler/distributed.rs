//! Which of several training processes this one is, and what happens to positions that do not divide evenly.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// What happens to the end of an epoch that the ranks cannot share evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankTail {
    /// Every rank gets equally many samples: positions beyond the end stand for samples from its start again, and
    /// are marked invalid. At most `world_size - 1` of them.
    #[default]
    Pad,
    /// Every rank gets equally many samples: at most `world_size - 1` positions are left out.
    Drop,
    /// Every position once over all ranks: ranks may differ by one sample, and so by one batch.
    Exact,
}

impl RankTail {
    /// Returns the name that settings use.
    pub const fn name(self) -> &'static str {
        match self {
            RankTail::Pad => "pad",
            RankTail::Drop => "drop",
            RankTail::Exact => "exact",
        }
    }
}

impl fmt::Display for RankTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for RankTail {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [RankTail::Pad, RankTail::Drop, RankTail::Exact]
            .into_iter()
            .find(|tail| tail.name() == text)
            .ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("rank tail is {text:?}"))
                    .with_remedy("use pad, drop or exact")
            })
    }
}

/// This process's place among those that train together.
///
/// # Examples
/// ```
/// use forebay::sampler::{RankTail, Ranks};
///
/// let ranks = Ranks { rank: 1, world_size: 4, tail: RankTail::Exact };
/// ranks.check()?;
/// assert_eq!(Ranks::default().world_size, 1);
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// This process, from 0.
    pub rank: u32,
    /// How many processes.
    pub world_size: u32,
    /// What happens to positions that do not divide evenly.
    pub tail: RankTail,
}

impl Ranks {
    /// Creates the place `rank` of `world_size` with the tail [`RankTail::Pad`].
    pub const fn new(rank: u32, world_size: u32) -> Self {
        Ranks { rank, world_size, tail: RankTail::Pad }
    }

    /// Sets what happens to positions that do not divide evenly.
    #[must_use]
    pub const fn with_tail(self, tail: RankTail) -> Self {
        Ranks { tail, ..self }
    }

    /// Checks that the rank exists.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `world_size` is 0 or `rank` is not below it.
    pub fn check(&self) -> Result<()> {
        if self.rank < self.world_size {
            return Ok(());
        }
        let Ranks { rank, world_size, .. } = self;
        Err(Error::new(ErrorKind::Config, format!("rank {rank} of a world of {world_size}"))
            .with_remedy("ranks count from 0 and are below world_size, which is at least 1"))
    }
}

impl Default for Ranks {
    /// Returns the one rank of a world of one.
    fn default() -> Self {
        Ranks::new(0, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_come_from_their_names_only() {
        for tail in [RankTail::Pad, RankTail::Drop, RankTail::Exact] {
            assert_eq!(tail.to_string().parse::<RankTail>().unwrap(), tail);
            assert_eq!(serde_json::to_string(&tail).unwrap(), format!("\"{tail}\""));
        }
        let error = "Pad".parse::<RankTail>().unwrap_err();
        assert_eq!(error.to_string(), "config: rank tail is \"Pad\"\n  fix: use pad, drop or exact");
    }

    #[test]
    fn a_rank_outside_its_world_is_refused() {
        assert!(Ranks::new(3, 4).check().is_ok());
        for ranks in [Ranks::new(4, 4), Ranks::new(0, 0)] {
            assert_eq!(ranks.check().unwrap_err().kind(), ErrorKind::Config);
        }
    }
}
