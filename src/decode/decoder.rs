//! The decoder that a worker keeps: header first, pixels next.

use serde::{Deserialize, Serialize};

use super::exif::Markers;
use super::{Decoded, Format, Image, Limits, Orientation, Rect, Request, Size, general, limits};
use crate::error::{Error, ErrorKind, Result};

/// A buffer that one huge picture has grown above this is given back after it.
const KEPT_BYTES: usize = 64 << 20;

/// How pictures are decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodeOptions {
    /// Turns pictures upright by their EXIF orientation. Default true.
    pub orientation: bool,
    /// What damage to a JPEG means. Default [`Damage::Error`].
    #[serde(skip_serializing_if = "Damage::is_default")]
    // so that pipelines keep the fingerprints that they had
    pub damage: Damage,
    /// What a picture may cost.
    pub limits: Limits,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        DecodeOptions { orientation: true, damage: Damage::Error, limits: Limits::default() }
    }
}

/// What becomes of a JPEG whose scan data is damaged or missing within the part that is decoded.
///
/// Other formats, and JPEGs of which no picture can be made at all, are errors either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Damage {
    /// It is a sample error.
    #[default]
    Error,
    /// The picture is taken as libjpeg-turbo makes it: gray or wrong from the damage on, the same every time.
    Ignore,
}

impl Damage {
    fn is_default(&self) -> bool {
        *self == Damage::default()
    }
}

/// What is known of a picture before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format, told by content.
    pub format: Format,
    /// The whole picture's size, upright.
    pub full: Size,
    /// How the stored picture is turned to stand upright; [`Orientation::UPRIGHT`] where that is switched off.
    pub orientation: Orientation,
}

impl Header {
    /// Returns the size as stored, before turning.
    pub(super) const fn stored(&self) -> Size {
        self.orientation.turned(self.full)
    }
}

