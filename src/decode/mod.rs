//! Turns encoded bytes into 8-bit RGB pixels, given a request and limits.
//! Does not know where bytes come from, nor that slabs or processes exist.
//!
//! How everything becomes 8-bit RGB: alpha is dropped, colour profiles and gamma are ignored, gray is repeated, palettes
//! are looked up, 16-bit samples become `v >> 8`, of an animation or a multi-page file the first picture is taken, CMYK and
//! YCCK JPEGs are read as Adobe stores them (inverted: R = C x K / 255), and floating-point pixels are refused.

mod decoder;
mod exif;
mod format;
mod general;
#[cfg(feature = "turbo")]
mod jpeg;
mod limits;
mod orient;
mod request;
#[cfg(feature = "turbo")]
mod turbo;
mod version;

pub use decoder::{Damage, DecodeOptions, Decoder, Header};
pub use format::Format;
pub use limits::Limits;
pub use orient::Orientation;
pub use request::{Decoded, Image, Rect, Request, Size, Source};
pub use version::codec_version;
