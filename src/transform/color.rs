//! Steps that change colours and keep the size.
//!
//! Formulas of torchvision's v2 kernels for uint8 tensors: arithmetic in `f32`, results cut to 0..=255 and truncated. Given the
//! same factors, results are within 1 level of those, and within 1 level of Pillow's own operations, which torchvision
//! uses for PIL images (hue: 8 levels, since Pillow keeps it in 8 bits). `tests/transforms.rs` holds them to it.

use serde::{Deserialize, Serialize};

use crate::decode::Image;
use crate::error::{Error, ErrorKind, Result};

use super::flip::check_probability;
use super::{Sample, SampleRng, Shape, Transform};

/// How far a property may be changed: `0.4` or `[0.6, 1.4]` in a pipeline file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a jitter must be one number or [low, high]")]
pub enum Jitter {
    /// Symmetric: factors from `max(0, 1 - x)` to `1 + x`; for hue, shifts from `-x` to `x`.
    By(f64),
    /// Factors (or hue shifts) between two numbers.
    Within([f64; 2]),
}

impl Default for Jitter {
    fn default() -> Self {
        Jitter::By(0.0)
    }
}

impl From<f64> for Jitter {
    fn from(by: f64) -> Self {
        Jitter::By(by)
    }
}

impl From<[f64; 2]> for Jitter {
    fn from(within: [f64; 2]) -> Self {
        Jitter::Within(within)
    }
}

impl Jitter {
    /// Returns the bounds around `centre`, or nothing if the property is never changed.
    fn bounds(self, centre: f64, lowest: f64) -> Option<[f64; 2]> {
        let bounds = match self {
            Jitter::By(by) => [(centre - by).max(lowest), centre + by],
            Jitter::Within(within) => within,
        };
        (bounds != [centre, centre]).then_some(bounds)
    }
}

/// Changes brightness, contrast, saturation and hue by random amounts, in random order.
///
/// A property that is left out is not changed. Hue shifts are shares of the colour circle, at most 0.5 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    #[serde(default)]
    brightness: Jitter,
    #[serde(default)]
    contrast: Jitter,
    #[serde(default)]
    saturation: Jitter,
    #[serde(default)]
    hue: Jitter,
}

impl ColorJitter {
    /// Creates the step from four amounts, as torchvision's.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Self {
        Self::default().brightness(brightness).contrast(contrast).saturation(saturation).hue(hue)
    }

    /// Sets the amount, or the bounds of the factor, for brightness.
    #[must_use]
    pub fn brightness(mut self, jitter: impl Into<Jitter>) -> Self {
        self.brightness = jitter.into();
        self
    }

    /// Sets the amount, or the bounds of the factor, for contrast.
    #[must_use]
    pub fn contrast(mut self, jitter: impl Into<Jitter>) -> Self {
        self.contrast = jitter.into();
        self
    }

    /// Sets the amount, or the bounds of the factor, for saturation.
    #[must_use]
    pub fn saturation(mut self, jitter: impl Into<Jitter>) -> Self {
        self.saturation = jitter.into();
        self
    }

    /// Sets the amount, or the bounds of the shift, for hue.
    #[must_use]
    pub fn hue(mut self, jitter: impl Into<Jitter>) -> Self {
        self.hue = jitter.into();
        self
    }

    fn bounds(&self) -> [Option<[f64; 2]>; 4] {
        [
            self.brightness.bounds(1.0, 0.0),
            self.contrast.bounds(1.0, 0.0),
            self.saturation.bounds(1.0, 0.0),
            self.hue.bounds(0.0, -0.5),
        ]
    }
}

#[typetag::serde]
impl Transform for ColorJitter {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        let mut order = [0, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, rng.range(0, last as u64 + 1) as usize);
        }
        // All four are drawn, used or not, so that leaving one out changes no other.
        let units = [(); 4].map(|()| rng.uniform());
        let bounds = self.bounds();
        for property in order {
            let Some([low, high]) = bounds[property] else { continue };
            let factor = low + (high - low) * units[property];
            let image = sample.image_mut()?;
            match property {
                0 => brightness(image, factor),
                1 => contrast(image, factor),
                2 => saturation(image, factor),
                _ => hue(image, factor),
            }
        }
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        let names = ["brightness", "contrast", "saturation", "hue"];
        for (property, (name, bounds)) in names.into_iter().zip(self.bounds()).enumerate() {
            let Some([low, high]) = bounds else { continue };
            let (lowest, highest) = if property == 3 { (-0.5, 0.5) } else { (0.0, 1e6) };
            if !(lowest <= low && low <= high && high <= highest) {
                let text = format!("ColorJitter: {name} from {low} to {high} is out of range");
                return Err(Error::new(ErrorKind::Config, text)
                    .with_remedy(format!("keep {lowest} <= low <= high <= {highest}")));
            }
        }
        Ok(input)
    }
}

