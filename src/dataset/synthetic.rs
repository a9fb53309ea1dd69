//! Samples without files: for benchmarks, tests and first steps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Dataset, Payload, Record};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{Digest, SPREAD, mix};

/// The largest picture in bytes, so that a slip in the size is an error and not the end of memory.
const MAX_BYTES: u64 = 1 << 30;

/// Raw 8-bit RGB pixels that are a cheap function of the index: no files, no decoding, memory for one sample.
///
/// Sample *i* has the class `i % classes`. The pixels are noise, about as fast as memory can be written.
///
/// # Examples
/// ```
/// use forebay::dataset::{Dataset, Record, Synthetic};
///
/// let mut samples = Synthetic::new(100_000_000, 64, 48);
/// let mut record = Record::default();
/// samples.read(99_999_999, &mut record)?;
/// assert_eq!((record.bytes.len(), record.label), (64 * 48 * 3, 9));
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synthetic {
    len: u64,
    width: u32,
    height: u32,
    classes: u64,
    delay: Duration,
}

impl Synthetic {
    /// Creates `len` samples of `width` columns and `height` rows in ten classes.
    pub const fn new(len: u64, width: u32, height: u32) -> Self {
        Synthetic { len, width, height, classes: 10, delay: Duration::ZERO }
    }

    /// Sets the number of classes; 0 counts as 1.
    #[must_use]
    pub const fn with_classes(self, classes: u64) -> Self {
        Synthetic { classes: if classes == 0 { 1 } else { classes }, ..self }
    }

    /// Makes each read sleep for `delay`, as slow storage would.
    #[must_use]
    pub const fn with_delay(self, delay: Duration) -> Self {
        Synthetic { delay, ..self }
    }
}

#[typetag::serde]
impl Dataset for Synthetic {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&mut self, index: u64, record: &mut Record) -> Result<()> {
        let Synthetic { len, width, height, classes, delay } = *self;
        if index >= len {
            return Err(Error::new(ErrorKind::Dataset, format!("there is no sample {index} of {len}")));
        }
        let size = u64::from(width) * u64::from(height);
        if size > MAX_BYTES / 3 {
            let message = format!("pictures of {width} x {height} pixels are above {MAX_BYTES} bytes");
            return Err(Error::new(ErrorKind::Limit, message).with_index(index));
        }
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        fill(index, size as usize * 3, &mut record.bytes);
        record.payload = Payload::Rgb8 { width, height };
        record.label = (index % classes) as i64;
        Ok(())
    }

    fn image_size(&self) -> Option<(u32, u32)> {
        Some((self.width, self.height))
    }

    fn fingerprint(&self) -> u64 {
        let Synthetic { len, width, height, classes, .. } = *self;
        Digest::new("Synthetic").word(len).word(width.into()).word(height.into()).word(classes).finish()
    }
}

/// Fills `bytes` with `len` bytes of a Weyl sequence that begins where the index says.
fn fill(index: u64, len: usize, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(len, 0);
    let mut word = mix(index.wrapping_add(SPREAD));
    let mut parts = bytes.chunks_exact_mut(8);
    for part in &mut parts {
        word = word.wrapping_add(SPREAD);
        part.copy_from_slice(&(word ^ (word >> 29)).to_le_bytes());
    }
    let last = mix(word).to_le_bytes();
    let rest = parts.into_remainder();
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(index: u64) -> Record {
        let mut record = Record::default();
        Synthetic::new(1000, 17, 5).read(index, &mut record).unwrap();
        record
    }

    #[test]
    fn pixels_are_a_function_of_the_index() {
        assert_eq!(read(7).bytes, read(7).bytes);
        assert_ne!(read(7).bytes, read(8).bytes);
        assert_eq!(read(7).payload, Payload::Rgb8 { width: 17, height: 5 });
        assert_eq!(read(7).bytes.len(), 17 * 5 * 3);
        assert_eq!(read(999).label, 9);
    }

    #[test]
    fn impossible_samples_are_errors() {
        let mut record = Record::default();
        let error = Synthetic::new(3, 4, 4).read(3, &mut record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dataset);
        let error = Synthetic::new(3, u32::MAX, u32::MAX).read(0, &mut record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }

    #[test]
    fn serialisation_keeps_it() {
        let samples: Box<dyn Dataset> =
            Box::new(Synthetic::new(5, 6, 7).with_delay(Duration::from_millis(5)));
        let text = serde_json::to_string(&samples).unwrap();
        let back: Box<dyn Dataset> = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{samples:?}"), format!("{back:?}"));
        assert_eq!(samples.fingerprint(), back.fingerprint());
    }
}
