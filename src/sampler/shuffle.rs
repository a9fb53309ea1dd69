//! A random order that can be asked at any position: nothing is stored, nothing is precomputed.

use super::Sampler;
use crate::hash::{Digest, SPREAD, below, mix};

/// Changes of one half by the other. Six make a Feistel network strong (sources below); eight leave a margin.
const ROUNDS: u64 = 8;

/// In tiny orders a half has a few values only, and mixing all N! orders evenly takes more: 12 rounds fail the
/// chi-square test below at 6 samples, 24 pass it with ten times its seeds.
const TINY_ROUNDS: u64 = 32;

/// Lengths below it count as tiny.
const TINY: u64 = 256;

/// Every sample once, in an order keyed by (seed, epoch).
///
/// Time and memory do not depend on the length (any `u64`), and neither time nor place of a question matters.
///
/// A position is split into a pair (left, right) of `Z_a x Z_b` with `a` near the square root of the length and
/// `a * b` at least the length; rounds in turn add a keyed function of one half to the other. A pair outside the
/// length is sent through again until it falls inside ("cycle walking"). Since `a * b < len + a`, and so below
/// three times the length, that is rare: the mean number of passes is under 1.01 from 10,000 samples on.
///
/// Sources: M. Luby, C. Rackoff, "How to construct pseudorandom permutations from pseudorandom functions" (1988);
/// J. Black, P. Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA 2002) for mixed radices and cycle walking;
/// J. Patarin, "Security of random Feistel schemes with 5 or more rounds" (CRYPTO 2004) for the number of rounds.
/// `a` is even because rounds over two odd halves make even permutations only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    len: u64,
    seed: u64,
    left: u64,
    right: u64,
}

impl Shuffle {
    /// Creates the order of `len` samples for `seed`.
    pub const fn new(len: u64, seed: u64) -> Self {
        let root = len.isqrt();
        let left = if root * root == len { root } else { root + 1 };
        let left = if left < 2 { 2 } else { left + left % 2 };
        Shuffle { len, seed, left, right: len.div_ceil(left) }
    }

    /// Returns the same samples in the order of another seed.
    #[must_use]
    pub const fn with_seed(self, seed: u64) -> Self {
        Shuffle { seed, ..self }
    }

    #[inline]
    fn pass(&self, key: u64, position: u64) -> u64 {
        let (mut left, mut right) = (position / self.right, position % self.right);
        let rounds = if self.len < TINY { TINY_ROUNDS } else { ROUNDS };
        for round in (1..=rounds).step_by(2) {
            left = shift(left, right, round_key(key, round), self.left);
            right = shift(right, left, round_key(key, round + 1), self.right);
        }
        left * self.right + right
    }
}

#[inline]
const fn round_key(key: u64, round: u64) -> u64 {
    mix(key.wrapping_add(round.wrapping_mul(SPREAD)))
}

/// Adds a keyed function of `other` to `half`, modulo `size`.
#[inline]
const fn shift(half: u64, other: u64, key: u64, size: u64) -> u64 {
    let step = below(mix(other.wrapping_mul(SPREAD) ^ key), size);
    let room = size - step;
    if half >= room { half - room } else { half + step }
}

impl Sampler for Shuffle {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    #[inline]
    fn index(&self, epoch: u64, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of an order of {}", self.len);
        let key = mix(mix(self.seed.wrapping_add(SPREAD)) ^ epoch.wrapping_mul(SPREAD));
        let mut index = self.pass(key, position);
        while index >= self.len {
            index = self.pass(key, index);
        }
        index
    }

