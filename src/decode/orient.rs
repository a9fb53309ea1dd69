//! The eight orientations of EXIF: mapping rectangles and turning pixels.

use super::{Rect, Size};

/// How the stored picture has to be turned to stand upright: the EXIF tag `Orientation`, 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Orientation(u8);

impl Orientation {
    /// Stored as it should be seen.
    pub const UPRIGHT: Orientation = Orientation(1);

    /// Returns the orientation with that EXIF number, `None` unless it is 1 to 8.
    pub const fn from_exif(number: u8) -> Option<Self> {
        match number {
            1..=8 => Some(Orientation(number)),
            _ => None,
        }
    }

    /// Returns the EXIF number, 1 to 8.
    pub const fn exif(self) -> u8 {
        self.0
    }

    /// Returns whether columns become rows.
    const fn swaps(self) -> bool {
        self.0 >= 5
    }

    /// Returns whether the stored columns are walked backwards.
    const fn reverses_columns(self) -> bool {
        matches!(self.0, 2 | 3 | 7 | 8)
    }

    /// Returns whether the stored rows are walked backwards.
    const fn reverses_rows(self) -> bool {
        matches!(self.0, 3 | 4 | 6 | 7)
    }

    /// Returns the upright size of a picture stored with size `size`, and the other way round.
    pub const fn turned(self, size: Size) -> Size {
        if self.swaps() { Size::new(size.height, size.width) } else { size }
    }

    /// Returns the stored rectangle that shows as `rect` in the upright picture; `stored` is the whole stored size.
    pub(super) fn to_stored(self, rect: Rect, stored: Size) -> Rect {
        let mut out = if self.swaps() { transposed(rect) } else { rect };
        self.reverse(&mut out, stored);
        out
    }

    /// Returns where the stored rectangle `rect` shows in the upright picture; `stored` is the whole stored size.
    pub(super) fn to_upright(self, mut rect: Rect, stored: Size) -> Rect {
        self.reverse(&mut rect, stored);
        if self.swaps() { transposed(rect) } else { rect }
    }

    fn reverse(self, rect: &mut Rect, stored: Size) {
        if self.reverses_columns() {
            rect.left = stored.width - rect.left - rect.width;
        }
        if self.reverses_rows() {
            rect.top = stored.height - rect.top - rect.height;
        }
    }

    /// Writes the RGB pixels `stored`, of `size`, upright into `out`. Both have `3 * size.pixels()` bytes.
    pub(super) fn turn(self, stored: &[u8], size: Size, out: &mut [u8]) {
        let (stored, _) = stored.as_chunks::<3>();
        let (out, _) = out.as_chunks_mut::<3>();
        let (width, height) = (size.width as usize, size.height as usize);
        if self.swaps() {
            self.turn_swapped(stored, width, height, out);
        } else {
            for (y, row) in out.chunks_exact_mut(width).enumerate() {
                let from = if self.reverses_rows() { height - 1 - y } else { y } * width;
                row.copy_from_slice(&stored[from..from + width]);
                if self.reverses_columns() {
                    row.reverse();
                }
            }
        }
    }

    /// Goes by tiles, so that the rows of one side and the columns of the other stay in the first-level cache.
    fn turn_swapped(self, stored: &[[u8; 3]], width: usize, height: usize, out: &mut [[u8; 3]]) {
        const TILE: usize = 32;
        for top in (0..width).step_by(TILE) {
            for left in (0..height).step_by(TILE) {
                for y in top..width.min(top + TILE) {
                    let column = if self.reverses_columns() { width - 1 - y } else { y };
                    let end = height.min(left + TILE);
                    for (x, pixel) in (left..end).zip(&mut out[y * height + left..y * height + end]) {
                        let row = if self.reverses_rows() { height - 1 - x } else { x };
                        *pixel = stored[row * width + column];
                    }
                }
            }
        }
    }
}

const fn transposed(rect: Rect) -> Rect {
    Rect { left: rect.top, top: rect.left, width: rect.height, height: rect.width }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(size: Size) -> Vec<u8> {
        (0..size.pixels() as u32).flat_map(|i| [i as u8, (i >> 8) as u8, 7]).collect()
    }

    /// Numbers the pixels of a 3x2 picture 0..6 row by row and returns them as they show upright.
    fn shown(number: u8) -> Vec<u8> {
        let mut out = vec![0; 18];
        Orientation::from_exif(number).unwrap().turn(&picture(Size::new(3, 2)), Size::new(3, 2), &mut out);
        out.chunks(3).map(|pixel| pixel[0]).collect()
    }

    #[test]
    fn each_orientation_turns_as_exif_says() {
        assert_eq!(shown(1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(shown(2), [2, 1, 0, 5, 4, 3]); // mirrored left to right
        assert_eq!(shown(3), [5, 4, 3, 2, 1, 0]); // half a turn
        assert_eq!(shown(4), [3, 4, 5, 0, 1, 2]); // mirrored top to bottom
        assert_eq!(shown(5), [0, 3, 1, 4, 2, 5]); // transposed
        assert_eq!(shown(6), [3, 0, 4, 1, 5, 2]); // a quarter clockwise
        assert_eq!(shown(7), [5, 2, 4, 1, 3, 0]); // transposed along the other diagonal
        assert_eq!(shown(8), [2, 5, 1, 4, 0, 3]); // a quarter counter-clockwise
        assert!(Orientation::from_exif(0).is_none() && Orientation::from_exif(9).is_none());
    }

    #[test]
    fn turning_a_part_equals_the_part_of_the_turned_whole() {
        let stored = Size::new(70, 41);
        let whole = picture(stored);
        for number in 1..=8 {
            let orientation = Orientation::from_exif(number).unwrap();
            let full = orientation.turned(stored);
            let mut upright = vec![0; whole.len()];
            orientation.turn(&whole, stored, &mut upright);
            let rect = Rect { left: 3, top: 5, width: 36, height: 33 };
            let part = orientation.to_stored(rect, stored);
            assert_eq!(orientation.to_upright(part, stored), rect);
            let cut = crop(&whole, stored, part);
            let mut turned = vec![0; cut.len()];
            orientation.turn(&cut, part.size(), &mut turned);
            assert_eq!(turned, crop(&upright, full, rect), "orientation {number}");
        }
    }

    fn crop(pixels: &[u8], size: Size, rect: Rect) -> Vec<u8> {
        let row = |y: u32| ((y * size.width + rect.left) * 3) as usize;
        (rect.top..rect.top + rect.height)
            .flat_map(|y| pixels[row(y)..row(y) + rect.width as usize * 3].to_vec())
            .collect()
    }
}
