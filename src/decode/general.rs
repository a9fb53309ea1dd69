//! Every format but JPEG, by the `image` crate, and how its pixel types become 8-bit RGB.

use std::io::Cursor;

use image::{ColorType, ExtendedColorType, ImageDecoder, ImageError, ImageReader};

use super::decoder::Info;
use super::{Format, Header, Limits, Orientation, Size};
use crate::error::{Error, ErrorKind, Result};

/// Reads the header.
pub(super) fn info(bytes: &[u8], format: Format, limits: &Limits) -> Result<Info> {
    let mut decoder = open(bytes, format, limits)?;
    let stored = size_of(&decoder);
    limits.check_size(format, stored)?;
    let color = decoder.color_type();
    if rgb_bytes(color).is_none() {
        let text = format!("{format}: {color:?} pixels have no agreed 8-bit form");
        return Err(Error::new(ErrorKind::Decode, text));
    }
    let pixels = stored.pixels();
    let samples = pixels.saturating_mul(color.bytes_per_pixel().into());
    // These hold the whole picture in a form of their own before they hand it over.
    let own = if matches!(format, Format::Gif | Format::WebP | Format::Tiff) {
        samples.max(pixels.saturating_mul(4))
    } else {
        0
    };
    let converted = if color == ColorType::Rgb8 { 0 } else { pixels.saturating_mul(3) };
    Ok(Info {
        stored,
        // Damaged metadata is no reason to refuse a picture.
        orientation: decoder.orientation().ok().and_then(|o| Orientation::from_exif(o.to_exif())),
        memory: samples.saturating_add(own).saturating_add(converted),
        least_bytes: least_bytes(bytes, format, &decoder),
    })
}

/// Decodes the whole picture into `pixels` (RGB, as stored); `raw` is scratch.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    limits: &Limits,
    pixels: &mut Vec<u8>,
    raw: &mut Vec<u8>,
) -> Result<()> {
    let format = header.format;
    let decoder = open(bytes, format, limits)?;
    let (size, color) = (size_of(&decoder), decoder.color_type());
    if size != header.stored() {
        return Err(Error::new(
            ErrorKind::Decode,
            format!("{format}: the header is that of another picture"),
        ));
    }
    // The header's check has bounded this product.
    let count = size.pixels() as usize;
    pixels.resize(3 * count, 0);
    if color == ColorType::Rgb8 {
        return decoder.read_image(pixels).map_err(|error| refused(format, error));
    }
    raw.resize(count * usize::from(color.bytes_per_pixel()), 0);
    decoder.read_image(raw).map_err(|error| refused(format, error))?;
    let Some(places) = rgb_bytes(color) else {
        return Err(Error::new(ErrorKind::Decode, format!("{format}: {color:?} pixels are not supported")));
    };
    let (out, _) = pixels.as_chunks_mut::<3>();
    for (to, from) in out.iter_mut().zip(raw.chunks_exact(usize::from(color.bytes_per_pixel()))) {
        *to = places.map(|place| from[place]);
    }
    Ok(())
}

fn open<'a>(bytes: &'a [u8], format: Format, limits: &Limits) -> Result<impl ImageDecoder + 'a> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format.to_image());
    let mut bounds = image::Limits::default();
    // Width and height are checked by `Limits::check_size`, whose message says more.
    (bounds.max_image_width, bounds.max_image_height) = (None, None);
    bounds.max_alloc = Some(limits.max_bytes);
    reader.limits(bounds);
    reader.into_decoder().map_err(|error| refused(format, error))
}

fn size_of(decoder: &impl ImageDecoder) -> Size {
    let (width, height) = decoder.dimensions();
    Size::new(width, height)
}

fn refused(format: Format, error: ImageError) -> Error {
    match error {
        ImageError::Limits(_) => Error::new(ErrorKind::Limit, format!("{format}: {error}"))
            .with_remedy("raise limits.max_bytes if such pictures are wanted"),
        _ => Error::new(ErrorKind::Decode, format!("{format}: {error}")),
    }
}

/// Returns which bytes of a pixel are its R, G and B. Of a 16-bit sample it is the more significant byte, `v >> 8`.
/// `None` for floating-point pixels.
fn rgb_bytes(color: ColorType) -> Option<[usize; 3]> {
    let high = if cfg!(target_endian = "little") { 1 } else { 0 };
    Some(match color {
        ColorType::L8 | ColorType::La8 => [0; 3],
        ColorType::Rgb8 | ColorType::Rgba8 => [0, 1, 2],
        ColorType::L16 | ColorType::La16 => [high; 3],
        ColorType::Rgb16 | ColorType::Rgba16 => [high, 2 + high, 4 + high],
        _ => return None,
    })
}

/// Returns how many bytes a picture of this size takes at least, by what its format can express; 0 where a few bytes may stand
/// for any number of pixels.
fn least_bytes(bytes: &[u8], format: Format, decoder: &impl ImageDecoder) -> u64 {
    let size = size_of(decoder);
    let pixels = size.pixels();
    let stored = decoder.original_color_type();
    match format {
        Format::Farbfeld => pixels.saturating_mul(8),
        // Binary bitmaps are packed and ASCII ones may be written without spaces; all others have a byte a sample.
        Format::Pnm if bytes.starts_with(b"P4") => pixels / 8,
        Format::Pnm if stored == ExtendedColorType::L1 => pixels,
        Format::Pnm => pixels.saturating_mul(decoder.color_type().channel_count().into()),
        Format::Bmp => bmp_bytes(bytes, size),
        Format::Qoi => 14 + pixels / 62, // the longest run in a byte
        // A row has a filter byte before its samples; deflate's longest match, 258 bytes, takes two bits (zlib's own bound, 1032).
        Format::Png => {
            size.height as u64 * (1 + size.width as u64 * u64::from(stored.bits_per_pixel()) / 8) / 1032
        }
        _ => 0,
    }
}

/// Returns the bytes of an uncompressed bitmap's rows, 0 when it is compressed.
fn bmp_bytes(bytes: &[u8], size: Size) -> u64 {
    let word = |at: usize| bytes.get(at..at + 2).map(|b| u64::from(u16::from_le_bytes([b[0], b[1]])));
    let (Some(bits), Some(compression)) = (word(28), word(30)) else { return 0 };
    let old = word(14) == Some(12); // OS/2's header has 16-bit sizes and cannot be compressed
    let bits = if old { word(24).unwrap_or(0) } else { bits };
    let plain = old || matches!(compression, 0 | 3);
    if plain { (size.width as u64 * bits).div_ceil(32) * 4 * size.height as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_16_bits_give_their_high_byte() {
        let bytes: Vec<u8> = [0x1234u16, 0xfedc, 0x00ff].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let rgb = rgb_bytes(ColorType::Rgb16).unwrap().map(|place| bytes[place]);
        assert_eq!(rgb, [0x12, 0xfe, 0x00]);
        assert_eq!(rgb_bytes(ColorType::La16).unwrap().map(|place| bytes[place]), [0x12; 3]);
        assert!(rgb_bytes(ColorType::Rgb32F).is_none());
    }
}
