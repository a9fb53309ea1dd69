//! JPEG by libjpeg-turbo: whole pictures and regions, as stored.

use super::decoder::kept;
use super::exif::{self, Frame, Markers};
use super::turbo::{Codec, PixelFormat};
use super::{Damage, DecodeOptions, Limits, Rect, Size};
use crate::error::{Error, ErrorKind, Result};

/// libjpeg's text when the bytes end before the end marker.
const ENDED: &str = "Premature end of JPEG file";

/// The JPEG decoder of one worker.
#[derive(Debug)]
pub(super) struct Jpeg {
    codec: Codec,
    limits: Limits,
    damage: Damage,
    /// A file without an end marker, with one added.
    mended: Vec<u8>,
}

impl Jpeg {
    pub(super) fn new(options: &DecodeOptions) -> Result<Jpeg> {
        let (limits, damage) = (options.limits.clone(), options.damage);
        Ok(Jpeg { codec: Codec::new(&limits)?, limits, damage, mended: Vec::new() })
    }

    /// Decodes at least `wanted` into `pixels` as RGB and returns what they cover. `cmyk` is scratch.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        stored: Size,
        wanted: Rect,
        pixels: &mut Vec<u8>,
        cmyk: &mut Vec<u8>,
    ) -> Result<Rect> {
        let frame = Markers::read(bytes).frame.filter(|frame| frame.size == stored);
        let Some(frame) = frame else {
            return Err(Error::new(ErrorKind::Decode, "jpeg: the header is that of another picture"));
        };
        let format = if frame.components == 4 { PixelFormat::Cmyk } else { PixelFormat::Rgb };
        let target = if format == PixelFormat::Cmyk { &mut *cmyk } else { &mut *pixels };
        match self.decode_frame(bytes, &frame, wanted, format, target) {
            Ok(rect) => {
                if format == PixelFormat::Cmyk {
                    cmyk_to_rgb(cmyk, pixels);
                }
                Ok(rect)
            }
            Err(text) => {
                // A failed call may leave the handle in the middle of a file.
                self.codec = Codec::new(&self.limits)?;
                self.mended = kept(std::mem::take(&mut self.mended));
                Err(self.refused(text))
            }
        }
    }

    fn decode_frame(
        &mut self,
        bytes: &[u8],
        frame: &Frame,
        wanted: Rect,
        format: PixelFormat,
        target: &mut Vec<u8>,
    ) -> std::result::Result<Rect, String> {
        let mut opened = self.codec.open(bytes)?;
        let whole = Rect::whole(frame.size);
        let rect = if wanted == whole || !opened.can_crop() { whole } else { frame.widened(wanted) };
        target.resize(rect.size().pixels() as usize * format.bytes(), 0);
        let mut warning = opened.decompress(rect, format, target)?;
        let mut noted = opened.noted;
        if self.damage == Damage::Ignore {
            return Ok(rect);
        }
        if warning == ENDED {
            // Decoded once more with an end marker added. libjpeg tells only its first warning, and that the end marker is
            // missing says nothing of whether scan data is missing, too. With the marker in place, only the latter warns.
            self.mended.clear();
            self.mended.extend_from_slice(bytes);
            self.mended.extend_from_slice(&[0xff, 0xd9]);
            let mut opened = self.codec.open(&self.mended)?;
            warning = opened.decompress(rect, format, target)?;
            noted = opened.noted;
            if warning.ends_with("premature end of data segment") {
                return Err(format!("the file is cut off after {} bytes ({warning})", bytes.len()));
            }
        }
        if is_harmless(&warning, &noted, bytes) { Ok(rect) } else { Err(warning) }
    }

    fn refused(&self, text: String) -> Error {
        let setting = if text.ends_with(" scans") {
            format!("max_scans above {}", self.limits.max_scans)
        } else if text.contains("Memory limit exceeded") {
            format!("max_bytes above {}", self.limits.max_bytes)
        } else {
            return Error::new(ErrorKind::Decode, format!("jpeg: {text}"));
        };
        Error::new(ErrorKind::Limit, format!("jpeg: {text}"))
            .with_remedy(format!("set decode.limits.{setting} if such pictures are wanted"))
    }
}

