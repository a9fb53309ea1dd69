//! JPEG by libjpeg-turbo: whole pictures and regions, as stored.
#![allow(unsafe_code)] // the binding to libjpeg-turbo's TurboJPEG API

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

use super::exif::{Frame, Markers};
use super::{Limits, Rect, Size};
use crate::error::{Error, ErrorKind, Result};

/// libjpeg's text when the bytes end before the end marker.
const ENDED: &str = "Premature end of JPEG file";

/// The JPEG decoder of one worker.
#[derive(Debug)]
pub(super) struct Jpeg {
    codec: Codec,
    limits: Limits,
    /// A file without an end marker, with one added.
    mended: Vec<u8>,
}

impl Jpeg {
    pub(super) fn new(limits: &Limits) -> Result<Jpeg> {
        Ok(Jpeg { codec: Codec::new(limits)?, limits: limits.clone(), mended: Vec::new() })
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
        let format = PixelFormat::of(&frame);
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
        if is_harmless(&warning, &noted) { Ok(rect) } else { Err(warning) }
    }

    fn refused(&self, text: String) -> Error {
        if text.contains("scans") {
            return Error::new(ErrorKind::Limit, format!("jpeg: {text}")).with_remedy(format!(
                "set limits.max_scans above {} if such pictures are wanted",
                self.limits.max_scans
            ));
        }
        let memory = text.contains("Memory limit exceeded") || text.contains("Image is too large");
        let kind = if memory { ErrorKind::Limit } else { ErrorKind::Decode };
        Error::new(kind, format!("jpeg: {text}"))
    }
}

impl Frame {
    /// Returns `rect` grown to whole iMCUs and by some more on each side, since what lies at the edge of a decoded region is
    /// upsampled as if it were the edge of the picture. Progressive files may be smoothed with up to two blocks of neighbours
    /// (libjpeg-turbo's block smoothing looks at 5x5), so they get more.
    fn widened(&self, rect: Rect) -> Rect {
        let margin = if self.buffered { 3 } else { 1 };
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
///
/// Stray bytes before the end marker come after every row was decoded without complaint; nothing can follow that warning.
fn is_harmless(warning: &str, noted: &str) -> bool {
    warning.is_empty() || warning == noted || warning.ends_with("extraneous bytes before marker 0xd9")
}

/// Adobe stores ink inverted, 255 for none, and libjpeg hands it out as stored: the product of two such is light.
fn cmyk_to_rgb(cmyk: &[u8], rgb: &mut Vec<u8>) {
    rgb.resize(cmyk.len() / 4 * 3, 0);
    let (rgb, _) = rgb.as_chunks_mut::<3>();
    for (to, [c, m, y, k]) in rgb.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        *to = [c, m, y].map(|ink| ((u32::from(*ink) * u32::from(*k) + 127) / 255) as u8);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PixelFormat {
    Rgb,
    Cmyk,
}

impl PixelFormat {
    fn of(frame: &Frame) -> PixelFormat {
        if frame.components == 4 { PixelFormat::Cmyk } else { PixelFormat::Rgb }
    }

    const fn bytes(self) -> usize {
        match self {
            PixelFormat::Rgb => 3,
            PixelFormat::Cmyk => 4,
        }
    }

    const fn number(self) -> c_int {
        match self {
            PixelFormat::Rgb => tj::TJPF_TJPF_RGB,
            PixelFormat::Cmyk => tj::TJPF_TJPF_CMYK,
        }
    }
}

/// The first warning, empty if there was none; or the error's text.
type Outcome = std::result::Result<String, String>;

/// An owned TurboJPEG decompressor.
#[derive(Debug)]
struct Codec {
    handle: NonNull<c_void>,
}

// SAFETY: the handle is owned, has no tie to the thread that made it, and is used through `&mut` only.
unsafe impl Send for Codec {}

impl Codec {
    fn new(limits: &Limits) -> Result<Codec> {
        // SAFETY: no duties; the result is null or a handle that is ours.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(Error::new(ErrorKind::Decode, "libjpeg-turbo could not be set up: out of memory"));
        };
        let mut codec = Codec { handle };
        let capped = |value: u64| c_int::try_from(value).unwrap_or(c_int::MAX);
        codec.set(tj::TJPARAM_TJPARAM_SCANLIMIT, capped(limits.max_scans.into()))?;
        codec.set(tj::TJPARAM_TJPARAM_MAXPIXELS, capped(limits.max_pixels))?;
        codec.set(tj::TJPARAM_TJPARAM_MAXMEMORY, capped(limits.max_bytes.div_ceil(1 << 20)))?;
        codec.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0)?; // colour profiles are ignored: don't copy them
        Ok(codec)
    }

    fn set(&mut self, param: tj::TJPARAM, value: c_int) -> Result<()> {
        // SAFETY: the handle is valid until drop.
        let code = unsafe { tj::tj3Set(self.handle.as_ptr(), param as c_int, value) };
        self.outcome(code).map(drop).map_err(|text| {
            Error::new(ErrorKind::Config, format!("libjpeg-turbo: parameter {param} = {value}: {text}"))
        })
    }

    fn get(&mut self, param: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is valid until drop.
        unsafe { tj::tj3Get(self.handle.as_ptr(), param as c_int) }
    }

    /// Reads the header of `bytes`.
    fn open<'a>(&'a mut self, bytes: &'a [u8]) -> std::result::Result<Opened<'a>, String> {
        let length = bytes.len() as tj::size_t;
        // SAFETY: pointer and length are those of a live slice, which is only read, and not after the call.
        let code = unsafe { tj::tj3DecompressHeader(self.handle.as_ptr(), bytes.as_ptr(), length) };
        let noted = self.outcome(code)?;
        Ok(Opened { codec: self, bytes, noted })
    }

    fn outcome(&mut self, code: c_int) -> Outcome {
        if code == 0 {
            return Ok(String::new());
        }
        // SAFETY: the handle is valid until drop; the text belongs to it or to this thread.
        let text = unsafe { tj::tj3GetErrorStr(self.handle.as_ptr()) };
        // SAFETY: a zero-terminated string, which stays until the next call on this thread.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the handle is valid until drop.
        match unsafe { tj::tj3GetErrorCode(self.handle.as_ptr()) } as tj::TJERR {
            tj::TJERR_TJERR_WARNING => Ok(text),
            _ => Err(text),
        }
    }
}

impl Drop for Codec {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) }
    }
}

