//! Normalisation of channels.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

use super::{Domain, Sample, SampleRng, Shape, Transform};

/// Scales pixels to `[0, 1]`, subtracts a mean and divides by a standard deviation, channel by channel.
///
/// torchvision's `ToDtype(scale=True)` followed by `Normalize`, as `v * a + b` with `a = 1 / (255 * std)` and
/// `b = -mean / std` (each computed in `f64` and rounded once to `f32`), in two roundings. The difference to torchvision's
/// three `f32` operations is at most 5e-7 for the ImageNet constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    mean: [f64; 3],
    std: [f64; 3],
}

impl Normalize {
    /// The usual constants for models trained on ImageNet.
    pub const IMAGENET: Normalize = Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

    /// Creates the step from each channel's mean and standard deviation, for values in `[0, 1]`.
    pub const fn new(mean: [f64; 3], std: [f64; 3]) -> Self {
        Normalize { mean, std }
    }

    fn affine(&self) -> Result<Affine> {
        let usable = |x: &f64| x.is_finite() && x.abs() < 1e6;
        let fine = self.mean.iter().all(usable) && self.std.iter().all(|x| usable(x) && *x > 1e-6);
        if !fine {
            let text = format!("Normalize: mean {:?}, std {:?} cannot be used", self.mean, self.std);
            return Err(Error::new(ErrorKind::Config, text).with_remedy(
                "means must be finite and standard deviations above 1e-6, for pixels in [0, 1]",
            ));
        }
        Ok(Affine {
            scale: self.std.map(|std| (1.0 / (255.0 * std)) as f32),
            offset: [0, 1, 2].map(|c| (-self.mean[c] / self.std[c]) as f32),
        })
    }
}

#[typetag::serde]
impl Transform for Normalize {
    fn apply(&self, sample: &mut Sample, _rng: &mut SampleRng) -> Result<()> {
        sample.set_affine(self.affine()?)
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        self.affine().map(|_| input)
    }

    fn domain(&self) -> Domain {
        Domain::Normalizes
    }
}

/// `v * scale + offset` for each channel, `v` being a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    scale: [f32; 3],
    offset: [f32; 3],
}

impl Affine {
    /// Returns the value for a byte of a channel. Rust never fuses the two operations.
    pub(super) fn at(&self, channel: usize, byte: u8) -> f32 {
        f32::from(byte) * self.scale[channel] + self.offset[channel]
    }
}
