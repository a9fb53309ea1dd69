//! One picture that costs a decoder what a photograph costs: light, clouds of detail at all scales, a few shapes.
//! Integers only, so that every machine makes the same pixels.

use crate::hash::{SPREAD, below, mix};

/// One unit of fixed-point arithmetic.
const ONE: i64 = 1 << 12;

/// Side of the largest cell of noise in pixels; each octave halves it.
const CELL: i64 = 128;

/// Strength of the octaves in 1/16 grey levels, coarse to fine. Photographs have about equal energy an octave with a
/// drop at the end; the last four, down to the single pixel, set the file's size (see the test in `mod.rs`).
const OCTAVES: [i64; 8] = [560, 430, 330, 260, 250, 270, 310, 410];

/// A stream of numbers from a key.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(SPREAD);
        below(mix(self.0), bound.unsigned_abs().max(1)) as i64
    }

    fn colour(&mut self) -> [i64; 3] {
        [self.below(256), self.below(256), self.below(256)]
    }
}

/// A disc or a box with a colour, part of which shows.
struct Shape {
    round: bool,
    centre: (i64, i64),
    radius: (i64, i64),
    colour: [i64; 3],
    opacity: i64,
}

impl Shape {
    fn draw(draws: &mut Draws, width: i64, height: i64) -> Self {
        let size = width.min(height);
        Shape {
            round: draws.below(2) == 0,
            centre: (draws.below(width), draws.below(height)),
            radius: (1 + size / 16 + draws.below(size / 4), 1 + size / 16 + draws.below(size / 4)),
            colour: draws.colour(),
            opacity: ONE / 2 + draws.below(ONE / 2),
        }
    }

    /// Returns how much of the shape shows at a pixel, out of [`ONE`].
    fn cover(&self, x: i64, y: i64) -> i64 {
        let across = (x - self.centre.0).abs() * ONE / self.radius.0;
        let down = (y - self.centre.1).abs() * ONE / self.radius.1;
        // Far outside, the square below could leave the range of 64 bits.
        if across > 2 * ONE || down > 2 * ONE {
            return 0;
        }
        let out = if self.round { (across * across + down * down) / ONE } else { across.max(down) };
        // An edge of a tenth of the radius, as lenses make it.
        ((ONE - out) * 10).clamp(0, ONE) * self.opacity / ONE
    }
}

/// Returns 8-bit RGB pixels of `width` columns and `height` rows, a function of `key` and the size.
pub(super) fn pixels(key: u64, width: u32, height: u32) -> Vec<u8> {
    let (width, height) = (i64::from(width), i64::from(height));
    let mut draws = Draws(mix(key));
    let corners = [draws.colour(), draws.colour(), draws.colour(), draws.colour()];
    let shapes: Vec<Shape> =
        (0..3 + draws.below(6)).map(|_| Shape::draw(&mut draws, width, height)).collect();
    // Detail comes and goes over a picture: sky here, leaves there.
    let (grain, tint, busy) = (draws.0 ^ 1, draws.0 ^ 2, draws.0 ^ 3);

    let mut out = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            let mut colour = blend(&corners, x * ONE / width, y * ONE / height);
            for shape in &shapes {
                let cover = shape.cover(x, y);
                for (own, over) in colour.iter_mut().zip(shape.colour) {
                    *own += (over - *own) * cover / ONE;
                }
            }
            let busy = ONE + noise(busy, x, y, CELL);
            let detail = detail(grain, x, y, busy);
            let tint = noise(tint, x, y, CELL / 4) * 24 / ONE;
            let shades = [detail + tint, detail, detail - tint];
            out.extend(colour.iter().zip(shades).map(|(base, shade)| (base + shade).clamp(0, 255) as u8));
        }
    }
    out
}

fn blend(corners: &[[i64; 3]; 4], x: i64, y: i64) -> [i64; 3] {
    std::array::from_fn(|channel| {
        let [a, b, c, d] = corners.map(|corner| corner[channel]);
        let (top, bottom) = (a * ONE + (b - a) * x, c * ONE + (d - c) * x);
        (top + (bottom - top) / ONE * y) / ONE
    })
}

/// Returns the sum of all octaves in grey levels; fine ones count by `busy` out of [`ONE`].
fn detail(key: u64, x: i64, y: i64, busy: i64) -> i64 {
    let mut sum = 0;
    for (octave, strength) in OCTAVES.iter().enumerate() {
        let value = noise(key.wrapping_add(octave as u64 + 1), x, y, CELL >> octave) * strength;
        sum += if octave < 3 { value } else { value / ONE * busy };
    }
    sum / ONE / 16
}

/// Returns value noise between `-ONE` and `ONE`: a random number at each corner of a grid, smoothly blended
/// (K. Perlin, "An image synthesizer", SIGGRAPH 1985, in its simplest form).
fn noise(key: u64, x: i64, y: i64, cell: i64) -> i64 {
    let (column, row) = (x / cell, y / cell);
    let corner = |dx: i64, dy: i64| {
        let place = ((row + dy) as u64) << 32 | (column + dx) as u64;
        (mix(key ^ place.wrapping_mul(SPREAD)) >> 51) as i64 - ONE
    };
    let (across, down) = (smooth(x % cell * ONE / cell), smooth(y % cell * ONE / cell));
    let mix = |a: i64, b: i64, part: i64| a + (b - a) * part / ONE;
    mix(mix(corner(0, 0), corner(1, 0), across), mix(corner(0, 1), corner(1, 1), across), down)
}

/// Returns `3t^2 - 2t^3`.
fn smooth(t: i64) -> i64 {
    t * t / ONE * (3 * ONE - 2 * t) / ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_a_function_of_key_and_size() {
        assert_eq!(pixels(1, 40, 30), pixels(1, 40, 30));
        assert_ne!(pixels(1, 40, 30), pixels(2, 40, 30));
        assert_eq!(pixels(1, 1, 1).len(), 3);
    }

    #[test]
    fn noise_fills_its_range_without_leaving_it() {
        let values: Vec<i64> = (0..10_000).map(|at| noise(5, at % 100 * 7, at / 100 * 7, 8)).collect();
        let (least, most) = (values.iter().min().unwrap(), values.iter().max().unwrap());
        assert!(*least >= -ONE && *most <= ONE && most - least > ONE);
    }

    #[test]
    fn pixels_keep_their_numbers() {
        let digest = pixels(42, 64, 48).iter().fold(0u64, |digest, byte| mix(digest ^ u64::from(*byte)));
        assert_eq!(digest, 15623177225167649094, "the generator's output changed");
    }
}
