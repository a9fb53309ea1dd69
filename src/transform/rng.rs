//! Counter-based randomness: every number is a function of (seed, epoch, position, step path, draw).
//!
//! The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
//! (SC'11). A step's stream is the block sequence with
//!
//! * key = the first 64 bits of `philox(counter = [epoch, path hash], key = seed)`,
//! * counter = `[draw block, position]`,
//!
//! each pair in brackets being two 64-bit numbers, low words first. Words of a block are handed out in order.
//! The path hash is 64-bit FNV-1a over text such as `RandomApply[0]/ColorJitter[0]`: a step's type tag with its
//! occurrence among the steps of that tag in the same list. So a step inserted elsewhere shifts nobody's draws.
//! Whatever changes these numbers raises [`RNG_VERSION`].

/// The version of the mapping from keys to numbers. Part of a pipeline's fingerprint.
pub const RNG_VERSION: u32 = 1;

/// Which sample of which run is being drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The position in the epoch's global order, over all ranks.
    pub position: u64,
}

impl SampleKey {
    /// Creates a key.
    pub const fn new(seed: u64, epoch: u64, position: u64) -> Self {
        SampleKey { seed, epoch, position }
    }
}

/// The random numbers of one step for one sample.
///
/// # Examples
/// ```
/// use forebay::transform::{SampleKey, SampleRng};
///
/// let root = SampleRng::root(SampleKey::new(42, 0, 7));
/// let mut rng = root.child("ColorJitter", 0);
/// let first = rng.next_u64();
/// assert_eq!(root.child("ColorJitter", 0).next_u64(), first);
/// assert_ne!(root.child("ColorJitter", 1).next_u64(), first);
/// ```
#[derive(Clone, Debug)]
pub struct SampleRng {
    sample: SampleKey,
    path: u64,
    key: [u32; 2],
    /// The next block's number.
    block: u64,
    words: [u32; 4],
    /// How many of `words` are handed out.
    used: usize,
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo) of some bytes.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_after(FNV_OFFSET, bytes)
}

