//! The step that cuts out a random part and resizes it.

use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Request, Size};
use crate::error::{Error, ErrorKind, Result};

use super::{Sample, SampleRng, Shape, Side, Transform};

/// Cuts out a random part of random aspect ratio and resizes it (bilinear, antialiased).
///
/// torchvision's: ten tries at an area of `scale` times the picture's and a log-uniform `ratio` (width / height); if none
/// fits, the largest centred part whose ratio is within bounds. The random numbers differ from torchvision's; a resized
/// part is within 1 level of Pillow's resize.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    size: Side,
    #[serde(default = "default_scale")]
    scale: [f64; 2],
    #[serde(default = "default_ratio")]
    ratio: [f64; 2],
}

const fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

const fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    /// Creates the step from the output's side, or `[height, width]`; scale 0.08 to 1, ratio 3/4 to 4/3.
    pub fn new(size: impl Into<Side>) -> Self {
        RandomResizedCrop { size: size.into(), scale: default_scale(), ratio: default_ratio() }
    }

    /// Sets the bounds of the part's area as shares of the picture's.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = [low, high];
        self
    }

    /// Sets the bounds of the part's width / height, before resizing.
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        self.ratio = [low, high];
        self
    }

    fn draw(&self, full: Size, rng: &mut SampleRng) -> Rect {
        let area = full.pixels() as f64;
        let [log_low, log_high] = self.ratio.map(libm::log);
        for _ in 0..10 {
            let target = area * rng.uniform_in(self.scale[0], self.scale[1]);
            let aspect = libm::exp(rng.uniform_in(log_low, log_high));
            let width = libm::rint(libm::sqrt(target * aspect));
            let height = libm::rint(libm::sqrt(target / aspect));
            let fits = |side: f64, limit: u32| side >= 1.0 && side <= f64::from(limit);
            if fits(width, full.width) && fits(height, full.height) {
                let (width, height) = (width as u32, height as u32);
                let top = rng.range(0, u64::from(full.height - height) + 1) as u32;
                let left = rng.range(0, u64::from(full.width - width) + 1) as u32;
                return Rect { left, top, width, height };
            }
        }
        self.centred(full)
    }

    fn centred(&self, full: Size) -> Rect {
        let (w, h) = (f64::from(full.width), f64::from(full.height));
        let side = |length: f64, limit: u32| (libm::rint(length) as u32).clamp(1, limit);
        let (width, height) = match w / h {
            ratio if ratio < self.ratio[0] => (full.width, side(w / self.ratio[0], full.height)),
            ratio if ratio > self.ratio[1] => (side(h * self.ratio[1], full.width), full.height),
            _ => (full.width, full.height),
        };
        Rect { left: (full.width - width) / 2, top: (full.height - height) / 2, width, height }
    }
}

#[typetag::serde]
impl Transform for RandomResizedCrop {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        let rect = self.draw(sample.size(), rng);
        sample.crop_resize(rect, self.size.square())
    }

    fn shape(&self, _input: Shape) -> Result<Shape> {
        self.size.check()?;
        positive_bounds("RandomResizedCrop: scale", self.scale)?;
        positive_bounds("RandomResizedCrop: ratio", self.ratio)?;
        Ok(Shape::Fixed(self.size.square()))
    }

    fn request(&self, full: Size, rng: &mut SampleRng) -> Option<Request> {
        Some(Request { region: self.draw(full, rng), target: self.size.square() })
    }
}

/// Checks a pair of bounds that must be positive, finite and in order.
pub(super) fn positive_bounds(what: &str, [low, high]: [f64; 2]) -> Result<()> {
    if low > 0.0 && low <= high && high <= 1e6 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, format!("{what} [{low}, {high}] is out of range"))
        .with_remedy("give two numbers [low, high] with 0 < low <= high"))
}

#[cfg(test)]
mod tests {
    use super::super::SampleKey;
    use super::*;

    fn rng(position: u64) -> SampleRng {
        SampleRng::root(SampleKey::new(5, 0, position)).child("Crop", 0)
    }

    #[test]
    fn resized_crops_keep_to_area_and_ratio_and_spread_over_both() {
        let (step, full) = (RandomResizedCrop::new(224), Size::new(600, 400));
        let n = 20_000;
        let (mut areas, mut logs, mut centres) = (0.0, 0.0, 0.0);
        for position in 0..n {
            let rect = step.draw(full, &mut rng(position));
            assert!(Rect::whole(full).contains(rect));
            let area = rect.size().pixels() as f64 / full.pixels() as f64;
            let ratio = f64::from(rect.width) / f64::from(rect.height);
            // Whole pixels move both a little past their bounds.
            assert!((0.079..=1.0).contains(&area) && (0.74..1.35).contains(&ratio), "{rect:?}");
            areas += area;
            logs += libm::log(ratio);
            centres += (f64::from(rect.left) + f64::from(rect.width) / 2.0) / 600.0;
        }
        let mean = |sum: f64| sum / n as f64;
        // Means over u in [0.08, min(1, a / 1.5)] and log a in [log 3/4, log 4/3], both uniform, given that the part fits.
        assert!((mean(areas) - 0.3885).abs() < 0.007, "{}", mean(areas));
        assert!((mean(logs) - 0.0311).abs() < 0.006, "{}", mean(logs));
        assert!((mean(centres) - 0.5).abs() < 0.01, "{}", mean(centres));
    }

    #[test]
    fn shapes_that_never_fit_fall_back_to_the_middle() {
        let step = RandomResizedCrop::new(8).scale(1.0, 1.0);
        let draw = |w, h| step.draw(Size::new(w, h), &mut rng(0));
        assert_eq!(draw(1000, 9), Rect { left: 494, top: 0, width: 12, height: 9 });
        assert_eq!(draw(9, 1000), Rect { left: 0, top: 494, width: 9, height: 12 });
        assert_eq!(draw(1, 1), Rect { left: 0, top: 0, width: 1, height: 1 });
        assert_eq!(draw(1000, 1), Rect { left: 499, top: 0, width: 1, height: 1 });
    }

    #[test]
    fn what_is_requested_is_what_is_cut() {
        let (step, full) = (RandomResizedCrop::new(8), Size::new(50, 40));
        for position in 0..50 {
            let request = step.request(full, &mut rng(position)).unwrap();
            assert_eq!(
                request,
                Request { region: step.draw(full, &mut rng(position)), target: Size::new(8, 8) }
            );
        }
    }
}
