//! Steps, element type, layout and decode options as plain data, and the form of them that runs.

use serde::{Deserialize, Serialize};

use crate::decode::{Decoded, Image, Rect, Request, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{DType, Layout};

use super::apply::occurrence;
use super::finish::{Finisher, normalized_bytes};
use super::rng::{RNG_VERSION, fnv1a};
use super::{
    CenterCrop, Domain, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, Sample, SampleKey,
    SampleRng, Shape, Transform,
};

/// The version of what the steps compute. Raised when the same pipeline gives other bytes than before.
pub const PIPELINE_VERSION: u32 = 1;

/// What is done with each sample between reading and the batch: plain data, to be compared, stored and sent.
///
/// # Examples
/// ```
/// use forebay::transform::{Pipeline, RandomResizedCrop, Shape};
///
/// let pipeline = Pipeline::new().then(RandomResizedCrop::new(32));
/// assert_eq!(pipeline.check(Shape::Varying)?.width, 32);
/// let copy = Pipeline::from_json(&pipeline.to_json()?)?;
/// assert_eq!(copy.fingerprint(), pipeline.fingerprint());
/// # forebay::Result::Ok(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The element type of the output.
    #[serde(default = "default_dtype")]
    pub dtype: DType,
    /// The order of the output's axes.
    #[serde(default = "default_layout")]
    pub layout: Layout,
    /// The steps, in order.
    #[serde(rename = "step", default)]
    pub steps: Vec<Box<dyn Transform>>,
}

const fn default_dtype() -> DType {
    DType::F32
}

const fn default_layout() -> Layout {
    Layout::Nchw
}

impl Default for Pipeline {
    fn default() -> Self {
        Pipeline { dtype: default_dtype(), layout: default_layout(), steps: Vec::new() }
    }
}

impl Pipeline {
    /// Creates a pipeline without steps whose output is `f32`, NCHW.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    #[must_use]
    pub fn then(mut self, step: impl Transform + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    /// Sets the element type and layout of the output.
    #[must_use]
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        (self.dtype, self.layout) = (dtype, layout);
        self
    }

    /// Returns the usual training pipeline: random resized crop, horizontal flip, ImageNet normalisation.
    pub fn train(size: u32) -> Self {
        Self::new()
            .then(RandomResizedCrop::new(size))
            .then(RandomHorizontalFlip::default())
            .then(Normalize::IMAGENET)
    }

    /// Returns the usual evaluation pipeline: shorter side to `256 / 224 * size` (rounded), centre crop, ImageNet
    /// normalisation.
    pub fn eval(size: u32) -> Self {
        let shorter = (u64::from(size) * 256 + 112) / 224;
        Self::new()
            .then(Resize::new(u32::try_from(shorter).unwrap_or(u32::MAX)))
            .then(CenterCrop::new(size))
            .then(Normalize::IMAGENET)
    }

    /// Returns the size of every output picture, given what is known of the inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the step that cannot work, or what to add for a fixed size.
    pub fn check(&self, input: Shape) -> Result<Size> {
        let mut shape = input;
        let mut normalized = false;
        for (number, step) in self.steps.iter().enumerate() {
            let place = || format!("step {} ({})", number + 1, step.typetag_name());
            match (step.domain(), normalized) {
                (Domain::Pixels | Domain::Normalizes, true) => {
                    let text = format!(
                        "{} stands behind Normalize, where only RandomErasing and flips may",
                        place()
                    );
                    return Err(Error::new(ErrorKind::Config, text)
                        .with_remedy(format!("move {} in front of Normalize", step.typetag_name())));
                }
                (Domain::Normalized, false) => {
                    let text = format!("{} puts normal noise among 8-bit pixels", place());
                    return Err(Error::new(ErrorKind::Config, text)
                        .with_remedy("put Normalize in front of it, or erase with a constant value"));
                }
                (Domain::Normalizes, false) if self.dtype == DType::U8 => return Err(normalized_bytes()),
                (Domain::Normalizes, false) => normalized = true,
                _ => {}
            }
            shape = step.shape(shape).map_err(|error| {
                let again = Error::new(error.kind(), format!("{}: {}", place(), error.message()));
                match error.remedy() {
                    Some(remedy) => again.with_remedy(remedy),
                    None => again,
                }
            })?;
        }
        if self.dtype == DType::I64 {
            return Err(Error::new(ErrorKind::Config, "dtype i64 is for labels, not for pictures")
                .with_remedy("use one of u8, f16, bf16, f32"));
        }
        match shape {
            Shape::Fixed(size) => Ok(size),
            Shape::Varying => Err(Error::new(ErrorKind::Config, "the pipeline's pictures vary in size, so they cannot be stacked")
                .with_remedy("add a step that fixes the size: RandomResizedCrop, CenterCrop, RandomCrop, or Resize with [height, width] (CenterCrop::new(224); in a file: [[step]] type = \"CenterCrop\" size = 224)")),
        }
    }