impl Frame {
    /// Returns `rect` grown to whole iMCUs and by some more on each side, since what lies at the edge of a decoded region is
    /// upsampled as if it were the edge of the picture. Progressive files may be smoothed with up to two blocks of neighbours
    /// (libjpeg-turbo's block smoothing looks at 5x5), so they get more.
    fn widened(&self, rect: Rect) -> Rect {
        let margin = if self.buffered() { 3 } else { 1 };
        let grown = |first: u32, end: u32, unit: u32, size: u32| {
            let unit = unit.max(8);
            let first = (first / unit).saturating_sub(margin) * unit;
            (first, (end.div_ceil(unit) + margin).saturating_mul(unit).min(size) - first)
        };
        let (left, width) = grown(rect.left, rect.right(), self.imcu.width, self.size.width);
        let (top, height) = grown(rect.top, rect.bottom(), self.imcu.height, self.size.height);
        Rect { left, top, width, height }
    }
}

/// Returns whether a warning of the decoder says nothing against the pixels. `noted` is the header's own warning (an unknown
/// Adobe transform or JFIF version, stray bytes between segments).
fn is_harmless(warning: &str, noted: &str, bytes: &[u8]) -> bool {
    warning.is_empty() || warning == noted || is_padding(warning, bytes).unwrap_or(false)
}

/// Returns whether the warning is about padding before the end marker: one or two bytes, or any number of the same. It comes
/// when every row has been decoded without complaint, and nothing can follow it. Bytes that vary are scan data that a
/// decoder which lost its place left over.
fn is_padding(warning: &str, bytes: &[u8]) -> Option<bool> {
    let text = warning.strip_suffix(" extraneous bytes before marker 0xd9")?;
    let count: usize = text.rsplit(' ').next()?.parse().ok()?;
    let end = exif::end_marker(bytes)?;
    let stray = bytes.get(end.checked_sub(count)?..end)?;
    Some(count <= 2 || stray.iter().all(|byte| *byte == stray[0]))
}

