//! Moves pixels of 8-bit RGB pictures about without changing them.

use crate::decode::{Image, Rect, Size};

/// Reverses every row.
pub(super) fn flip_horizontal(image: &mut Image) {
    let width = image.width as usize;
    for row in image.pixels.chunks_exact_mut((width * 3).max(1)) {
        let (pixels, _) = row.as_chunks_mut::<3>();
        pixels.reverse();
    }
}

/// Reverses the order of the rows.
pub(super) fn flip_vertical(image: &mut Image) {
    let stride = image.width as usize * 3;
    let (mut rest, mut rows) = (&mut image.pixels[..], image.height);
    while rows > 1 {
        let (first, others) = rest.split_at_mut(stride);
        let (middle, last) = others.split_at_mut((rows as usize - 2) * stride);
        first.swap_with_slice(last);
        (rest, rows) = (middle, rows - 2);
    }
}

/// Makes `dst` a picture of `size` whose pixel (x, y) is `src`'s (x + left, y + top), or `fill` outside `src`.
pub(super) fn crop(src: &Image, left: i64, top: i64, size: Size, fill: [u8; 3], dst: &mut Image) {
    dst.reset(size);
    let (width, stride) = (size.width as usize, src.width as usize * 3);
    // Columns of `dst` that lie within `src`.
    let start = (-left).clamp(0, i64::from(size.width)) as usize;
    let end = (i64::from(src.width) - left).clamp(start as i64, i64::from(size.width)) as usize;
    for (y, row) in dst.pixels.chunks_exact_mut(width * 3).enumerate() {
        let from = y as i64 + top;
        let (pixels, _) = row.as_chunks_mut::<3>();
        if from < 0 || from >= i64::from(src.height) || start == end {
            pixels.fill(fill);
            continue;
        }
        pixels[..start].fill(fill);
        pixels[end..].fill(fill);
        let at = from as usize * stride + (start as i64 + left) as usize * 3;
        row[start * 3..end * 3].copy_from_slice(&src.pixels[at..at + (end - start) * 3]);
    }
}

/// Sets the pixels of `rect`, which lies within the picture.
pub(super) fn fill(image: &mut Image, rect: Rect, value: [u8; 3]) {
    let stride = image.width as usize * 3;
    let rows = image.pixels.chunks_exact_mut(stride.max(1)).skip(rect.top as usize);
    for row in rows.take(rect.height as usize) {
        let (pixels, _) = row.as_chunks_mut::<3>();
        pixels[rect.left as usize..][..rect.width as usize].fill(value);
    }
}

/// Returns where a rectangle lies once the picture around it has been mirrored.
pub(super) fn mirror(rect: Rect, full: Size, horizontal: bool, vertical: bool) -> Rect {
    let mut mirrored = rect;
    if horizontal {
        mirrored.left = full.width - rect.left - rect.width;
    }
    if vertical {
        mirrored.top = full.height - rect.top - rect.height;
    }
    mirrored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixel (x, y) is [x, y, 7].
    fn grid(width: u32, height: u32) -> Image {
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 7])).collect();
        Image { width, height, pixels }
    }

    fn at(image: &Image, x: u32, y: u32) -> [u8; 3] {
        image.pixels.as_chunks::<3>().0[(y * image.width + x) as usize]
    }

    #[test]
    fn flips_move_each_pixel_to_its_mirror_place() {
        for (width, height) in [(1, 1), (4, 3), (3, 4), (1, 5), (5, 1), (2, 2)] {
            let (mut sideways, mut upside) = (grid(width, height), grid(width, height));
            flip_horizontal(&mut sideways);
            flip_vertical(&mut upside);
            for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                assert_eq!(at(&sideways, x, y), [(width - 1 - x) as u8, y as u8, 7]);
                assert_eq!(at(&upside, x, y), [x as u8, (height - 1 - y) as u8, 7]);
            }
        }
    }

    #[test]
    fn crops_are_filled_wherever_they_leave_the_picture() {
        let source = grid(6, 5);
        let mut cut = Image::default();
        for (left, top) in (-9..9).flat_map(|left| (-9..9).map(move |top| (left, top))) {
            crop(&source, left, top, Size::new(4, 3), [9; 3], &mut cut);
            for (x, y) in (0..4).flat_map(|x| (0..3).map(move |y| (x, y))) {
                let (from_x, from_y) = (i64::from(x) + left, i64::from(y) + top);
                let inside = (0..6).contains(&from_x) && (0..5).contains(&from_y);
                let expected = if inside { [from_x as u8, from_y as u8, 7] } else { [9; 3] };
                assert_eq!(at(&cut, x, y), expected, "{left} {top} {x} {y}");
            }
        }
        crop(&source, i64::from(u32::MAX), -i64::from(u32::MAX), Size::new(2, 2), [3; 3], &mut cut);
        assert_eq!(cut.pixels, [3; 12]);
    }
}