    /// Returns the bytes that one output picture of `size` takes.
    pub fn sample_bytes(&self, size: Size) -> usize {
        size.pixels() as usize * 3 * self.dtype.size()
    }

    /// Returns it as JSON: what is sent to workers, and what the fingerprint is made of.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a step cannot be serialised.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| unreadable("written as JSON", &error))
    }

    /// Reads what [`to_json`](Pipeline::to_json) wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the key that is unknown, missing or of the wrong kind.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| unreadable("read from JSON", &error))
    }

    /// Returns a number that is equal for pipelines that give equal bytes: a hash (64-bit FNV-1a) of the JSON form, of
    /// [`PIPELINE_VERSION`] and of [`RNG_VERSION`].
    pub fn fingerprint(&self) -> u64 {
        let text = self.to_json().unwrap_or_else(|_| format!("{self:?}"));
        fnv1a(format!("{PIPELINE_VERSION}.{RNG_VERSION}:{text}").as_bytes())
    }
}

fn unreadable(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("the pipeline cannot be {what}: {error}"))
}

/// A pipeline that runs: one for each worker, with its buffers.
#[derive(Debug)]
pub struct Compiled {
    pipeline: Pipeline,
    size: Size,
    /// For each step, how many of the same type stand before it.
    occurrences: Vec<usize>,
    sample: Sample,
    finisher: Finisher,
}

impl Compiled {
    /// Checks a pipeline and prepares it to run.
    ///
    /// # Errors
    /// As [`Pipeline::check`].
    pub fn new(pipeline: Pipeline, input: Shape) -> Result<Self> {
        let size = pipeline.check(input)?;
        let occurrences = (0..pipeline.steps.len()).map(|n| occurrence(&pipeline.steps, n)).collect();
        let finisher = Finisher::new(pipeline.dtype, pipeline.layout);
        Ok(Compiled { pipeline, size, occurrences, sample: Sample::default(), finisher })
    }

    /// Returns the pipeline it was made from.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the size of every output picture.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the bytes of one output picture.
    pub fn sample_bytes(&self) -> usize {
        self.pipeline.sample_bytes(self.size)
    }

    /// Returns what the steps will use of a picture of size `full`, if they can tell before it is decoded.
    pub fn request(&self, full: Size, key: SampleKey) -> Option<Request> {
        self.request_from(0, full, &SampleRng::root(key))
    }

    /// As [`request`](Compiled::request), for the steps from `number` on: what a later step asks for, seen through this
    /// step, or else what this one asks for.
    fn request_from(&self, number: usize, input: Size, root: &SampleRng) -> Option<Request> {
        let step = self.pipeline.steps.get(number)?;
        if let Ok(Shape::Fixed(output)) = step.shape(Shape::Fixed(input))
            && step.source_region(input, Rect::whole(output)).is_some()
            && let Some(later) = self.request_from(number + 1, output, root)
            && let Some(region) = step.source_region(input, later.region)
        {
            return Some(Request { region, target: region.size() });
        }
        step.request(input, &mut self.rng(number, root))
    }

    fn rng(&self, number: usize, root: &SampleRng) -> SampleRng {
        root.child(self.pipeline.steps[number].typetag_name(), self.occurrences[number])
    }

    /// Returns the image to decode the next sample into.
    pub fn begin(&mut self, label: i64) -> &mut Image {
        self.sample.begin(label)
    }

    /// Runs the steps on what was decoded into the image of [`begin`](Compiled::begin), and writes the result to `out`.
    /// Returns the label.
    ///
    /// # Errors
    /// Whatever a step finds; [`ErrorKind::Transform`] if `out` does not have
    /// [`sample_bytes`](Compiled::sample_bytes) bytes.
    pub fn finish(&mut self, decoded: Decoded, key: SampleKey, out: &mut [u8]) -> Result<i64> {
        if out.len() != self.sample_bytes() {
            let text = format!("a slot of {} bytes for a sample of {}", out.len(), self.sample_bytes());
            return Err(Error::new(ErrorKind::Transform, text));
        }
        self.sample.decoded(decoded);
        let root = SampleRng::root(key);
        for number in 0..self.pipeline.steps.len() {
            let mut rng = self.rng(number, &root);
            self.pipeline.steps[number].apply(&mut self.sample, &mut rng)?;
        }
        self.finisher.write(&mut self.sample, self.size, out)?;
        Ok(self.sample.label())
    }
}