    fn fingerprint(&self) -> u64 {
        Digest::new("shuffle").word(self.len).word(self.seed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const SEEDS: u64 = 100_000;

    fn order(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
        let shuffle = Shuffle::new(len, seed);
        (0..len).map(|p| shuffle.index(epoch, p)).collect()
    }

    /// Asserts that counts over equally likely cells are within five standard deviations of chi-square's mean.
    fn assert_even(counts: &[u64], what: &str) {
        let draws: u64 = counts.iter().sum();
        let expected = draws as f64 / counts.len() as f64;
        let square: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
        let freedom = (counts.len() - 1) as f64;
        let away = (square - freedom) / (2.0 * freedom).sqrt().max(1.0);
        // The chi-square tail is heavier than the normal one with few degrees of freedom: 7 is about 1e-3 with one.
        assert!(
            away < 7.0,
            "{what}: chi-square {square:.1} over {freedom} degrees of freedom, {away:.1} sigma"
        );
    }

    #[test]
    fn bijection_for_every_small_n() {
        let mut seen = [0u64; 4096 / 64];
        for len in 1..=4096u64 {
            seen.fill(0);
            let shuffle = Shuffle::new(len, len ^ 0x5eed);
            for position in 0..len {
                let index = shuffle.index(len % 7, position);
                assert!(index < len);
                seen[index as usize / 64] |= 1 << (index % 64);
            }
            let distinct: u32 = seen.iter().map(|word| word.count_ones()).sum();
            assert_eq!(u64::from(distinct), len);
        }
    }

    #[test]
    fn domain_stays_below_three_times_the_length() {
        for len in (1..10_000).chain([1 << 20, (1 << 40) + 1, 1 << 63]) {
            let Shuffle { left, right, .. } = Shuffle::new(len, 0);
            let domain = u128::from(left) * u128::from(right);
            assert!(domain >= u128::from(len) && domain < 3 * u128::from(len), "{left} x {right} for {len}");
        }
    }

    #[test]
    fn every_order_of_few_samples_is_equally_likely() {
        for len in 2..=8u64 {
            let cells: u64 = (1..=len).product();
            let mut counts = HashMap::<Vec<u64>, u64>::new();
            for seed in 0..SEEDS {
                *counts.entry(order(len, seed, 0)).or_default() += 1;
            }
            let mut counts: Vec<u64> = counts.into_values().collect();
            counts.resize(cells as usize, 0);
            assert_even(&counts, &format!("orders of {len}"));
        }
    }

    #[test]
    fn pairs_of_neighbours_are_equally_likely() {
        for len in [9u64, 12, 16, 23, 64, 256] {
            let mut counts = vec![0u64; (len * len) as usize];
            for epoch in 0..SEEDS {
                let shuffle = Shuffle::new(len, 7);
                let (a, b) = (shuffle.index(epoch, 0), shuffle.index(epoch, 1));
                counts[(a * len + b) as usize] += 1;
            }
            let counts: Vec<u64> = counts
                .into_iter()
                .enumerate()
                .filter(|(cell, _)| *cell as u64 / len != *cell as u64 % len)
                .map(|(_, count)| count)
                .collect();
            assert_even(&counts, &format!("pairs of {len}"));
        }
    }

    #[test]
    fn parity_is_even_and_odd_alike() {
        for len in [9u64, 16, 25, 64, 81] {
            let mut counts = [0u64; 2];
            for seed in 0..4000 {
                let mut order = order(len, seed, 1);
                let mut swaps = 0;
                for at in 0..order.len() {
                    while order[at] != at as u64 {
                        let to = order[at] as usize;
                        order.swap(at, to);
                        swaps += 1;
                    }
                }
                counts[swaps % 2] += 1;
            }
            assert_even(&counts, &format!("parity of {len}"));
        }
    }

    #[test]
    fn few_samples_stay_in_place_or_keep_their_neighbour() {
        let (mut fixed, mut follow) = (0, 0);
        for seed in 0..100 {
            let order = order(10_000, seed, seed);
            fixed += order.iter().enumerate().filter(|(at, index)| *at as u64 == **index).count();
            follow += order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        }
        // Both are Poisson with mean 100 over 100 orders.
        assert!(
            (50..150).contains(&fixed) && (50..150).contains(&follow),
            "{fixed} fixed, {follow} followed"
        );
    }

    #[test]
    fn any_length_up_to_the_whole_range_works() {
        for len in [1 << 32, (1 << 40) + 7, (1 << 63) - 1, 1 << 63, u64::MAX] {
            let shuffle = Shuffle::new(len, 3);
            let mut seen = HashSet::new();
            for position in (0..1000).chain(len - 1000..len) {
                let index = shuffle.index(0, position);
                assert!(index < len);
                assert!(seen.insert(index));
            }
        }
    }

    #[test]
    fn seed_and_epoch_each_change_the_order() {
        let base = order(1000, 1, 0);
        assert_eq!(base, order(1000, 1, 0));
        assert_ne!(base, order(1000, 2, 0));
        assert_ne!(base, order(1000, 1, 1));
        assert_ne!(order(1000, 2, 1), order(1000, 1, 2));
        assert_ne!(Shuffle::new(9, 1).fingerprint(), Shuffle::new(9, 2).fingerprint());
        assert_eq!(Shuffle::new(9, 1).with_seed(2), Shuffle::new(9, 2));
    }
}