/// Decodes pictures one after the other. A worker owns one: it keeps the codec's state and buffers between samples.
///
/// # Examples
/// ```
/// use forebay::decode::{DecodeOptions, Decoder, Image, Size};
///
/// let mut decoder = Decoder::new(&DecodeOptions::default())?;
/// let file = b"P6 2 1 255\n\xff\0\0\0\0\xff"; // a red and a blue pixel
/// let header = decoder.header(file)?;
/// assert_eq!(header.full, Size::new(2, 1));
/// let mut image = Image::default();
/// decoder.decode(file, &header, None, &mut image)?;
/// assert_eq!(image.pixels, [255, 0, 0, 0, 0, 255]);
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    options: DecodeOptions,
    #[cfg(feature = "turbo")]
    jpeg: super::jpeg::Jpeg,
    /// Samples in the file's own type, before they become RGB.
    raw: Vec<u8>,
    /// Pixels before they are turned upright.
    stored: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] or [`ErrorKind::Config`] when the JPEG codec cannot be set up, or does not know how to ignore
    /// damage (without the feature `turbo`).
    pub fn new(options: &DecodeOptions) -> Result<Decoder> {
        if !cfg!(feature = "turbo") && options.damage == Damage::Ignore {
            return Err(Error::new(
                ErrorKind::Config,
                "decode.damage is \"ignore\": not without libjpeg-turbo",
            )
            .with_remedy("build forebay with the feature turbo, which is on by default"));
        }
        Ok(Decoder {
            options: options.clone(),
            #[cfg(feature = "turbo")]
            jpeg: super::jpeg::Jpeg::new(options)?,
            raw: Vec::new(),
            stored: Vec::new(),
        })
    }

    /// Reads format, size and orientation of an encoded picture, without decoding it.
    ///
    /// # Errors
    /// - [`ErrorKind::Limit`] when it declares more than the limits allow.
    /// - [`ErrorKind::Decode`] when it is of no known format, its header is broken, or the file is provably too short for
    ///   what the header declares.
    pub fn header(&mut self, bytes: &[u8]) -> Result<Header> {
        let limits = &self.options.limits;
        limits.check_encoded(bytes.len() as u64)?;
        let format = Format::of(bytes)?;
        let info =
            if format == Format::Jpeg { jpeg_info(bytes)? } else { general::info(bytes, format, limits)? };
        limits.check_size(format, info.stored)?;
        limits::check_presence(format, info.stored, info.least_bytes, bytes.len())?;
        let orientation = match info.orientation {
            Some(orientation) if self.options.orientation => orientation,
            _ => Orientation::UPRIGHT,
        };
        let turning =
            if orientation == Orientation::UPRIGHT { 0 } else { info.stored.pixels().saturating_mul(3) };
        limits.check_memory(format, info.stored, info.memory.saturating_add(turning))?;
        Ok(Header { format, full: orientation.turned(info.stored), orientation })
    }

    /// Decodes a picture, or the part of it that `request` will use, into `out`. `header` comes from
    /// [`header`](Decoder::header) on the same bytes. `None` asks for the whole picture.
    ///
    /// The pixels within the request's region are those of a full decode, bit by bit. On an error `out` is unspecified.
    ///
    /// # Errors
    /// - [`ErrorKind::Decode`] when the bytes that make up the decoded part are damaged or missing, unless
    ///   [`Damage::Ignore`] is set. A missing end marker and trailing bytes are fine.
    /// - [`ErrorKind::Limit`] when decoding runs into a limit that the header could not tell (scans, memory).
    /// - [`ErrorKind::Transform`] when the request's region is empty or not within the picture.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        request: Option<&Request>,
        out: &mut Image,
    ) -> Result<Decoded> {
        let whole = Rect::whole(header.full);
        let region = request.map_or(whole, |request| request.region);
        if region.size().pixels() == 0 || !whole.contains(region) {
            let text = format!("region {region:?} is not within the picture of {:?}", header.full);
            return Err(Error::new(ErrorKind::Transform, text));
        }
        let (orientation, stored) = (header.orientation, header.stored());
        let upright = orientation == Orientation::UPRIGHT;
        let wanted = orientation.to_stored(region, stored);
        let mut before = std::mem::take(&mut self.stored);
        let target = if upright { &mut out.pixels } else { &mut before };
        let covered = self.decode_stored(bytes, header, wanted, target);
        if let Ok(covered) = &covered {
            if upright {
                (out.width, out.height) = (covered.width, covered.height);
            } else {
                out.reset(orientation.turned(covered.size()));
                orientation.turn(&before, covered.size(), &mut out.pixels);
            }
        }
        self.stored = kept(before);
        self.raw = kept(std::mem::take(&mut self.raw));
        Ok(Decoded { full: header.full, covers: orientation.to_upright(covered?, stored) })
    }

    /// Decodes at least `wanted` and returns what `pixels` covers; both in stored coordinates.
    fn decode_stored(
        &mut self,
        bytes: &[u8],
        header: &Header,
        wanted: Rect,
        pixels: &mut Vec<u8>,
    ) -> Result<Rect> {
        #[cfg(feature = "turbo")]
        if header.format == Format::Jpeg {
            return self.jpeg.decode(bytes, header.stored(), wanted, pixels, &mut self.raw);
        }
        #[cfg(not(feature = "turbo"))]
        let _ = wanted;
        general::decode(bytes, header, &self.options.limits, pixels, &mut self.raw)?;
        Ok(Rect::whole(header.stored()))
    }
}

/// What a format's header tells.
pub(super) struct Info {
    pub(super) stored: Size,
    pub(super) orientation: Option<Orientation>,
    /// Bytes that decoding takes at its height, without turning.
    pub(super) memory: u64,
    /// Bytes that the format needs at least for a picture of this size.
    pub(super) least_bytes: u64,
}

