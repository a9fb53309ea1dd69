//! Which format the bytes are in, told by their content alone.

use std::fmt;

use image::ImageFormat;

use crate::error::{Error, ErrorKind, Result};

/// A format that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG, with JFIF, EXIF, Adobe or no header; also the first picture of an MPO.
    Jpeg,
    /// PNG; of an animated one the default image.
    Png,
    /// GIF, first frame.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// WebP, lossy and lossless, first frame.
    WebP,
    /// TIFF and BigTIFF, first page.
    Tiff,
    /// PBM, PGM, PPM and PAM, ASCII and binary.
    Pnm,
    /// Quite OK Image.
    Qoi,
    /// Windows icon, the largest picture.
    Ico,
    /// DirectDraw surface, DXT1 to DXT5.
    Dds,
    /// farbfeld.
    Farbfeld,
}

/// First bytes of what is recognised only to name it in the message, with how many bytes come before them.
const UNSUPPORTED: &[(usize, &[u8], &str)] = &[
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftyphei", "HEIF"),
    (4, b"ftypmif1", "HEIF"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"#?RADIANCE", "Radiance HDR (floating-point pixels)"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR (floating-point pixels)"),
    (0, b"PF\n", "PFM (floating-point pixels)"),
    (0, b"<svg", "SVG"),
    (0, b"<?xml", "SVG or other XML"),
    (0, b"8BPS", "Photoshop"),
];

impl Format {
    /// Returns the format of an encoded picture.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] when it is none that can be decoded; the message names it where it is known.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        Ok(match image::guess_format(bytes) {
            Ok(ImageFormat::Jpeg) => Format::Jpeg,
            Ok(ImageFormat::Png) => Format::Png,
            Ok(ImageFormat::Gif) => Format::Gif,
            Ok(ImageFormat::Bmp) => Format::Bmp,
            Ok(ImageFormat::WebP) => Format::WebP,
            Ok(ImageFormat::Tiff) => Format::Tiff,
            Ok(ImageFormat::Pnm) => Format::Pnm,
            Ok(ImageFormat::Qoi) => Format::Qoi,
            Ok(ImageFormat::Ico) => Format::Ico,
            Ok(ImageFormat::Dds) => Format::Dds,
            Ok(ImageFormat::Farbfeld) => Format::Farbfeld,
            // Big-TIFF differs from TIFF in its version number, 43.
            _ if bytes.starts_with(b"II+\0") || bytes.starts_with(b"MM\0+") => Format::Tiff,
            _ => return Err(unknown(bytes)),
        })
    }

    pub(super) const fn to_image(self) -> ImageFormat {
        match self {
            Format::Jpeg => ImageFormat::Jpeg,
            Format::Png => ImageFormat::Png,
            Format::Gif => ImageFormat::Gif,
            Format::Bmp => ImageFormat::Bmp,
            Format::WebP => ImageFormat::WebP,
            Format::Tiff => ImageFormat::Tiff,
            Format::Pnm => ImageFormat::Pnm,
            Format::Qoi => ImageFormat::Qoi,
            Format::Ico => ImageFormat::Ico,
            Format::Dds => ImageFormat::Dds,
            Format::Farbfeld => ImageFormat::Farbfeld,
        }
    }

    /// Returns the name that messages use, such as `png`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "jpeg",
            Format::Png => "png",
            Format::Gif => "gif",
            Format::Bmp => "bmp",
            Format::WebP => "webp",
            Format::Tiff => "tiff",
            Format::Pnm => "pnm",
            Format::Qoi => "qoi",
            Format::Ico => "ico",
            Format::Dds => "dds",
            Format::Farbfeld => "farbfeld",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn unknown(bytes: &[u8]) -> Error {
    let named =
        UNSUPPORTED.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|b| b.starts_with(magic)));
    let text = match named {
        _ if bytes.is_empty() => "the file is empty".to_owned(),
        _ if bytes.iter().all(|byte| *byte == 0) => format!("all {} bytes are zero", bytes.len()),
        Some((_, _, name)) => format!("{name} is not supported"),
        None => format!("not a known picture format (starts with {:02x?})", &bytes[..bytes.len().min(8)]),
    };
    Error::new(ErrorKind::Decode, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_the_format_and_what_is_not_one_is_named() {
        assert_eq!(Format::of(b"\xff\xd8\xff\xe0").unwrap(), Format::Jpeg);
        assert_eq!(Format::of(b"MM\0+\0\x08").unwrap(), Format::Tiff);
        for (bytes, text) in [
            (&b""[..], "the file is empty"),
            (&[0; 64], "all 64 bytes are zero"),
            (b"\0\0\0\x20ftypavif", "AVIF is not supported"),
            (b"\xff\x0a\x99", "JPEG XL is not supported"),
            (b"hello", "starts with [68, 65, 6c, 6c, 6f]"),
        ] {
            let error = Format::of(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.message().contains(text), "{error}");
        }
    }
}
