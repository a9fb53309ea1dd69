//! Turns encoded bytes into 8-bit RGB pixels, given a request and limits.
//! Does not know where bytes come from, nor that slabs or processes exist.

mod request;

pub use request::{Decoded, Image, Rect, Request, Size};
