//! One 64-bit mixer and a running digest on it: the same numbers in every version and on every machine.
//! Not for secrets, and not the randomness of the pipeline.

/// An odd number near 2^64 / golden ratio: consecutive multiples of it are spread evenly (Knuth, TAOCP 3, 6.4).
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns `x` with every input bit spread over every output bit; a bijection.
///
/// Constants "mix13" of D. Stafford (2011), which SplitMix64 uses as its output function
/// (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a number in `0..bound` from 64 even bits, off by at most `bound / 2^64`
/// (the multiply-shift reduction of Lemire, "Fast random integer generation in an interval", 2019).
#[inline]
pub(crate) const fn below(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

/// A running digest over words and byte strings, for fingerprints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Creates a digest that differs by what it is about.
    pub(crate) fn new(about: &str) -> Self {
        Digest(SPREAD).bytes(about.as_bytes())
    }

    /// Takes in one word.
    #[must_use]
    pub(crate) const fn word(self, word: u64) -> Self {
        Digest(mix(self.0.rotate_left(23).wrapping_mul(SPREAD) ^ mix(word.wrapping_add(SPREAD))))
    }

    /// Takes in a byte string and its length.
    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut digest = self.word(bytes.len() as u64);
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            digest = digest.word(u64::from_le_bytes(word));
        }
        digest
    }

    /// Returns the number.
    pub(crate) const fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_tells_order_length_and_zeros_apart() {
        let digest = |parts: &[&[u8]]| parts.iter().fold(Digest::new("t"), |d, p| d.bytes(p)).finish();
        let all = [
            digest(&[b"ab", b"c"]),
            digest(&[b"a", b"bc"]),
            digest(&[b"abc"]),
            digest(&[b"c", b"ab"]),
            digest(&[b"abc\0"]),
            digest(&[]),
            digest(&[b""]),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn digest_keeps_its_numbers() {
        assert_eq!(mix(1), 0x5692_161d_100b_05e5, "SplitMix64's output function");
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(0, 10), 0);
    }
}