/// Adobe stores ink inverted, 255 for none, and libjpeg hands it out as stored: the product of two such is light.
fn cmyk_to_rgb(cmyk: &[u8], rgb: &mut Vec<u8>) {
    rgb.resize(cmyk.len() / 4 * 3, 0);
    let (rgb, _) = rgb.as_chunks_mut::<3>();
    for (to, [c, m, y, k]) in rgb.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        *to = [c, m, y].map(|ink| ((u32::from(*ink) * u32::from(*k) + 127) / 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use turbojpeg_sys as tj;

    use super::super::turbo::encode::{Style, encode};
    use super::*;
    use crate::decode::{Decoder, Image, Orientation, Request};

    const SAMPLINGS: [tj::TJSAMP; 7] = [
        tj::TJSAMP_TJSAMP_444,
        tj::TJSAMP_TJSAMP_422,
        tj::TJSAMP_TJSAMP_420,
        tj::TJSAMP_TJSAMP_440,
        tj::TJSAMP_TJSAMP_411,
        tj::TJSAMP_TJSAMP_441,
        tj::TJSAMP_TJSAMP_GRAY,
    ];

    fn styles() -> impl Iterator<Item = Style> {
        SAMPLINGS.into_iter().flat_map(|subsampling| {
            [(false, 0), (true, 0), (false, 1)].map(|(progressive, restart_rows)| Style {
                subsampling,
                progressive,
                restart_rows,
            })
        })
    }

    /// Puts an EXIF segment with an orientation behind the start marker.
    fn with_orientation(jpeg: &[u8], number: u8) -> Vec<u8> {
        let exif =
            [b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[number][..], b"\0\0"].concat();
        let length = (exif.len() as u16 + 2).to_be_bytes();
        [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat()
    }

    fn cut(image: &Image, covers: Rect, rect: Rect) -> Vec<u8> {
        (rect.top..rect.bottom())
            .flat_map(|y| {
                let start = ((y - covers.top) * image.width + rect.left - covers.left) as usize * 3;
                image.pixels[start..start + rect.width as usize * 3].iter().copied()
            })
            .collect()
    }

    /// Decodes several regions and compares each with the same part of the whole. Returns how many were decoded in part.
    fn compare_regions(bytes: &[u8], what: &str) -> usize {
        compare_regions_under(DecodeOptions::default(), bytes, what)
    }

    fn compare_regions_under(options: DecodeOptions, bytes: &[u8], what: &str) -> usize {
        let mut decoder = Decoder::new(&options).unwrap();
        let header = decoder.header(bytes).unwrap();
        let (mut whole, mut part) = (Image::default(), Image::default());
        decoder.decode(bytes, &header, None, &mut whole).unwrap();
        let Size { width, height } = header.full;
        let fractions = [(0, 3), (2, 9), (4, 6), (7, 10), (9, 10), (5, 6)];
        let mut partial = 0;
        for (x0, x1) in fractions {
            for (y0, y1) in fractions {
                let (left, top) = (width * x0 / 10, height * y0 / 10);
                let region = Rect {
                    left,
                    top,
                    width: (width * x1 / 10).max(left + 1) - left,
                    height: (height * y1 / 10).max(top + 1) - top,
                };
                let request = Request { region, target: region.size() };
                let decoded = decoder.decode(bytes, &header, Some(&request), &mut part).unwrap();
                assert_eq!((decoded.full, decoded.covers.size()), (header.full, part.size()));
                assert!(decoded.covers.contains(region), "{what}: {decoded:?} for {region:?}");
                let same =
                    cut(&part, decoded.covers, region) == cut(&whole, Rect::whole(header.full), region);
                assert!(same, "{what}: {region:?} of {:?} differs", header.full);
                partial += usize::from(decoded.covers.size() != header.full);
            }
        }
        partial
    }

    #[test]
    fn a_region_has_the_same_bytes_as_the_whole_for_every_sampling_and_size() {
        let mut partial = 0;
        for style in styles() {
            for (width, height) in [(1, 1), (17, 13), (64, 1), (3, 70), (95, 97), (160, 128), (227, 149)] {
                let bytes = encode(Size::new(width, height), style);
                partial += compare_regions(&bytes, &format!("{style:?}"));
            }
        }
        assert!(partial > 1000, "only {partial} of the decodes were partial");
    }

    #[test]
    fn a_region_has_the_same_bytes_as_the_whole_in_every_orientation() {
        for subsampling in [tj::TJSAMP_TJSAMP_420, tj::TJSAMP_TJSAMP_422] {
            for number in 1..=8 {
                let style = Style { subsampling, progressive: false, restart_rows: 0 };
                let bytes = with_orientation(&encode(Size::new(150, 93), style), number);
                assert!(compare_regions(&bytes, &format!("orientation {number}")) > 10);
            }
        }
    }

    /// Scans that are missing make libjpeg smooth over blocks, which looks further around than upsampling does.
    #[test]
    fn a_region_of_an_unfinished_progressive_file_has_the_same_bytes() {
        for subsampling in SAMPLINGS {
            let style = Style { subsampling, progressive: true, restart_rows: 0 };
            let bytes = encode(Size::new(227, 149), style);
            let scans: Vec<usize> =
                bytes.windows(2).enumerate().filter(|(_, w)| *w == [0xff, 0xda]).map(|(at, _)| at).collect();
            for scan in &scans[1..] {
                // Tables for a scan stand before it; cut before them.
                let tables = bytes[..*scan].windows(2).rposition(|w| w[0] == 0xff && w[1] == 0xc4);
                let unfinished = [&bytes[..tables.unwrap_or(*scan).min(*scan)], &[0xff, 0xd9]].concat();
                compare_regions(&unfinished, &format!("{subsampling} cut at {scan}"));
            }
        }
    }

    /// Run with `JSIMD_FORCENONE=1` or `JSIMD_FORCESSE2=1` too: libjpeg-turbo's SIMD paths are exact for the accurate DCT and
    /// fancy upsampling. The number is the FNV-1a hash of what libjpeg-turbo 3.1.0 gives.
    #[test]
    fn pixels_are_the_same_on_every_simd_level() {
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let mut image = Image::default();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for style in styles() {
            let bytes = encode(Size::new(227, 149), style);
            let header = decoder.header(&bytes).unwrap();
            decoder.decode(&bytes, &header, None, &mut image).unwrap();
            for byte in &image.pixels {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(hash, 0x0c6f_2dcc_b4e0_a87c, "{hash:#x}");
    }

    #[test]
    fn orientation_1_and_none_give_the_same_and_6_is_a_quarter_turn_clockwise() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_444, progressive: false, restart_rows: 0 };
        let plain = encode(Size::new(40, 24), style);
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let mut decode = |bytes: &[u8]| {
            let (header, mut image) = (decoder.header(bytes).unwrap(), Image::default());
            decoder.decode(bytes, &header, None, &mut image).unwrap();
            (header, image)
        };
        let (_, upright) = decode(&plain);
        assert_eq!(decode(&with_orientation(&plain, 1)).1, upright);
        let (header, turned) = decode(&with_orientation(&plain, 6));
        assert_eq!((header.full, header.orientation.exif()), (Size::new(24, 40), 6));
        let mut expected = vec![0; turned.pixels.len()];
        Orientation::from_exif(6).unwrap().turn(&upright.pixels, upright.size(), &mut expected);
        assert_eq!(turned.pixels, expected);
        assert_eq!(turned.pixels[..3], upright.pixels[23 * 40 * 3..][..3]);
    }

    #[test]
    fn a_missing_end_marker_and_trailing_bytes_are_fine_but_missing_rows_are_not() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_420, progressive: false, restart_rows: 0 };
        for progressive in [false, true] {
            let bytes = encode(Size::new(227, 149), Style { progressive, ..style });
            let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
            let header = decoder.header(&bytes).unwrap();
            let (mut whole, mut image) = (Image::default(), Image::default());
            decoder.decode(&bytes, &header, None, &mut whole).unwrap();
            let end = bytes.len() - 2;
            for fine in [&bytes[..end + 1], &bytes[..end], &[&bytes[..], &[7; 99]].concat()] {
                decoder.decode(fine, &header, None, &mut image).unwrap();
                assert!(image == whole);
            }
            for length in [end - 20, bytes.len() / 2] {
                let error = decoder.decode(&bytes[..length], &header, None, &mut image).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Decode);
                assert!(error.message().contains("cut off") || progressive, "{error}");
            }
        }
    }

    #[test]
    fn damage_that_is_ignored_leaves_the_same_pixels_in_any_region() {
        let ignore = DecodeOptions { damage: Damage::Ignore, ..DecodeOptions::default() };
        for file in ["cut/in-scan.jpg", "damaged/scan.jpg"] {
            let bytes = std::fs::read(format!("datasets/broken/{file}")).unwrap();
            let mut strict = Decoder::new(&DecodeOptions::default()).unwrap();
            let header = strict.header(&bytes).unwrap();
            assert!(strict.decode(&bytes, &header, None, &mut Image::default()).is_err(), "{file}");
            compare_regions_under(ignore.clone(), &bytes, file);
        }
        for style in styles() {
            let bytes = encode(Size::new(227, 149), style);
            compare_regions_under(ignore.clone(), &bytes[..bytes.len() * 2 / 3], &format!("{style:?}"));
        }
        // Pixels in front of the cut are those of the whole file.
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_444, progressive: false, restart_rows: 0 };
        let bytes = encode(Size::new(64, 64), style);
        let mut decoder = Decoder::new(&ignore).unwrap();
        let (header, mut whole, mut cut) =
            (decoder.header(&bytes).unwrap(), Image::default(), Image::default());
        decoder.decode(&bytes, &header, None, &mut whole).unwrap();
        decoder.decode(&bytes[..bytes.len() / 2], &header, None, &mut cut).unwrap();
        assert!(cut != whole && cut.pixels[..64 * 3 * 16] == whole.pixels[..64 * 3 * 16]);
        // No picture at all is an error all the same, and so is a limit.
        let noise = std::fs::read("datasets/broken/wrong/noise.jpg").unwrap();
        assert!(decoder.header(&noise).is_err());
        let limits = Limits { max_scans: 3, ..Limits::default() };
        let mut decoder = Decoder::new(&DecodeOptions { limits, ..ignore }).unwrap();
        let bytes = encode(Size::new(64, 64), Style { progressive: true, ..style });
        let header = decoder.header(&bytes).unwrap();
        let error = decoder.decode(&bytes, &header, None, &mut cut).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }

    #[test]
    fn padding_before_the_end_marker_is_fine_but_scan_data_left_over_is_not() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_420, progressive: false, restart_rows: 0 };
        let bytes = encode(Size::new(60, 60), style);
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let (header, mut image) = (decoder.header(&bytes).unwrap(), Image::default());
        let mut decode = |stray: &[u8]| {
            let padded = [&bytes[..bytes.len() - 2], stray, &[0xff, 0xd9, 1, 2, 3, 0xff, 0xd9]].concat();
            decoder.decode(&padded, &header, None, &mut image).map(drop)
        };
        decode(&[0x5a, 0x11]).unwrap();
        decode(&[0; 300]).unwrap();
        // libjpeg itself passes over what its bit buffer has taken in already, 8 bytes at most.
        let error = decode(&std::array::from_fn::<u8, 40, _>(|i| i as u8)).unwrap_err();
        assert!(error.message().contains("extraneous bytes before marker 0xd9"), "{error}");
    }

    #[test]
    fn what_lies_below_the_region_is_not_looked_for() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_420, progressive: false, restart_rows: 0 };
        let bytes = encode(Size::new(400, 400), style);
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let (header, mut image) = (decoder.header(&bytes).unwrap(), Image::default());
        let region = Rect { left: 90, top: 20, width: 100, height: 100 };
        let request = Request { region, target: region.size() };
        let half = &bytes[..bytes.len() / 2];
        let decoded = decoder.decode(half, &header, Some(&request), &mut image).unwrap();
        assert_eq!(decoded.covers, Rect { left: 64, top: 0, width: 144, height: 144 });
        assert!(decoder.decode(half, &header, None, &mut image).is_err());
    }

    #[test]
    fn more_scans_than_the_limit_are_refused_by_name() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_420, progressive: true, restart_rows: 0 };
        let bytes = encode(Size::new(64, 64), style);
        let limits = Limits { max_scans: 3, ..Limits::default() };
        let mut decoder = Decoder::new(&DecodeOptions { limits, ..DecodeOptions::default() }).unwrap();
        let header = decoder.header(&bytes).unwrap();
        let error = decoder.decode(&bytes, &header, None, &mut Image::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.to_string().contains("limits.max_scans above 3"), "{error}");
    }

    #[test]
    fn a_header_of_another_picture_is_refused() {
        let style = Style { subsampling: tj::TJSAMP_TJSAMP_420, progressive: false, restart_rows: 0 };
        let (small, large) = (encode(Size::new(9, 9), style), encode(Size::new(99, 99), style));
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let header = decoder.header(&small).unwrap();
        let error = decoder.decode(&large, &header, None, &mut Image::default()).unwrap_err();
        assert!(error.message().contains("another picture"), "{error}");
    }
}
