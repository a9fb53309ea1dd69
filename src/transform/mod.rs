//! Augmentations, the pipeline compiled from them, and the randomness they draw from.
//! Works on one sample in private memory; the only thing it writes elsewhere is the slot it is handed.

use std::fmt::Debug;

use crate::decode::{Rect, Request, Size};
use crate::error::Result;

mod apply;
mod blur;
mod canvas;
mod color;
mod compiled;
mod crop;
mod erase;
mod finish;
mod flip;
mod normalize;
mod pipeline;
mod resize;
mod resized_crop;
mod rng;
mod sample;
mod scaler;
mod side;

pub use apply::RandomApply;
pub use blur::GaussianBlur;
pub use color::{ColorJitter, Jitter, RandomGrayscale};
pub use compiled::{Compiled, Processed};
pub use crop::{CenterCrop, RandomCrop};
pub use erase::RandomErasing;
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use normalize::Normalize;
pub use pipeline::{PIPELINE_VERSION, Pipeline};
pub use resize::Resize;
pub use resized_crop::RandomResizedCrop;
pub use rng::{RNG_VERSION, SampleKey, SampleRng};
pub use sample::{Fill, Sample};
pub use side::Side;

/// What is known of a picture's size before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Pictures vary in size.
    Varying,
    /// Every picture has this size.
    Fixed(Size),
}

/// Where a step may stand with regard to [`Normalize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// Reads or changes 8-bit pixels: before the normalisation only.
    Pixels,
    /// Is the normalisation: once in a pipeline.
    Normalizes,
    /// Puts elements of the output in place: after the normalisation only.
    Normalized,
    /// Only flips or erases: before and after.
    Either,
}

/// One step of a pipeline. Mark implementations with `#[typetag::serde]`; the type's plain name becomes its tag in
/// pipeline files and in the keys of its random numbers.
#[typetag::serde(tag = "type")]
pub trait Transform: Debug + Send + Sync {
    /// Changes the sample. All randomness comes from `rng`, which starts at the same draw in
    /// [`request`](Transform::request) and here.
    ///
    /// # Errors
    /// Whatever makes the step impossible for this sample.
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()>;

    /// Returns the size after this step for a picture of `input` size; fixes the slab's layout at build time.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for parameters that cannot work.
    fn shape(&self, input: Shape) -> Result<Shape> {
        Ok(input)
    }

    /// Returns what this step will use of a picture of size `full`, where it can tell before decoding.
    /// Asked of the first step of a pipeline, and of a later one if all before it have a
    /// [`source_region`](Transform::source_region).
    fn request(&self, full: Size, rng: &mut SampleRng) -> Option<Request> {
        let _ = (full, rng);
        None
    }

    /// Returns the part of a picture of size `input` that decides the part `output` of this step's result.
    /// `None`, the default, means that all of it may.
    fn source_region(&self, input: Size, output: Rect) -> Option<Rect> {
        let _ = (input, output);
        None
    }

    /// Returns where this step may stand with regard to the normalisation.
    fn domain(&self) -> Domain {
        Domain::Pixels
    }
}

impl Shape {
    /// Returns what a known size (width, height), or none, says.
    pub fn of(size: Option<(u32, u32)>) -> Shape {
        size.map_or(Shape::Varying, |(width, height)| Shape::Fixed(Size::new(width, height)))
    }

    /// Returns what is known when either of two shapes may come.
    #[must_use]
    pub fn or(self, other: Shape) -> Shape {
        if self == other { self } else { Shape::Varying }
    }
}
