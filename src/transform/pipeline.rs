//! Steps, element type, layout and decode options as plain data, and the form of them that runs.

use serde::{Deserialize, Serialize};

use crate::decode::{DecodeOptions, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{DType, Layout};

use super::finish::normalized_bytes;
use super::rng::{RNG_VERSION, fnv1a};
use super::{
    CenterCrop, Domain, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, Shape, Transform,
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
/// # Ok::<(), forebay::Error>(())
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
    /// How pictures are decoded.
    #[serde(default)]
    pub decode: DecodeOptions,
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
        Pipeline {
            dtype: default_dtype(),
            layout: default_layout(),
            decode: DecodeOptions::default(),
            steps: Vec::new(),
        }
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

    /// Returns it as TOML: `dtype`, `layout`, `[decode]` and one `[[step]]` with its `type` and parameters a step.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a step cannot be serialised.
    #[cfg(feature = "cli")]
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| unreadable("written as TOML", &error))
    }

    /// Reads a pipeline file. Whatever is left out has its default.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the line and the key that is unknown, missing or of the wrong kind.
    ///
    /// # Examples
    /// ```
    /// use forebay::transform::Pipeline;
    ///
    /// let pipeline = Pipeline::from_toml(
    ///     r#"
    ///     dtype = "f16"
    ///     [[step]]
    ///     type = "RandomResizedCrop"
    ///     size = 224
    ///     scale = [0.2, 1.0]
    ///     [[step]]
    ///     type = "Normalize"
    ///     mean = [0.5, 0.5, 0.5]
    ///     std = [0.5, 0.5, 0.5]
    ///     "#,
    /// )?;
    /// assert_eq!(pipeline.steps.len(), 2);
    /// # Ok::<(), forebay::Error>(())
    /// ```
    #[cfg(feature = "cli")]
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| unreadable("read from TOML", &error))
    }

    /// Returns a number that changes with whatever may change the output's bytes: a hash (64-bit FNV-1a) of the JSON form,
    /// of [`PIPELINE_VERSION`] and of [`RNG_VERSION`]. Steps of your own must serialise in a fixed order (no `HashMap`).
    pub fn fingerprint(&self) -> u64 {
        let text = self.to_json().unwrap_or_else(|_| format!("{self:?}"));
        fnv1a(format!("{PIPELINE_VERSION}.{RNG_VERSION}:{text}").as_bytes())
    }
}

fn unreadable(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("the pipeline cannot be {what}: {error}"))
}
