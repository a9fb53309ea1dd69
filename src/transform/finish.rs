//! The last pass: from 8-bit pixels to the slot, with flips, normalisation, element type, layout and erased parts.
//!
//! An element depends on one byte and its channel, so 256 values a channel are worked out once and looked up. That costs
//! no more than converting (32 against 35 microseconds for 224x224 f32, 32 for f16, on a 2-core x86-64 VM without AVX code), and
//! gives the same bytes on every machine.

use half::{bf16, f16};

use crate::decode::{Image, Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{DType, Layout};

use super::normalize::Affine;
use super::sample::{Erasure, Fill, Flips, Sample};

/// The elements that the 256 levels of three channels become, as bytes in the machine's order.
type Table<const N: usize> = [[[u8; N]; 256]; 3];

/// Writes samples of one element type and layout.
#[derive(Debug)]
pub(super) struct Finisher {
    dtype: DType,
    layout: Layout,
    /// What the tables were made for.
    affine: Option<Affine>,
    wide: Box<Table<4>>,
    narrow: Box<Table<2>>,
}

impl Finisher {
    pub(super) fn new(dtype: DType, layout: Layout) -> Self {
        let mut finisher = Finisher {
            dtype,
            layout,
            affine: None,
            wide: Box::new([[[0; 4]; 256]; 3]),
            narrow: Box::new([[[0; 2]; 256]; 3]),
        };
        finisher.tabulate(None);
        finisher
    }

    fn tabulate(&mut self, affine: Option<Affine>) {
        self.affine = affine;
        for channel in 0..3 {
            for byte in 0..=255u8 {
                let value = match &affine {
                    Some(affine) => affine.at(channel, byte),
                    None => f32::from(byte) / 255.0,
                };
                let at = usize::from(byte);
                match self.dtype {
                    DType::F32 => self.wide[channel][at] = value.to_ne_bytes(),
                    DType::F16 => self.narrow[channel][at] = f16::from_f32_const(value).to_ne_bytes(),
                    DType::BF16 => self.narrow[channel][at] = bf16::from_f32_const(value).to_ne_bytes(),
                    DType::U8 | DType::I64 => {}
                }
            }
        }
    }

    /// Writes the sample into `out`, which has exactly its size.
    pub(super) fn write(&mut self, sample: &mut Sample, size: Size, out: &mut [u8]) -> Result<()> {
        let (flips, affine) = (sample.flips, sample.affine);
        if affine.is_some() && self.dtype == DType::U8 {
            return Err(normalized_bytes());
        }
        if affine != self.affine {
            self.tabulate(affine);
        }
        let image = sample.for_output()?;
        if image.size() != size {
            let text = format!("the pipeline gave {:?} where {size:?} was announced", image.size());
            return Err(Error::new(ErrorKind::Transform, text)
                .with_remedy("a step's shape() must return the size that its apply() gives"));
        }
        match self.dtype {
            DType::F32 => lay(image, flips, self.layout, out, |c, v| self.wide[c][usize::from(v)]),
            DType::F16 | DType::BF16 => {
                lay(image, flips, self.layout, out, |c, v| self.narrow[c][usize::from(v)]);
            }
            DType::U8 | DType::I64 => lay(image, flips, self.layout, out, |_, v| [v]),
        }
        for erasure in &sample.erased {
            self.erase(erasure, size, out);
        }
        Ok(())
    }

    fn erase(&self, erasure: &Erasure, size: Size, out: &mut [u8]) {
        let mut noise = match &erasure.fill {
            Fill::Normal(rng) => Some((rng.clone(), None)),
            Fill::Constant(_) => None,
        };
        let mut next = |channel: usize| match (&erasure.fill, &mut noise) {
            (Fill::Constant(value), _) => value[channel],
            (Fill::Normal(_), Some((rng, kept))) => kept.take().unwrap_or_else(|| {
                let [first, second] = rng.normal_pair();
                *kept = Some(second);
                first
            }) as f32,
            (Fill::Normal(_), None) => 0.0,
        };
        let item = self.dtype.size();
        for_each_element(erasure.rect, size, self.layout, |channel, at| {
            let value = next(channel);
            let place = &mut out[at * item..][..item];
            match self.dtype {
                DType::F32 => place.copy_from_slice(&value.to_ne_bytes()),
                DType::F16 => place.copy_from_slice(&f16::from_f32_const(value).to_ne_bytes()),
                DType::BF16 => place.copy_from_slice(&bf16::from_f32_const(value).to_ne_bytes()),
                DType::U8 | DType::I64 => {}
            }
        });
    }
}

/// Returns the error for a normalisation whose result cannot be held.
pub(super) fn normalized_bytes() -> Error {
    Error::new(ErrorKind::Config, "Normalize gives fractions, but the output's dtype is u8")
        .with_remedy("set dtype = \"f32\" (or f16, bf16), or remove Normalize and normalise on the device")
}

/// Visits a rectangle's elements, channel by channel and row by row, with their number in the output.
fn for_each_element(rect: Rect, size: Size, layout: Layout, mut visit: impl FnMut(usize, usize)) {
    let (width, pixels) = (size.width as usize, size.pixels() as usize);
    for channel in 0..3 {
        for y in rect.top..rect.top + rect.height {
            for x in rect.left..rect.left + rect.width {
                let pixel = y as usize * width + x as usize;
                visit(
                    channel,
                    match layout {
                        Layout::Nchw => channel * pixels + pixel,
                        Layout::Nhwc => pixel * 3 + channel,
                    },
                );
            }
        }
    }
}

/// Writes every element once: flips, layout, and what `element` makes of a channel's byte.
fn lay<const N: usize>(
    image: &Image,
    flips: Flips,
    layout: Layout,
    out: &mut [u8],
    element: impl Fn(usize, u8) -> [u8; N],
) {
    let (width, height) = (image.width as usize, image.height as usize);
    let (out, _) = out.as_chunks_mut::<N>();
    let (pixels, _) = image.pixels.as_chunks::<3>();
    for y in 0..height {
        let from = if flips.vertical { height - 1 - y } else { y };
        let row = pixels[from * width..][..width].iter();
        match (layout, flips.horizontal) {
            (Layout::Nchw, false) => planar(out, y * width, row, &element),
            (Layout::Nchw, true) => planar(out, y * width, row.rev(), &element),
            (Layout::Nhwc, false) => interleaved(out, y * width, row, &element),
            (Layout::Nhwc, true) => interleaved(out, y * width, row.rev(), &element),
        }
    }
}

/// Writes pixels into three planes, from pixel `start` on.
#[inline(always)]
fn planar<'a, const N: usize>(
    out: &mut [[u8; N]],
    start: usize,
    pixels: impl ExactSizeIterator<Item = &'a [u8; 3]>,
    element: &impl Fn(usize, u8) -> [u8; N],
) {
    let plane = out.len() / 3;
    let (r, rest) = out.split_at_mut(plane);
    let (g, b) = rest.split_at_mut(plane);
    let at = start..start + pixels.len();
    let places = r[at.clone()].iter_mut().zip(&mut g[at.clone()]).zip(&mut b[at]);
    for (((r, g), b), pixel) in places.zip(pixels) {
        *r = element(0, pixel[0]);
        *g = element(1, pixel[1]);
        *b = element(2, pixel[2]);
    }
}

/// Writes pixels one after the other, from pixel `start` on.
#[inline(always)]
fn interleaved<'a, const N: usize>(
    out: &mut [[u8; N]],
    start: usize,
    pixels: impl ExactSizeIterator<Item = &'a [u8; 3]>,
    element: &impl Fn(usize, u8) -> [u8; N],
) {
    let (places, _) = out[start * 3..][..pixels.len() * 3].as_chunks_mut::<3>();
    for (place, pixel) in places.iter_mut().zip(pixels) {
        *place = [element(0, pixel[0]), element(1, pixel[1]), element(2, pixel[2])];
    }
}
