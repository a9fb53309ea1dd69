//! Augmentations, the pipeline compiled from them, and the randomness they draw from.
//! Works on one sample in private memory; the only thing it writes elsewhere is the slot it is handed.

use std::fmt::Debug;

use crate::decode::{Request, Size};
use crate::error::Result;

mod rng;
mod sample;

pub use rng::SampleRng;
pub use sample::Sample;

/// What is known of a picture's size before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Pictures vary in size.
    Varying,
    /// Every picture has this size.
    Fixed(Size),
}

/// One step of a pipeline. Mark implementations with `#[typetag::serde]`.
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
    /// Asked only of the first step of a pipeline.
    fn request(&self, full: Size, rng: &mut SampleRng) -> Option<Request> {
        let _ = (full, rng);
        None
    }
}
