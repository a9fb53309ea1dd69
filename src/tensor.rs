//! Element types and memory layouts of a batch. Knows sizes and names; moves no data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// The type of one element of a batch's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned byte, 0 to 255.
    U8,
    /// IEEE 754 half precision.
    F16,
    /// Upper half of an `f32`.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// Signed 64-bit integer; labels have it.
    I64,
}

impl DType {
    /// Returns the size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 => 4,
            DType::I64 => 8,
        }
    }

    /// Returns the lower-case name that [`FromStr`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::I64 => "i64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [DType::U8, DType::F16, DType::BF16, DType::F32]
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("dtype {text:?} is unknown"))
                    .with_remedy("use one of u8, f16, bf16, f32")
            })
    }
}

/// The order of the axes of an image batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Batch, channel, height, width: planar, what PyTorch-like frameworks expect.
    Nchw,
    /// Batch, height, width, channel: interleaved, as images are stored.
    Nhwc,
}

impl Layout {
    /// Returns the lower-case name that [`FromStr`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Nchw => "nchw",
            Layout::Nhwc => "nhwc",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Layout::Nchw, Layout::Nhwc].into_iter().find(|layout| layout.name() == text).ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("layout {text:?} is unknown"))
                .with_remedy("use one of nchw, nhwc")
        })
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
    impl Sealed for i64 {}
}

/// A Rust type that a batch can be viewed as. Sealed: the five types of [`DType`].
pub trait Element: sealed::Sealed + bytemuck::Pod {
    /// The element type's name at run time.
    const DTYPE: DType;
}

impl Element for u8 {
    const DTYPE: DType = DType::U8;
}
impl Element for half::f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for half::bf16 {
    const DTYPE: DType = DType::BF16;
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for i64 {
    const DTYPE: DType = DType::I64;
}
