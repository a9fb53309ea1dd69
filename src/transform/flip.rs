//! Random mirroring. Costs nothing of its own: the last pass reads the rows backwards.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

use super::{Domain, Sample, SampleRng, Shape, Transform};

/// Mirrors left and right with probability `p` (default 0.5).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    #[serde(default = "half")]
    p: f64,
}

/// Mirrors top and bottom with probability `p` (default 0.5).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomVerticalFlip {
    #[serde(default = "half")]
    p: f64,
}

const fn half() -> f64 {
    0.5
}

impl RandomHorizontalFlip {
    /// Creates the step from its probability.
    pub fn new(p: f64) -> Self {
        RandomHorizontalFlip { p }
    }
}

impl RandomVerticalFlip {
    /// Creates the step from its probability.
    pub fn new(p: f64) -> Self {
        RandomVerticalFlip { p }
    }
}

impl Default for RandomHorizontalFlip {
    fn default() -> Self {
        Self::new(half())
    }
}

impl Default for RandomVerticalFlip {
    fn default() -> Self {
        Self::new(half())
    }
}

/// Checks a step's probability.
pub(super) fn check_probability(step: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, format!("{step}: p = {p} is no probability"))
        .with_remedy("give a number from 0 to 1"))
}

#[typetag::serde]
impl Transform for RandomHorizontalFlip {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        if rng.chance(self.p) {
            sample.flip_horizontal();
        }
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        check_probability("RandomHorizontalFlip", self.p).map(|()| input)
    }

    fn domain(&self) -> Domain {
        Domain::Either
    }
}

#[typetag::serde]
impl Transform for RandomVerticalFlip {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        if rng.chance(self.p) {
            sample.flip_vertical();
        }
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        check_probability("RandomVerticalFlip", self.p).map(|()| input)
    }

    fn domain(&self) -> Domain {
        Domain::Either
    }
}