fn fnv1a_after(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Philox4x32 with ten rounds; constants from the paper.
fn philox(counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    for _ in 0..10 {
        let [lo0, hi0] = halves(u64::from(c[0]) * 0xD251_1F53);
        let [lo1, hi1] = halves(u64::from(c[2]) * 0xCD9E_8D57);
        c = [hi1 ^ c[1] ^ key[0], lo1, hi0 ^ c[3] ^ key[1], lo0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

impl SampleRng {
    /// Returns the generator of a sample's empty path, from which steps get their [`child`](SampleRng::child).
    pub fn root(sample: SampleKey) -> Self {
        Self::at(sample, FNV_OFFSET)
    }

    /// Returns the generator of a step below this one: its type tag, and how many steps of the same tag stand
    /// before it in the same list. Always starts at draw 0, whatever has been drawn from `self`.
    pub fn child(&self, tag: &str, occurrence: usize) -> Self {
        let mut path = self.path;
        if path != FNV_OFFSET {
            path = fnv1a_after(path, b"/");
        }
        path = fnv1a_after(path, tag.as_bytes());
        path = fnv1a_after(path, b"[");
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        let mut rest = occurrence;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        path = fnv1a_after(path, &digits[start..]);
        Self::at(self.sample, fnv1a_after(path, b"]"))
    }

    fn at(sample: SampleKey, path: u64) -> Self {
        let [e0, e1] = halves(sample.epoch);
        let [p0, p1] = halves(path);
        let [k0, k1, _, _] = philox([e0, e1, p0, p1], halves(sample.seed));
        SampleRng { sample, path, key: [k0, k1], block: 0, words: [0; 4], used: 4 }
    }

    /// Returns which sample it draws for.
    pub fn sample(&self) -> SampleKey {
        self.sample
    }

    /// Returns the next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let [b0, b1] = halves(self.block);
            let [p0, p1] = halves(self.sample.position);
            self.words = philox([b0, b1, p0, p1], self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Returns the next 64 random bits: two draws of 32, the low half first.
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// Returns a multiple of 2^-53 in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a multiple of 2^-24 in `[0, 1)`.
    pub fn uniform_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
    }

    /// Returns a number between `low` and `high`, as `low + (high - low) * uniform()`.
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns an integer in `[low, high)`, each equally likely.
    ///
    /// Lemire's multiplication with rejection (ACM TOMACS 29(1), 2019) on 64-bit words: no bias, and a second word
    /// is needed with a probability below `(high - low) / 2^64`.
    ///
    /// # Panics
    /// If `low >= high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "range {low}..{high} is empty");
        let span = high - low;
        let threshold = span.wrapping_neg() % span;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(span);
            if product as u64 >= threshold {
                return low + (product >> 64) as u64;
            }
        }
    }

    /// Returns true with probability `p`: never for 0 or less, always for 1 or more.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Returns two independent numbers of the standard normal distribution (Box and Muller, 1958).
    pub fn normal_pair(&mut self) -> [f64; 2] {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.uniform());
        [radius * cos, radius * sin]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng(position: u64) -> SampleRng {
        SampleRng::root(SampleKey::new(1, 2, position)).child("Test", 0)
    }

    /// From the file `kat_vectors` of Random123, the authors' own distribution.
    #[test]
    fn known_answers_of_philox4x32_10_hold() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn first_numbers_are_pinned() {
        let mut rng =
            SampleRng::root(SampleKey::new(42, 3, 9)).child("RandomApply", 0).child("ColorJitter", 12);
        assert_eq!(rng.path, fnv1a(b"RandomApply[0]/ColorJitter[12]"));
        let [p0, p1] = halves(rng.path);
        let [k0, k1, ..] = philox([3, 0, p0, p1], [42, 0]);
        let expected = philox([0, 0, 9, 0], [k0, k1]);
        assert_eq!([0; 4].map(|_| rng.next_u32()), expected);
        assert_eq!(rng.next_u32(), philox([1, 0, 9, 0], [k0, k1])[0]);
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let base = SampleKey::new(1, 2, 3);
        let first = |key: SampleKey, tag: &str, n: usize| SampleRng::root(key).child(tag, n).next_u64();
        let all = [
            first(base, "A", 0),
            first(SampleKey { seed: 2, ..base }, "A", 0),
            first(SampleKey { seed: 1 << 40, ..base }, "A", 0),
            first(SampleKey { epoch: 3, ..base }, "A", 0),
            first(SampleKey { epoch: 1 << 40, ..base }, "A", 0),
            first(SampleKey { position: 4, ..base }, "A", 0),
            first(SampleKey { position: 1 << 40, ..base }, "A", 0),
            first(base, "B", 0),
            first(base, "A", 1),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn range_is_uniform_by_chi_square() {
        let mut counts = [0u32; 7];
        for position in 0..70_000 {
            counts[rng(position).range(3, 10) as usize - 3] += 1;
        }
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 22.46, "chi-square {chi} of 6 degrees exceeds the 0.999 quantile: {counts:?}");
    }

    #[test]
    fn range_reaches_both_ends_of_huge_spans() {
        let mut rng = rng(0);
        assert_eq!(rng.range(5, 6), 5);
        for _ in 0..100 {
            let value = rng.range(1, u64::MAX);
            assert!((1..u64::MAX).contains(&value));
        }
    }

    #[test]
    fn uniforms_stay_below_one_and_average_a_half() {
        let mut rng = rng(0);
        let n = 100_000;
        let (mut sum, mut sum32) = (0.0, 0.0);
        for _ in 0..n {
            let (a, b) = (rng.uniform(), rng.uniform_f32());
            assert!((0.0..1.0).contains(&a) && (0.0..1.0).contains(&b));
            sum += a;
            sum32 += f64::from(b);
        }
        // Five standard errors of sqrt(1/12/n).
        assert!((sum / f64::from(n) - 0.5).abs() < 5e-3 && (sum32 / f64::from(n) - 0.5).abs() < 5e-3);
    }

    #[test]
    fn chance_is_exact_at_its_ends() {
        let mut rng = rng(0);
        assert!((0..1000).all(|_| !rng.chance(0.0)));
        assert!((0..1000).all(|_| rng.chance(1.0)));
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut rng = rng(0);
        let all: Vec<f64> = (0..50_000).flat_map(|_| rng.normal_pair()).collect();
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let variance = all.iter().map(|x| x * x).sum::<f64>() / n;
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.023, "{mean} {variance}");
    }
}
