//! Where each field of each slot lies in a slab. Pure arithmetic, checked against overflow.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::tensor::DType;

/// Every field starts on such a boundary: a cache line, and the widest vector register.
const FIELD_ALIGN: usize = 64;

/// Slabs are whole pages, since pages are what the kernel accounts in.
pub(crate) const PAGE: usize = 4096;

/// What a field holds for one sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldSpec {
    /// The field's name, for reports.
    pub name: String,
    /// Type of one element.
    pub dtype: DType,
    /// Shape of one sample's part; empty for a scalar.
    pub shape: Vec<usize>,
}

/// One field's place: an array over the batch, dense, without gaps between samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Field {
    /// What it holds for one sample.
    pub spec: FieldSpec,
    /// Byte offset of slot 0 in the slab.
    pub offset: usize,
    /// Bytes a slot.
    pub slot_bytes: usize,
}

/// The layout of a slab: one array per field, each dense over the batch and 64-byte aligned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlabLayout {
    /// Slots, which is samples a batch at most.
    pub batch: usize,
    /// The fields in their order in memory.
    pub fields: Vec<Field>,
    /// Size of the slab, in whole pages.
    pub bytes: usize,
}

impl SlabLayout {
    /// The field that holds pixels.
    pub(crate) const IMAGE: usize = 0;
    /// The field that holds labels.
    pub(crate) const LABEL: usize = 1;

    /// Lays out `batch` slots of `specs`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a size does not fit the address space.
    pub(crate) fn new(batch: usize, specs: Vec<FieldSpec>) -> Result<Self> {
        let too_large = || {
            Error::new(
                ErrorKind::Config,
                format!("a batch of {batch} samples does not fit the address space"),
            )
            .with_remedy("lower batch_size or the image size")
        };
        let mut fields = Vec::with_capacity(specs.len());
        let mut end = 0usize;
        for spec in specs {
            let slot_bytes = spec
                .shape
                .iter()
                .try_fold(spec.dtype.size(), |bytes, &axis| bytes.checked_mul(axis))
                .ok_or_else(too_large)?;
            let offset = end.checked_next_multiple_of(FIELD_ALIGN).ok_or_else(too_large)?;
            end = slot_bytes
                .checked_mul(batch)
                .and_then(|all| all.checked_add(offset))
                .ok_or_else(too_large)?;
            fields.push(Field { spec, offset, slot_bytes });
        }
        let bytes = end.max(1).checked_next_multiple_of(PAGE).ok_or_else(too_large)?;
        if isize::try_from(bytes).is_err() {
            return Err(too_large());
        }
        Ok(SlabLayout { batch, fields, bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(dtype: DType, shape: &[usize]) -> FieldSpec {
        FieldSpec { name: "x".into(), dtype, shape: shape.to_vec() }
    }

    #[test]
    fn a_batch_of_imagenet_crops_takes_what_arithmetic_says() {
        let layout =
            SlabLayout::new(64, vec![spec(DType::F32, &[3, 224, 224]), spec(DType::I64, &[])]).unwrap();
        let image = 64 * 3 * 224 * 224 * 4;
        assert_eq!(layout.fields[SlabLayout::LABEL].offset, image);
        assert_eq!(layout.bytes, (image + 64 * 8usize).next_multiple_of(PAGE));
    }

    #[test]
    fn an_overflow_is_a_config_error() {
        for shape in [&[usize::MAX, 2][..], &[1 << 40, 1 << 20][..]] {
            let error = SlabLayout::new(1 << 10, vec![spec(DType::F32, shape)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }

    proptest! {
        #[test]
        fn fields_are_aligned_and_never_overlap(
            batch in 1usize..300,
            shapes in prop::collection::vec((0usize..4, prop::collection::vec(0usize..40, 0..4)), 1..6),
        ) {
            let dtypes = [DType::U8, DType::F16, DType::F32, DType::I64];
            let specs = shapes.iter().map(|(dtype, shape)| spec(dtypes[*dtype], shape)).collect();
            let layout = SlabLayout::new(batch, specs).unwrap();
            let mut end = 0;
            for field in &layout.fields {
                prop_assert_eq!(field.offset % FIELD_ALIGN, 0);
                prop_assert!(field.offset >= end);
                end = field.offset + field.slot_bytes * batch;
            }
            prop_assert!(end <= layout.bytes);
            prop_assert_eq!(layout.bytes % PAGE, 0);
        }
    }
}
