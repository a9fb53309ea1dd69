//! What a picture may cost, checked on what its header declares, before anything is allocated for it.

use serde::{Deserialize, Serialize};

use super::{Format, Size};
use crate::error::{Error, ErrorKind, Result};

/// What a picture may cost at most. Every limit is checked on *declared* sizes, before memory is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Columns of the stored picture. Default 16,384.
    pub max_width: u32,
    /// Rows of the stored picture. Default 16,384.
    pub max_height: u32,
    /// Columns times rows. Default 256 Mi pixels.
    pub max_pixels: u64,
    /// Bytes of memory that decoding the whole picture takes: the pixels, and what is held beside them (coefficients of
    /// a progressive JPEG, samples before their conversion, pixels before they are turned upright). Default 1 GiB.
    pub max_bytes: u64,
    /// Bytes of the encoded picture. Default 256 MiB.
    pub max_encoded_bytes: u64,
    /// Scans of a JPEG: each one costs a pass over the whole picture, however few bytes it has. Default 100; the
    /// progressive files that encoders make have about 10.
    pub max_scans: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_width: 16_384,
            max_height: 16_384,
            max_pixels: 256 << 20,
            max_bytes: 1 << 30,
            max_encoded_bytes: 256 << 20,
            max_scans: 100,
        }
    }
}

impl Limits {
    /// Checks the length of an encoded picture.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when it is above [`max_encoded_bytes`](Limits::max_encoded_bytes).
    pub fn check_encoded(&self, bytes: u64) -> Result<()> {
        within("encoded picture", bytes, "bytes", self.max_encoded_bytes, "max_encoded_bytes")
    }

    /// Checks the declared size of a picture as stored.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when width, height or their product is above its limit, [`ErrorKind::Decode`] when there
    /// are no pixels.
    pub fn check_size(&self, format: Format, size: Size) -> Result<()> {
        let Size { width, height } = size;
        if size.pixels() == 0 {
            let text = format!("{format}: the header declares an empty picture ({width}x{height})");
            return Err(Error::new(ErrorKind::Decode, text));
        }
        let what = |side| format!("{format}: declared {side} of {width}x{height}");
        within(what("width"), width.into(), "columns", self.max_width.into(), "max_width")?;
        within(what("height"), height.into(), "rows", self.max_height.into(), "max_height")?;
        within(what("size"), size.pixels(), "pixels", self.max_pixels, "max_pixels")
    }

    /// Checks the memory that decoding will take.
    pub(super) fn check_memory(&self, format: Format, size: Size, bytes: u64) -> Result<()> {
        let what = format!("{format}: memory to decode {}x{}", size.width, size.height);
        within(what, bytes, "bytes", self.max_bytes, "max_bytes")
    }
}

fn within(what: impl std::fmt::Display, value: u64, unit: &str, limit: u64, setting: &str) -> Result<()> {
    if value <= limit {
        return Ok(());
    }
    let text = format!("{what}: {value} {unit}, the limit is {limit}");
    Err(Error::new(ErrorKind::Limit, text)
        .with_remedy(format!("set decode.limits.{setting} to {value} or more if such pictures are wanted")))
}

/// Refuses a file that cannot hold the picture it declares, since its format needs `least` bytes for that.
pub(super) fn check_presence(format: Format, size: Size, least: u64, present: usize) -> Result<()> {
    if least <= present as u64 {
        return Ok(());
    }
    let Size { width, height } = size;
    let text = format!("{format}: {width}x{height} needs at least {least} bytes, the file has {present}");
    Err(Error::new(ErrorKind::Decode, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_with_its_value_and_setting() {
        let limits = Limits::default();
        let check = |width, height| limits.check_size(Format::Png, Size::new(width, height));
        assert!(check(16_384, 16_384).is_ok());
        for (result, setting) in [
            (check(16_385, 1), "limits.max_width to 16385"),
            (check(1, 16_385), "limits.max_height to 16385"),
            (limits.check_encoded((256 << 20) + 1), "limits.max_encoded_bytes to 268435457"),
            (
                limits.check_memory(Format::Png, Size::new(1, 1), (1 << 30) + 1),
                "limits.max_bytes to 1073741825",
            ),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Limit);
            assert!(error.to_string().contains(setting), "{error}");
        }
        let narrow = Limits { max_pixels: 99, ..Limits::default() };
        let error = narrow.check_size(Format::Png, Size::new(10, 10)).unwrap_err();
        assert!(error.to_string().contains("100 pixels, the limit is 99"), "{error}");
        assert_eq!(check(0, 7).unwrap_err().kind(), ErrorKind::Decode);
    }

    #[test]
    fn limits_come_through_serde_and_unknown_keys_are_refused() {
        let limits: Limits = serde_json::from_str(r#"{"max_width": 7}"#).unwrap();
        assert_eq!(limits, Limits { max_width: 7, ..Limits::default() });
        assert!(serde_json::from_str::<Limits>(r#"{"max_widht": 7}"#).is_err());
    }
}
