//! Steps made of steps.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

use super::flip::check_probability;
use super::{Domain, Sample, SampleRng, Shape, Transform};

/// Runs a list of steps with probability `p` (default 0.5), or none of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    #[serde(default = "half")]
    p: f64,
    transforms: Vec<Box<dyn Transform>>,
}

const fn half() -> f64 {
    0.5
}

impl RandomApply {
    /// Creates the step from its probability; it has no steps yet.
    pub fn new(p: f64) -> Self {
        RandomApply { p, transforms: Vec::new() }
    }

    /// Adds a step to the list.
    #[must_use]
    pub fn then(mut self, step: impl Transform + 'static) -> Self {
        self.transforms.push(Box::new(step));
        self
    }

    fn has(&self, domain: Domain) -> bool {
        self.transforms.iter().any(|step| step.domain() == domain)
    }
}

#[typetag::serde]
impl Transform for RandomApply {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        if !rng.chance(self.p) {
            return Ok(());
        }
        for (number, step) in self.transforms.iter().enumerate() {
            let mut rng = rng.child(step.typetag_name(), occurrence(&self.transforms, number));
            step.apply(sample, &mut rng)?;
        }
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        check_probability("RandomApply", self.p)?;
        let mut shape = input;
        for step in &self.transforms {
            if step.domain() == Domain::Normalizes {
                let text = "RandomApply: Normalize within it would scale some pictures and others not";
                return Err(
                    Error::new(ErrorKind::Config, text).with_remedy("move Normalize out of RandomApply")
                );
            }
            shape = step.shape(shape)?;
        }
        if self.has(Domain::Pixels) && self.has(Domain::Normalized) {
            let text = "RandomApply: some of its steps must stand before Normalize and some behind";
            return Err(Error::new(ErrorKind::Config, text).with_remedy("make two RandomApply of it"));
        }
        Ok(shape.or(input))
    }

    fn domain(&self) -> Domain {
        [Domain::Pixels, Domain::Normalized].into_iter().find(|&it| self.has(it)).unwrap_or(Domain::Either)
    }
}

/// Returns how many steps of the same type stand before step `number` in its list.
pub(super) fn occurrence(steps: &[Box<dyn Transform>], number: usize) -> usize {
    let tag = steps[number].typetag_name();
    steps[..number].iter().filter(|step| step.typetag_name() == tag).count()
}
