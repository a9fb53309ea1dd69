//! The size parameter of steps, written as torchvision writes it.

use serde::{Deserialize, Serialize};

use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};

/// One number, or height and width: `size = 224` or `size = [224, 320]` in a pipeline file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "size must be one number of pixels or [height, width]")]
pub enum Side {
    /// Both sides of a square, or the shorter side where a step says so.
    One(u32),
    /// Height, then width.
    HeightWidth([u32; 2]),
}

/// The longest side that steps produce. Keeps the products of sides within 32 bits.
const MAX_SIDE: u32 = 32_768;

impl Side {
    /// Returns the size, one number meaning a square.
    pub const fn square(self) -> Size {
        match self {
            Side::One(side) => Size::new(side, side),
            Side::HeightWidth([height, width]) => Size::new(width, height),
        }
    }

    /// Checks that both sides can be produced.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a side of 0 or above 32,768.
    pub fn check(self) -> Result<()> {
        let Size { width, height } = self.square();
        if (1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, format!("size {width}x{height} (width x height) is out of range"))
            .with_remedy(format!("use sides of 1 to {MAX_SIDE} pixels")))
    }
}

impl From<u32> for Side {
    fn from(side: u32) -> Self {
        Side::One(side)
    }
}

impl From<[u32; 2]> for Side {
    fn from(height_width: [u32; 2]) -> Self {
        Side::HeightWidth(height_width)
    }
}
