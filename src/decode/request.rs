//! What is asked of a decoder, and what it gives back. All coordinates are *oriented*: those of the picture
//! as a person sees it, after its EXIF orientation has been applied (where that is switched on).

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// Creates a size.
    pub const fn new(width: u32, height: u32) -> Self {
        Size { width, height }
    }

    /// Returns the number of pixels.
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }
}

/// A rectangle of whole pixels, left and top inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rect {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Rect {
    /// Returns the rectangle that covers a whole picture.
    pub const fn whole(size: Size) -> Self {
        Rect { left: 0, top: 0, width: size.width, height: size.height }
    }

    /// Returns its width and height.
    pub const fn size(self) -> Size {
        Size::new(self.width, self.height)
    }

    /// Returns the first column to its right, at most `u32::MAX`.
    pub const fn right(self) -> u32 {
        self.left.saturating_add(self.width)
    }

    /// Returns the first row below it, at most `u32::MAX`.
    pub const fn bottom(self) -> u32 {
        self.top.saturating_add(self.height)
    }

    /// Returns whether `other` lies within it.
    pub const fn contains(self, other: Rect) -> bool {
        other.left >= self.left
            && other.top >= self.top
            && other.left as u64 + other.width as u64 <= self.left as u64 + self.width as u64
            && other.top as u64 + other.height as u64 <= self.top as u64 + self.height as u64
    }
}

/// What the pipeline's first geometric step will use of a picture, drawn before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The part that will be read. Pixels outside it may be left undecoded.
    pub region: Rect,
    /// The size that `region` will be resized to. A decoder may deliver it scaled down, but never below this.
    pub target: Size,
}

/// What the bytes of a sample are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// An encoded picture, told by its content.
    Encoded(&'a [u8]),
    /// Pixels that need no decoder: 8-bit RGB, interleaved, `3 * width * height` bytes.
    Rgb8 {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// The bytes R, G, B of each pixel.
        pixels: &'a [u8],
    },
}

/// Pixels of a picture: 8-bit RGB, interleaved, rows top to bottom without padding (`3 * width * height` bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The bytes R, G, B of each pixel.
    pub pixels: Vec<u8>,
}

impl Image {
    /// Returns its width and height.
    pub const fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }

    /// Gives it a new size, keeping the allocation. The pixels are unspecified afterwards, though initialised.
    pub fn reset(&mut self, size: Size) {
        self.width = size.width;
        self.height = size.height;
        self.pixels.resize(size.width as usize * size.height as usize * 3, 0);
    }
}

/// Which part of the picture the delivered pixels cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The whole picture's size.
    pub full: Size,
    /// The part of the whole picture, in unscaled oriented pixels, that the image covers. Contains the request's region.
    pub covers: Rect,
}