/// A codec that has read the header of `bytes`. The borrow keeps it from reading another one's before it decodes.
struct Opened<'a> {
    codec: &'a mut Codec,
    bytes: &'a [u8],
    /// The header's warning, empty if there was none.
    noted: String,
}

impl Opened<'_> {
    /// Returns whether the picture can be decoded in part.
    fn can_crop(&mut self) -> bool {
        self.codec.get(tj::TJPARAM_TJPARAM_SUBSAMP) >= 0
            && self.codec.get(tj::TJPARAM_TJPARAM_LOSSLESS) == 0
            && self.codec.get(tj::TJPARAM_TJPARAM_PRECISION) == 8
    }

    /// Decodes `rect` into `target`, whose length fits.
    fn decompress(&mut self, rect: Rect, format: PixelFormat, target: &mut [u8]) -> Outcome {
        let width = self.codec.get(tj::TJPARAM_TJPARAM_JPEGWIDTH).max(0) as u32;
        let size = Size::new(width, self.codec.get(tj::TJPARAM_TJPARAM_JPEGHEIGHT).max(0) as u32);
        let pitch = rect.width as usize * format.bytes();
        if !Rect::whole(size).contains(rect) || target.len() != pitch * rect.height as usize {
            return Err(format!("no frame of the expected size (found {}x{})", size.width, size.height));
        }
        // All zero stands for the whole picture.
        let side = |value: u32| if rect.size() == size { 0 } else { value as c_int };
        let region =
            tj::tjregion { x: side(rect.left), y: side(rect.top), w: side(rect.width), h: side(rect.height) };
        let handle = self.codec.handle.as_ptr();
        // SAFETY: the handle is valid until drop; the region is plain data, checked by the callee.
        let code = unsafe { tj::tj3SetCroppingRegion(handle, region) };
        if code != 0 {
            return self.codec.outcome(code);
        }
        let (source, length) = (self.bytes.as_ptr(), self.bytes.len() as tj::size_t);
        let (to, number) = (target.as_mut_ptr(), format.number());
        // SAFETY: the source is a live slice. The callee writes `rect.height` rows of `pitch` bytes, which is the length of
        // `target`: this codec has just read the picture's size from the header of the same bytes, and where they hold no
        // picture at all the callee fails before it writes.
        let code = unsafe { tj::tj3Decompress8(handle, source, length, to, pitch as c_int, number) };
        self.codec.outcome(code)
    }
}
