//! Random erasing.

use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};

use super::flip::check_probability;
use super::resized_crop::positive_bounds;
use super::{Domain, Fill, Sample, SampleRng, Shape, Transform};

/// Erases a random rectangle with probability `p` (Zhong et al., "Random erasing data augmentation", 2017).
///
/// torchvision's: ten tries at an area of `scale` (default 0.02 to 0.33) times the picture's and a log-uniform `ratio`
/// (height / width, default 0.3 to 3.3); nothing is erased if none fits. `value` is a number, three numbers or `"random"`
/// (standard normal, element by element); it is an element of the output when the step follows `Normalize`, else a level from
/// 0 to 255.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    #[serde(default = "half")]
    p: f64,
    #[serde(default = "default_scale")]
    scale: [f64; 2],
    #[serde(default = "default_ratio")]
    ratio: [f64; 2],
    #[serde(default)]
    value: Value,
}

const fn half() -> f64 {
    0.5
}

const fn default_scale() -> [f64; 2] {
    [0.02, 0.33]
}

const fn default_ratio() -> [f64; 2] {
    [0.3, 3.3]
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "value must be a number, three numbers or \"random\"")]
enum Value {
    One(f32),
    Rgb([f32; 3]),
    Named(Named),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Random,
}

impl Default for Value {
    fn default() -> Self {
        Value::One(0.0)
    }
}

impl Default for RandomErasing {
    fn default() -> Self {
        RandomErasing { p: half(), scale: default_scale(), ratio: default_ratio(), value: Value::default() }
    }
}

impl RandomErasing {
    /// Creates the step from its probability; it erases with 0.
    pub fn new(p: f64) -> Self {
        RandomErasing { p, ..Self::default() }
    }

    /// Sets the bounds of the rectangle's area as shares of the picture's.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = [low, high];
        self
    }

    /// Sets the bounds of the rectangle's height / width.
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        self.ratio = [low, high];
        self
    }

    /// Erases with one value for each channel.
    #[must_use]
    pub fn value(mut self, rgb: [f32; 3]) -> Self {
        self.value = Value::Rgb(rgb);
        self
    }

    /// Erases with standard normal noise; the step must then follow `Normalize`.
    #[must_use]
    pub fn random(mut self) -> Self {
        self.value = Value::Named(Named::Random);
        self
    }

    fn draw(&self, full: Size, rng: &mut SampleRng) -> Option<Rect> {
        let area = full.pixels() as f64;
        let [log_low, log_high] = self.ratio.map(libm::log);
        for _ in 0..10 {
            let target = area * rng.uniform_in(self.scale[0], self.scale[1]);
            let aspect = libm::exp(rng.uniform_in(log_low, log_high));
            let height = libm::rint(libm::sqrt(target * aspect));
            let width = libm::rint(libm::sqrt(target / aspect));
            if height < f64::from(full.height) && width < f64::from(full.width) {
                let (width, height) = (width as u32, height as u32);
                let top = rng.range(0, u64::from(full.height - height) + 1) as u32;
                let left = rng.range(0, u64::from(full.width - width) + 1) as u32;
                return Some(Rect { left, top, width, height });
            }
        }
        None
    }
}

#[typetag::serde]
impl Transform for RandomErasing {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        if !rng.chance(self.p) {
            return Ok(());
        }
        let Some(rect) = self.draw(sample.size(), rng) else { return Ok(()) };
        let fill = match self.value {
            Value::One(value) => Fill::Constant([value; 3]),
            Value::Rgb(rgb) => Fill::Constant(rgb),
            Value::Named(Named::Random) => Fill::Normal(rng.clone()),
        };
        sample.erase(rect, fill)
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        check_probability("RandomErasing", self.p)?;
        positive_bounds("RandomErasing: scale", self.scale)?;
        positive_bounds("RandomErasing: ratio", self.ratio)?;
        let finite = match self.value {
            Value::One(value) => value.is_finite(),
            Value::Rgb(rgb) => rgb.iter().all(|value| value.is_finite()),
            Value::Named(Named::Random) => true,
        };
        if !finite {
            return Err(Error::new(ErrorKind::Config, format!("RandomErasing: value {:?}", self.value))
                .with_remedy("give finite numbers or \"random\""));
        }
        Ok(input)
    }

    fn domain(&self) -> Domain {
        match self.value {
            Value::Named(Named::Random) => Domain::Normalized,
            _ => Domain::Either,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SampleKey;
    use super::*;

    #[test]
    fn rectangles_keep_to_area_and_ratio() {
        let (step, full) = (RandomErasing::default(), Size::new(200, 300));
        let mut areas = 0.0;
        for position in 0..5000 {
            let mut rng = SampleRng::root(SampleKey::new(5, 0, position));
            let rect = step.draw(full, &mut rng).unwrap();
            assert!(Rect::whole(full).contains(rect));
            let area = rect.size().pixels() as f64 / full.pixels() as f64;
            let ratio = f64::from(rect.height) / f64::from(rect.width);
            assert!((0.019..0.335).contains(&area) && (0.29..3.4).contains(&ratio), "{rect:?}");
            areas += area / 5000.0;
        }
        assert!((0.16..0.185).contains(&areas), "{areas}");
    }

    #[test]
    fn nothing_is_erased_where_nothing_fits() {
        let step = RandomErasing::new(1.0).scale(1.0, 1.0).ratio(1.0, 1.0);
        let mut rng = SampleRng::root(SampleKey::new(5, 0, 0));
        assert_eq!(step.draw(Size::new(10, 10), &mut rng), None);
    }
}