/// Reads a JPEG's markers. Whether the rest makes sense is left to the decoder.
fn jpeg_info(bytes: &[u8]) -> Result<Info> {
    let markers = Markers::read(bytes);
    let Some(frame) = markers.frame else {
        return Err(Error::new(ErrorKind::Decode, "jpeg: no frame header (SOF) before the first scan"));
    };
    if !cfg!(feature = "turbo") && frame.split && !frame.progressive {
        // The `image` crate's decoder returns wrong colours for these without a word.
        let text = "jpeg: sequential with a scan for each component: not supported without libjpeg-turbo";
        return Err(Error::new(ErrorKind::Decode, text)
            .with_remedy("build forebay with the feature turbo, which is on by default"));
    }
    let pixels = frame.size.pixels();
    let samples = pixels * u64::from(frame.imcu_samples) / (frame.imcu.pixels().max(1));
    let coefficients = if frame.buffered() { 2 * samples } else { 0 };
    let cmyk = if frame.components == 4 { 4 * pixels } else { 0 };
    // Each block of 8x8 pixels takes a bit at least, for Huffman's shortest code is one; arithmetic codes can be shorter.
    let least_bytes = if frame.arithmetic { 0 } else { pixels / 64 / 8 };
    Ok(Info {
        stored: frame.size,
        orientation: markers.orientation,
        // The file is copied when its end marker is missing.
        memory: 3 * pixels + cmyk + coefficients + bytes.len() as u64,
        least_bytes,
    })
}

/// Returns the buffer, or an empty one if it has grown too large to be kept.
pub(super) fn kept(buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > KEPT_BYTES { Vec::new() } else { buffer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_can_move_to_its_worker_thread() {
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let header =
            std::thread::spawn(move || decoder.header(b"P6 2 1 255\n\xff\0\0\0\0\xff")).join().unwrap();
        assert_eq!(header.unwrap().full, Size::new(2, 1));
    }

    #[test]
    fn large_buffers_are_given_back_and_small_ones_kept() {
        assert_eq!(kept(Vec::with_capacity(KEPT_BYTES + 1)).capacity(), 0);
        assert!(kept(Vec::with_capacity(1000)).capacity() >= 1000);
    }

    #[test]
    fn options_come_through_serde() {
        let options: DecodeOptions =
            serde_json::from_str(r#"{"orientation": false, "limits": {"max_scans": 9}}"#).unwrap();
        assert!(!options.orientation && options.limits.max_scans == 9);
        assert_eq!(options.limits.max_width, Limits::default().max_width);
        assert_eq!(options.damage, Damage::Error);
        let text = serde_json::to_string(&options).unwrap();
        assert!(!text.contains("damage"), "the default is left out: {text}");
        let ignoring: DecodeOptions = serde_json::from_str(r#"{"damage": "ignore"}"#).unwrap();
        assert_eq!(ignoring.damage, Damage::Ignore);
        let again = serde_json::from_str(&serde_json::to_string(&ignoring).unwrap()).unwrap();
        assert_eq!(ignoring, again);
        assert!(serde_json::from_str::<DecodeOptions>(r#"{"damage": "perhaps"}"#).is_err());
    }

    #[test]
    fn a_jpeg_too_large_for_its_bytes_or_for_memory_is_refused_by_its_header() {
        let jpeg = |code: u8, side: u16, components: u8| {
            let [high, low] = side.to_be_bytes();
            let table = [[1, 0x11, 0], [2, 0x11, 0], [3, 0x11, 0], [4, 0x11, 0]].concat();
            let length = 8 + 3 * components;
            let frame = [0xff, 0xd8, 0xff, code, 0, length, 8, high, low, high, low, components];
            [&frame[..], &table[..usize::from(components) * 3], &[0xff, 0xda, 0, 3, components]].concat()
        };
        let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
        let mut refuse = |bytes: Vec<u8>| decoder.header(&bytes).unwrap_err();
        let error = refuse(jpeg(0xc0, 65_500, 3));
        assert_eq!(error.kind(), ErrorKind::Limit);
        let error = refuse(jpeg(0xc0, 16_000, 3));
        assert!(error.message().contains("needs at least 500000 bytes"), "{error}");
        // 768 MB of pixels are within the limit, 1.5 GB of coefficients beside them are not.
        let error = refuse([jpeg(0xc2, 16_000, 3), vec![0; 600_000]].concat());
        assert!(error.to_string().contains("limits.max_bytes"), "{error}");
    }
}