/// Turns the picture gray with probability `p` (default 0.1), as three equal channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomGrayscale {
    #[serde(default = "tenth")]
    p: f64,
}

const fn tenth() -> f64 {
    0.1
}

impl RandomGrayscale {
    /// Creates the step from its probability.
    pub fn new(p: f64) -> Self {
        RandomGrayscale { p }
    }
}

impl Default for RandomGrayscale {
    fn default() -> Self {
        Self::new(tenth())
    }
}

#[typetag::serde]
impl Transform for RandomGrayscale {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        if rng.chance(self.p) {
            for pixel in pixels(sample.image_mut()?) {
                *pixel = [gray(*pixel) as u8; 3];
            }
        }
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        check_probability("RandomGrayscale", self.p).map(|()| input)
    }
}

fn pixels(image: &mut Image) -> &mut [[u8; 3]] {
    image.pixels.as_chunks_mut().0
}

/// Returns the brightness of a pixel (ITU-R BT.601 weights as torchvision rounds them), cut to a whole level.
fn gray([r, g, b]: [u8; 3]) -> f32 {
    (f32::from(r) * 0.2989 + f32::from(g) * 0.587 + f32::from(b) * 0.114).trunc()
}

/// Moves a level away from (or towards) another: `level * factor + other * (1 - factor)`.
fn blend(level: u8, other: f32, factor: f32, rest: f32) -> u8 {
    // The cast cuts to 0..=255 and truncates.
    (f32::from(level) * factor + other * rest) as u8
}

/// Applies a function of the level to all channels.
fn map_levels(image: &mut Image, level: impl Fn(u8) -> u8) {
    let table: [u8; 256] = std::array::from_fn(|byte| level(byte as u8));
    for byte in &mut image.pixels {
        *byte = table[usize::from(*byte)];
    }
}

fn brightness(image: &mut Image, factor: f64) {
    let factor = factor as f32;
    map_levels(image, |level| (f32::from(level) * factor) as u8);
}

fn contrast(image: &mut Image, factor: f64) {
    let sum: u64 = pixels(image).iter().map(|&pixel| gray(pixel) as u64).sum();
    let mean = (sum as f64 / image.size().pixels().max(1) as f64) as f32;
    let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
    map_levels(image, |level| blend(level, mean, factor, rest));
}

fn saturation(image: &mut Image, factor: f64) {
    let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
    for pixel in pixels(image) {
        let gray = gray(*pixel);
        *pixel = pixel.map(|level| blend(level, gray, factor, rest));
    }
}

fn hue(image: &mut Image, shift: f64) {
    let shift = shift as f32;
    for pixel in pixels(image) {
        *pixel = shift_hue(*pixel, shift);
    }
}

/// Turns a pixel's hue on the colour circle of the HSV model (Smith, 1978), saturation and value unchanged.
fn shift_hue(pixel: [u8; 3], shift: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(|level| f32::from(level) / 255.0);
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    if range == 0.0 {
        return pixel;
    }
    let sixth = if value == r {
        (g - b) / range
    } else if value == g {
        2.0 + (b - r) / range
    } else {
        4.0 + (r - g) / range
    };
    let turned = sixth / 6.0 + shift;
    let h6 = (turned - turned.floor()) * 6.0;
    let sector = h6.floor();
    let part = h6 - sector;
    let saturation = range / value;
    let low = value * (1.0 - saturation);
    let falling = value * (1.0 - saturation * part);
    let rising = value * (1.0 - saturation * (1.0 - part));
    let rgb = match sector as u32 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    };
    // torchvision's way from [0, 1] to levels.
    rgb.map(|x| (x * 255.999) as u8)
}
