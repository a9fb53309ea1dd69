//! The step that resizes the whole picture.

use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Request, Size};
use crate::error::{Error, ErrorKind, Result};

use super::{Sample, SampleRng, Shape, Side, Transform};

/// Resizes the picture: bilinear, antialiased; within 1 level of Pillow's and torchvision's.
///
/// One number is the shorter side; the longer one becomes `int(size * longer / shorter)`, and with `max_size` both
/// shrink until the longer one is at most that. `[height, width]` is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    size: Side,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
}

impl Resize {
    /// Creates the step from the shorter side's new length, or `[height, width]`.
    pub fn new(size: impl Into<Side>) -> Self {
        Resize { size: size.into(), max_size: None }
    }

    /// Limits the longer side, where the shorter one was given.
    #[must_use]
    pub fn max_size(mut self, longer: u32) -> Self {
        self.max_size = Some(longer);
        self
    }

    fn target(&self, full: Size) -> Size {
        let Side::One(size) = self.size else { return self.size.square() };
        let (short, long) = (full.width.min(full.height), full.width.max(full.height));
        // Divisions of 64-bit floats, as in Python.
        let (mut new_short, mut new_long) =
            (size, (f64::from(size) * f64::from(long) / f64::from(short)) as u32);
        if let Some(limit) = self.max_size
            && new_long > limit
        {
            new_short = (f64::from(limit) * f64::from(new_short) / f64::from(new_long)) as u32;
            new_long = limit;
        }
        let (new_short, new_long) = (new_short.max(1), new_long.max(1));
        if full.width <= full.height {
            Size::new(new_short, new_long)
        } else {
            Size::new(new_long, new_short)
        }
    }
}

#[typetag::serde]
impl Transform for Resize {
    fn apply(&self, sample: &mut Sample, _rng: &mut SampleRng) -> Result<()> {
        let target = self.target(sample.size());
        if target.pixels() > MAX_PIXELS {
            let text = format!("Resize of {:?} to {target:?}: above {MAX_PIXELS} pixels", sample.size());
            return Err(Error::new(ErrorKind::Limit, text).with_remedy("set max_size in Resize"));
        }
        sample.resize(target)
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        self.size.check()?;
        if let Some(limit) = self.max_size {
            Side::One(limit).check()?;
            if !matches!(self.size, Side::One(size) if size < limit) {
                let text = format!("Resize: max_size {limit} with size {:?}", self.size);
                return Err(Error::new(ErrorKind::Config, text)
                    .with_remedy("max_size goes with one number for size, and must be above it"));
            }
        }
        Ok(match (self.size, input) {
            (Side::HeightWidth(_), _) => Shape::Fixed(self.size.square()),
            (Side::One(_), Shape::Fixed(full)) => Shape::Fixed(self.target(full)),
            (Side::One(_), Shape::Varying) => Shape::Varying,
        })
    }

    fn request(&self, full: Size, _rng: &mut SampleRng) -> Option<Request> {
        Some(Request { region: Rect::whole(full), target: self.target(full) })
    }

    fn source_region(&self, input: Size, output: Rect) -> Option<Rect> {
        let target = self.target(input);
        // The triangle filter reaches one pixel, or one output pixel's width when shrinking; one more pixel for rounding.
        let span = |first: u32, length: u32, input: u32, target: u32| {
            let scale = f64::from(input) / f64::from(target);
            let reach = scale.max(1.0) + 1.0;
            let start = (f64::from(first) * scale - reach).floor().max(0.0) as u32;
            let end = (f64::from(first + length) * scale + reach).ceil().min(f64::from(input)) as u32;
            (start, end - start)
        };
        let (left, width) = span(output.left, output.width, input.width, target.width);
        let (top, height) = span(output.top, output.height, input.height, target.height);
        Some(Rect { left, top, width, height })
    }
}

/// The largest picture that resizing by the shorter side may produce: a strip of 1 x 60,000 pixels would explode.
const MAX_PIXELS: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_truncated_as_in_torchvision() {
        let target = |step: Resize, w, h| step.target(Size::new(w, h));
        assert_eq!(target(Resize::new(256), 500, 375), Size::new(341, 256));
        assert_eq!(target(Resize::new(256), 375, 500), Size::new(256, 341));
        assert_eq!(target(Resize::new(256), 7, 7), Size::new(256, 256));
        assert_eq!(target(Resize::new(256).max_size(300), 500, 375), Size::new(300, 225));
        assert_eq!(target(Resize::new([20, 30]), 500, 375), Size::new(30, 20));
        assert_eq!(target(Resize::new(2).max_size(3), 1000, 1), Size::new(3, 1));
    }

    #[test]
    fn a_strip_that_would_explode_is_refused() {
        let mut sample =
            Sample::new(crate::decode::Image { width: 60_000, height: 1, pixels: vec![0; 180_000] }, 0);
        let mut rng = SampleRng::root(super::super::SampleKey::new(0, 0, 0));
        let error = Resize::new(256).apply(&mut sample, &mut rng).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }
}
