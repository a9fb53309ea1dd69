//! One batch in the consumer's hands: typed views of its slab, without a copy.

use std::fmt;

use ndarray::{ArrayView1, ArrayView4};

use super::failure::SampleError;
use super::link::{Delivery, Held};
use super::supervisor::BatchId;
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::BatchSpan;
use crate::slab::SlabLayout;
use crate::tensor::{DType, Element};

/// A batch: images and labels, in the slab that workers filled. Dropping it frees the slab for another batch.
///
/// It may outlive its epoch and its loader, and may go to another thread.
pub struct Batch {
    id: BatchId,
    span: BatchSpan,
    held: Held,
}

impl Batch {
    pub(super) fn new(delivery: Delivery) -> Result<Self> {
        let Delivery { batch, span, slab, result } = delivery;
        result.map(|()| Batch { id: batch, span, held: slab })
    }

    /// Returns the number of samples, padding and skipped ones included.
    pub fn len(&self) -> usize {
        self.span.len as usize
    }

    /// Returns whether it has no samples. No batch that a loader hands out is empty.
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }

    /// Returns its epoch.
    pub fn epoch(&self) -> u64 {
        self.id.epoch
    }

    /// Returns which batch of this rank's epoch it is, from 0; counted from the start of the resumed part after a resume.
    pub fn step(&self) -> u64 {
        self.id.step
    }

    /// Returns the global position of its first sample; the others follow it one by one.
    pub fn position(&self) -> u64 {
        self.span.first_position
    }

    /// Returns the data set index of each sample.
    pub fn indices(&self) -> &[u64] {
        &self.held.lists.indices
    }

    /// Returns for each slot whether it holds a sample that counts: false for padding and for skipped samples.
    pub fn valid(&self) -> &[bool] {
        &self.held.lists.valid
    }

    /// Returns for each slot whether it holds another sample than the order wanted, since that one could not be made.
    pub fn substituted(&self) -> &[bool] {
        &self.held.lists.substituted
    }

    /// Returns the samples of this batch that could not be made.
    pub fn errors(&self) -> &[SampleError] {
        &self.held.lists.failures
    }

    /// Returns the labels.
    pub fn labels(&self) -> &[i64] {
        bytemuck::cast_slice(self.field(SlabLayout::LABEL))
    }

    /// Returns the labels as a one-dimensional array view.
    pub fn labels_view(&self) -> ArrayView1<'_, i64> {
        ArrayView1::from(self.labels())
    }

    /// Returns the images as an array view on the slab itself: `[batch, 3, height, width]` for `Layout::Nchw`,
    /// `[batch, height, width, 3]` for `Layout::Nhwc`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `T` is not the loader's element type.
    pub fn images<T: Element>(&self) -> Result<ArrayView4<'_, T>> {
        let [n, a, b, c] = self.shape();
        ArrayView4::from_shape((n, a, b, c), self.image_elements()?)
            .map_err(|error| Error::new(ErrorKind::Collate, error.to_string()).with_source(error))
    }

    /// Returns the images as one flat slice, in the order of [`shape`](Batch::shape).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `T` is not the loader's element type.
    pub fn image_elements<T: Element>(&self) -> Result<&[T]> {
        let dtype = self.dtype();
        if dtype != T::DTYPE {
            return Err(Error::new(ErrorKind::Config, format!("the batch holds {dtype}, not {}", T::DTYPE))
                .with_remedy(format!(
                    "ask for images::<{}>(), or build with .output(DType::...)",
                    rust_name(dtype)
                )));
        }
        Ok(bytemuck::cast_slice(self.image_bytes()))
    }

    /// Returns the images as bytes.
    pub fn image_bytes(&self) -> &[u8] {
        self.field(SlabLayout::IMAGE)
    }

    /// Returns the bytes of one sample's image.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    pub fn sample_bytes(&self, slot: usize) -> &[u8] {
        assert!(slot < self.len(), "slot {slot} of a batch of {}", self.len());
        self.held.view.bytes(SlabLayout::IMAGE, slot, 1)
    }

    /// Returns the shape of the image array: batch size and the three axes of the layout.
    pub fn shape(&self) -> [usize; 4] {
        let shape = &self.layout().fields[SlabLayout::IMAGE].spec.shape;
        [self.len(), shape[0], shape[1], shape[2]]
    }

    /// Returns the element type of the images.
    pub fn dtype(&self) -> DType {
        self.layout().fields[SlabLayout::IMAGE].spec.dtype
    }

    fn layout(&self) -> &SlabLayout {
        self.held.view.memory().layout()
    }

    fn field(&self, field: usize) -> &[u8] {
        self.held.view.bytes(field, 0, self.len())
    }
}

fn rust_name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "u8",
        DType::F16 => "half::f16",
        DType::BF16 => "half::bf16",
        DType::F32 => "f32",
        DType::I64 => "i64",
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [n, a, b, c] = self.shape();
        let (epoch, step) = (self.epoch(), self.step());
        write!(f, "Batch {{ epoch: {epoch}, step: {step}, images: {} [{n}, {a}, {b}, {c}] }}", self.dtype())
    }
}
