//! Steps that cut a part out of the picture.

use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Request, Size};
use crate::error::{Error, ErrorKind, Result};

use super::{Sample, SampleRng, Shape, Side, Transform};

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
