//! Gaussian blur.

use serde::{Deserialize, Serialize};

use crate::decode::Image;
use crate::error::{Error, ErrorKind, Result};

use super::resized_crop::positive_bounds;
use super::{Sample, SampleRng, Shape, Side, Transform};

/// Blurs with a Gaussian of random `sigma` (default 0.1 to 2) cut to `kernel_size` pixels (odd).
///
/// torchvision's: weights `exp(-x² / 2 sigma²)` normalised to sum 1, the picture continued by reflection at its border,
/// rounding to the nearest level (halves to even). Rows first, then columns, in `f32`; torchvision's one pass over the
/// product kernel is within 1 level. Pictures smaller than half the kernel are reflected repeatedly where torchvision refuses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    kernel_size: Side,
    #[serde(default = "default_sigma")]
    sigma: [f64; 2],
}

const fn default_sigma() -> [f64; 2] {
    [0.1, 2.0]
}

const MAX_KERNEL: u32 = 255;

impl GaussianBlur {
    /// Creates the step from its kernel's side, or `[height, width]`: odd numbers.
    pub fn new(kernel_size: impl Into<Side>) -> Self {
        GaussianBlur { kernel_size: kernel_size.into(), sigma: default_sigma() }
    }

    /// Sets the bounds of the standard deviation, in pixels.
    #[must_use]
    pub fn sigma(mut self, low: f64, high: f64) -> Self {
        self.sigma = [low, high];
        self
    }
}

#[typetag::serde]
impl Transform for GaussianBlur {
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        let sigma = rng.uniform_in(self.sigma[0], self.sigma[1]);
        let kernel = self.kernel_size.square();
        let (image, floats) = sample.image_and_floats()?;
        blur(image, &Kernel::new(kernel.width, sigma), &Kernel::new(kernel.height, sigma), floats);
        Ok(())
    }

    fn shape(&self, input: Shape) -> Result<Shape> {
        let kernel = self.kernel_size.square();
        let fine = |side: u32| side % 2 == 1 && side <= MAX_KERNEL;
        if !fine(kernel.width) || !fine(kernel.height) {
            let text = format!("GaussianBlur: kernel_size {}x{}", kernel.width, kernel.height);
            return Err(Error::new(ErrorKind::Config, text)
                .with_remedy(format!("give odd numbers from 1 to {MAX_KERNEL}")));
        }
        positive_bounds("GaussianBlur: sigma", self.sigma)?;
        Ok(input)
    }
}

/// Weights that sum to 1.
struct Kernel {
    weights: [f32; MAX_KERNEL as usize],
    len: usize,
}

impl Kernel {
    fn new(len: u32, sigma: f64) -> Self {
        let len = len as usize;
        let half = (len / 2) as f64;
        let exact = |n: usize| libm::exp(-0.5 * ((n as f64 - half) / sigma) * ((n as f64 - half) / sigma));
        let sum: f64 = (0..len).map(exact).sum();
        let mut weights = [0.0; MAX_KERNEL as usize];
        for (n, weight) in weights[..len].iter_mut().enumerate() {
            *weight = (exact(n) / sum) as f32;
        }
        Kernel { weights, len }
    }

    fn weights(&self) -> &[f32] {
        &self.weights[..self.len]
    }

    fn half(&self) -> usize {
        self.len / 2
    }
}

/// Returns which of `len` pixels stands at `at`, the row being continued by reflection without repeating its ends.
fn reflect(at: i64, len: usize) -> usize {
    if len == 1 {
        return 0;
    }
    let period = 2 * (len as i64 - 1);
    let folded = at.rem_euclid(period);
    folded.min(period - folded) as usize
}

/// Adds `weight * src` to `sum`, element by element, in two roundings.
fn accumulate(sum: &mut [f32], src: &[f32], weight: f32) {
    for (sum, src) in sum.iter_mut().zip(src) {
        *sum += src * weight;
    }
}

fn blur(image: &mut Image, across: &Kernel, down: &Kernel, floats: &mut Vec<f32>) {
    let (width, height) = (image.width as usize, image.height as usize);
    let stride = width * 3;
    if stride == 0 || height == 0 {
        return;
    }
    let padded = (width + 2 * across.half()) * 3;
    // All rows blurred across, then one row with its continuation, then one row of sums.
    floats.clear();
    floats.resize(stride * height + padded + stride, 0.0);
    let (rows, rest) = floats.split_at_mut(stride * height);
    let (line, sum) = rest.split_at_mut(padded);

    for (row, bytes) in rows.chunks_exact_mut(stride).zip(image.pixels.chunks_exact(stride)) {
        for (x, pixel) in line.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let from = reflect(x as i64 - across.half() as i64, width) * 3;
            *pixel = [bytes[from], bytes[from + 1], bytes[from + 2]].map(f32::from);
        }
        for (tap, &weight) in across.weights().iter().enumerate() {
            accumulate(row, &line[tap * 3..][..stride], weight);
        }
    }
    for (y, bytes) in image.pixels.chunks_exact_mut(stride).enumerate() {
        sum.fill(0.0);
        for (tap, &weight) in down.weights().iter().enumerate() {
            let from = reflect((y + tap) as i64 - down.half() as i64, height);
            accumulate(sum, &rows[from * stride..][..stride], weight);
        }
        for (byte, &sum) in bytes.iter_mut().zip(&*sum) {
            *byte = round_level(sum);
        }
    }
}

/// Rounds to the nearest level, halves to even: adding 1.5 * 2^23 leaves whole numbers in the low bits of the `f32`.
fn round_level(value: f32) -> u8 {
    const SHIFT: f32 = 12_582_912.0;
    ((value + SHIFT) - SHIFT) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Size;

    #[test]
    fn borders_are_reflected_without_repeating_the_last_pixel() {
        let row: Vec<usize> = (-4..8).map(|at| reflect(at, 4)).collect();
        assert_eq!(row, [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert!((-9..9).all(|at| reflect(at, 1) == 0));
    }

    #[test]
    fn levels_are_rounded_to_nearest_and_halves_to_even() {
        let rounded = [0.0, 0.4, 0.5, 1.5, 2.5, 254.6, 255.4, -0.2].map(round_level);
        assert_eq!(rounded, [0, 0, 0, 2, 2, 255, 255, 0]);
    }

    #[test]
    fn a_flat_picture_stays_flat() {
        let mut image = Image::default();
        image.reset(Size::new(5, 3));
        image.pixels.fill(200);
        blur(&mut image, &Kernel::new(23, 2.0), &Kernel::new(7, 0.4), &mut Vec::new());
        assert!(image.pixels.iter().all(|&level| level == 200), "{:?}", image.pixels);
    }
}
