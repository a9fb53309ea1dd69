//! The binding to libjpeg-turbo's TurboJPEG API. Sound for any bytes and any call from safe code; what a warning means is
//! decided by its caller.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

use super::{Limits, Rect, Size};
use crate::error::{Error, ErrorKind, Result};

/// What a decoded pixel is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PixelFormat {
    Rgb,
    Cmyk,
}

impl PixelFormat {
    pub(super) const fn bytes(self) -> usize {
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
pub(super) type Outcome = std::result::Result<String, String>;

/// An owned TurboJPEG decompressor.
#[derive(Debug)]
pub(super) struct Codec {
    handle: NonNull<c_void>,
}

// SAFETY: the handle is owned, has no tie to the thread that made it, and is used through `&mut` only.
unsafe impl Send for Codec {}

impl Codec {
    pub(super) fn new(limits: &Limits) -> Result<Codec> {
        // SAFETY: no duties; the result is null or a handle that is ours.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(Error::new(ErrorKind::Decode, "libjpeg-turbo could not be set up: out of memory"));
        };
        let mut codec = Codec { handle };
        let capped = |value: u64| c_int::try_from(value).unwrap_or(c_int::MAX);
        codec.set(tj::TJPARAM_TJPARAM_SCANLIMIT, capped(limits.max_scans.max(1).into()))?;
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
    pub(super) fn open<'a>(&'a mut self, bytes: &'a [u8]) -> std::result::Result<Opened<'a>, String> {
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
pub(super) struct Opened<'a> {
    codec: &'a mut Codec,
    bytes: &'a [u8],
    /// The header's warning, empty if there was none.
    pub(super) noted: String,
}

impl Opened<'_> {
    /// Returns whether the picture can be decoded in part.
    pub(super) fn can_crop(&mut self) -> bool {
        self.codec.get(tj::TJPARAM_TJPARAM_SUBSAMP) >= 0
            && self.codec.get(tj::TJPARAM_TJPARAM_LOSSLESS) == 0
            && self.codec.get(tj::TJPARAM_TJPARAM_PRECISION) == 8
    }

    /// Decodes `rect` into `target`, whose length fits.
    pub(super) fn decompress(&mut self, rect: Rect, format: PixelFormat, target: &mut [u8]) -> Outcome {
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

/// Makes JPEGs for tests.
#[cfg(test)]
pub(super) mod encode {
    use super::*;

    /// How a test picture is encoded.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::decode) struct Style {
        pub(in crate::decode) subsampling: tj::TJSAMP,
        pub(in crate::decode) progressive: bool,
        pub(in crate::decode) restart_rows: c_int,
    }

    /// Encodes colourful noise over a slope, so that every pixel depends on its surroundings.
    pub(in crate::decode) fn encode(size: Size, style: Style) -> Vec<u8> {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        let pixels: Vec<u8> = (0..size.pixels() as u32 * 3)
            .map(|i| ((i % (size.width * 3)) / 3 * 2 + noise() * (i % 3 + 1) / 3) as u8)
            .collect();
        // SAFETY: no duties.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as c_int) };
        for (param, value) in [
            (tj::TJPARAM_TJPARAM_QUALITY, 80),
            (tj::TJPARAM_TJPARAM_SUBSAMP, style.subsampling),
            (tj::TJPARAM_TJPARAM_PROGRESSIVE, style.progressive.into()),
            (tj::TJPARAM_TJPARAM_RESTARTROWS, style.restart_rows),
        ] {
            // SAFETY: the handle was made above.
            assert_eq!(unsafe { tj::tj3Set(handle, param as c_int, value) }, 0);
        }
        let (mut out, mut length) = (std::ptr::null_mut(), 0);
        let (width, height) = (size.width as c_int, size.height as c_int);
        let (from, rgb) = (pixels.as_ptr(), tj::TJPF_TJPF_RGB);
        // SAFETY: `pixels` holds `height` rows of `width` RGB pixels; the callee allocates the output.
        let code = unsafe { tj::tj3Compress8(handle, from, width, 0, height, rgb, &mut out, &mut length) };
        assert_eq!(code, 0);
        // SAFETY: the callee has written `length` bytes at `out`.
        let bytes = unsafe { std::slice::from_raw_parts(out, length as usize) }.to_vec();
        // SAFETY: `out` came from the callee's allocator and the slice is gone.
        unsafe { tj::tj3Free(out.cast()) };
        // SAFETY: the handle is not used again.
        unsafe { tj::tj3Destroy(handle) };
        bytes
    }
}
