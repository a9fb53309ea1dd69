//! Antialiased bilinear resizing.
//!
//! `fast_image_resize`'s convolution with the triangle filter, on 8-bit values with integer arithmetic. Its SSE4.1 and AVX2
//! paths give the same bytes as its portable one (`tests/simd_levels.rs` compares them). With a crop box it would
//! also read pixels *outside* the box, under the filter's skirts; so it is handed a view of the box alone, which gives what
//! cutting first and resizing afterwards gives, as torchvision does.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::decode::{Image, Rect, Size};
use crate::error::{Error, ErrorKind, Result};

/// A rectangle with real-valued borders, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Window {
    /// Returns the smallest rectangle of whole pixels around it, within a picture of size `within`.
    fn outer(self, within: Size) -> Rect {
        let span = |start: f64, length: f64, limit: u32| {
            let first = (start.floor().max(0.0) as u32).min(limit - 1);
            let end = ((start + length).ceil() as u32).clamp(first + 1, limit);
            (first, end - first)
        };
        let (left, width) = span(self.left, self.width, within.width);
        let (top, height) = span(self.top, self.height, within.height);
        Rect { left, top, width, height }
    }
}

/// Resizes pictures, keeping its buffers. The coefficients of a resize (a few KB) are allocated anew each time.
#[derive(Debug, Default)]
pub(super) struct Scaler {
    resizer: Resizer,
}

impl Scaler {
    /// Makes `dst` the part `window` of `src`, resized to `target`.
    pub(super) fn run(&mut self, src: &Image, window: Window, target: Size, dst: &mut Image) -> Result<()> {
        dst.reset(target);
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Transform, format!("resizing {window:?} of {:?}: {error}", src.size()))
        };
        let whole = TypedImageRef::<U8x3>::from_buffer(src.width, src.height, &src.pixels)
            .map_err(|error| failed(&error))?;
        let outer = window.outer(src.size());
        let view = TypedCroppedImage::new(whole, outer.left, outer.top, outer.width, outer.height)
            .map_err(|error| failed(&error))?;
        let mut out = TypedImage::<U8x3>::from_buffer(target.width, target.height, &mut dst.pixels)
            .map_err(|error| failed(&error))?;
        let (left, top) = (window.left - f64::from(outer.left), window.top - f64::from(outer.top));
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(
                left.max(0.0),
                top.max(0.0),
                window.width.min(f64::from(outer.width) - left.max(0.0)),
                window.height.min(f64::from(outer.height) - top.max(0.0)),
            )
            .use_alpha(false);
        self.resizer.resize_typed(&view, &mut out, &options).map_err(|error| failed(&error))
    }
}
