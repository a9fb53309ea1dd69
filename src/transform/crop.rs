//! Steps that cut a part out of the picture.

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

/// Cuts out the middle. Where the picture is smaller, it is padded with black, as torchvision does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    size: Side,
}

impl CenterCrop {
    /// Creates the step from the output's side, or `[height, width]`.
    pub fn new(size: impl Into<Side>) -> Self {
        CenterCrop { size: size.into() }
    }

    /// Returns the corner, negative where the picture must be padded.
    fn corner(&self, full: Size) -> (i64, i64) {
        let middle = |side: u32, wanted: u32| match side.checked_sub(wanted) {
            // Python's round(): halves go to the even number.
            Some(rest) => libm::rint(f64::from(rest) / 2.0) as i64,
            None => -i64::from((wanted - side) / 2),
        };
        let wanted = self.size.square();
        (middle(full.width, wanted.width), middle(full.height, wanted.height))
    }
}

#[typetag::serde]
impl Transform for CenterCrop {
    fn apply(&self, sample: &mut Sample, _rng: &mut SampleRng) -> Result<()> {
        let (left, top) = self.corner(sample.size());
        sample.crop(left, top, self.size.square(), [0; 3])
    }

    fn shape(&self, _input: Shape) -> Result<Shape> {
        self.size.check()?;
        Ok(Shape::Fixed(self.size.square()))
    }

    fn request(&self, full: Size, _rng: &mut SampleRng) -> Option<Request> {
        let (left, top) = self.corner(full);
        unscaled(left, top, self.size.square(), full)
    }
}

/// Returns the request for a cut without resizing, if it lies within the picture.
fn unscaled(left: i64, top: i64, size: Size, full: Size) -> Option<Request> {
    let (left, top) = (u32::try_from(left).ok()?, u32::try_from(top).ok()?);
    let region = Rect { left, top, width: size.width, height: size.height };
    Rect::whole(full).contains(region).then_some(Request { region, target: size })
}

/// Cuts out a part of fixed size at a random place, after padding the picture (torchvision's, constant padding).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    size: Side,
    #[serde(default)]
    padding: Padding,
    #[serde(default)]
    pad_if_needed: bool,
    #[serde(default)]
    fill: Levels,
}

/// Pixels added around the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "padding must be a number, [left and right, top and bottom] or [left, top, right, bottom]"
)]
enum Padding {
    All(u32),
    Axes([u32; 2]),
    Sides([u32; 4]),
}

impl Default for Padding {
    fn default() -> Self {
        Padding::All(0)
    }
}

/// A colour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "fill must be a level from 0 to 255, or three")]
enum Levels {
    Gray(u8),
    Rgb([u8; 3]),
}

impl Default for Levels {
    fn default() -> Self {
        Levels::Gray(0)
    }
}

impl RandomCrop {
    /// Creates the step from the output's side, or `[height, width]`; no padding.
    pub fn new(size: impl Into<Side>) -> Self {
        RandomCrop {
            size: size.into(),
            padding: Padding::default(),
            pad_if_needed: false,
            fill: Levels::default(),
        }
    }

    /// Sets how many pixels are added on every side.
    #[must_use]
    pub fn padding(mut self, pixels: u32) -> Self {
        self.padding = Padding::All(pixels);
        self
    }

    /// Sets how many pixels are added left, top, right and bottom.
    #[must_use]
    pub fn padding_sides(mut self, left: u32, top: u32, right: u32, bottom: u32) -> Self {
        self.padding = Padding::Sides([left, top, right, bottom]);
        self
    }

    /// Sets whether pictures that are still too small are padded further: by what is missing, on both sides.
    #[must_use]
    pub fn pad_if_needed(mut self, yes: bool) -> Self {
        self.pad_if_needed = yes;
        self
    }

    /// Sets the colour of added pixels.
    #[must_use]
    pub fn fill(mut self, rgb: [u8; 3]) -> Self {
        self.fill = Levels::Rgb(rgb);
        self
    }

    /// Returns the corner of the cut in the coordinates of the picture without padding.
    fn draw(&self, full: Size, rng: &mut SampleRng) -> Result<(i64, i64)> {
        let [left, top, right, bottom] = match self.padding {
            Padding::All(all) => [all; 4],
            Padding::Axes([x, y]) => [x, y, x, y],
            Padding::Sides(sides) => sides,
        };
        let wanted = self.size.square();
        let mut axis = |side: u32, before: u32, after: u32, wanted: u32| {
            let (mut before, wanted) = (i64::from(before), i64::from(wanted));
            let mut padded = i64::from(side) + before + i64::from(after);
            if self.pad_if_needed && padded < wanted {
                before += wanted - padded;
                padded = 2 * wanted - padded;
            }
            let spare = padded - wanted;
            match spare {
                ..0 => None,
                0 => Some(-before),
                _ => Some(rng.range(0, spare as u64 + 1) as i64 - before),
            }
        };
        let y = axis(full.height, top, bottom, wanted.height);
        let x = axis(full.width, left, right, wanted.width);
        x.zip(y).ok_or_else(|| {
            let (w, h) = (full.width, full.height);
            let text = format!("RandomCrop of {}x{} from a picture of {w}x{h}", wanted.width, wanted.height);
            Error::new(ErrorKind::Transform, text)
                .with_remedy("set pad_if_needed = true, or Resize before it")
        })
    }
}

#[typetag::serde]
impl Transform for RandomCrop {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        let (left, top) = self.draw(sample.size(), rng)?;
        let fill = match self.fill {
            Levels::Gray(level) => [level; 3],
            Levels::Rgb(rgb) => rgb,
        };
        sample.crop(left, top, self.size.square(), fill)
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        self.size.check()?;
        if let Shape::Fixed(full) = input {
            let mut any = SampleRng::root(super::SampleKey::new(0, 0, 0));
            self.draw(full, &mut any).map_err(|error| error.with_kind(ErrorKind::Config))?;
        }
        Ok(Shape::Fixed(self.size.square()))
    }

    fn request(&self, full: Size, rng: &mut SampleRng) -> Option<Request> {
        let (left, top) = self.draw(full, rng).ok()?;
        unscaled(left, top, self.size.square(), full)
    }
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

    #[test]
    fn random_crops_reach_every_place_equally() {
        let step = RandomCrop::new(30).padding(1);
        let mut counts = [[0u32; 5]; 4];
        for position in 0..20_000 {
            let (left, top) = step.draw(Size::new(32, 31), &mut rng(position)).unwrap();
            counts[(top + 1) as usize][(left + 1) as usize] += 1;
        }
        let chi: f64 = counts.iter().flatten().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 43.82, "chi-square {chi} of 19 degrees exceeds the 0.999 quantile");
    }

    #[test]
    fn random_crop_pads_or_names_the_remedy() {
        let small = Size::new(10, 40);
        let error = RandomCrop::new(20).draw(small, &mut rng(0)).unwrap_err();
        assert!(error.remedy().unwrap().contains("pad_if_needed"));
        for position in 0..50 {
            let (left, top) =
                RandomCrop::new(20).pad_if_needed(true).draw(small, &mut rng(position)).unwrap();
            assert!((-10..=0).contains(&left) && (0..=20).contains(&top));
        }
    }

    #[test]
    fn the_middle_is_rounded_to_even_and_padded_downwards() {
        let corner = |w, h| CenterCrop::new(10).corner(Size::new(w, h));
        assert_eq!(corner(11, 13), (0, 2));
        assert_eq!(corner(15, 17), (2, 4));
        assert_eq!(corner(7, 8), (-1, -1));
        assert_eq!(corner(10, 1), (0, -4));
    }
}
