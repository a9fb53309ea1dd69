//! Samples drawn with replacement, each as often as its weight says.

use std::sync::Arc;

use super::Sampler;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{Digest, SPREAD, below, mix};

/// Independent draws with replacement: sample *i* with probability `weights[i] / sum`.
///
/// Each draw is a function of (seed, epoch, position) alone, in constant time, from an alias table of 12 bytes a
/// sample. Source: M. D. Vose, "A linear algorithm for generating random numbers with a given distribution" (1991).
///
/// # Examples
/// ```
/// use forebay::sampler::{Sampler, Weighted};
///
/// let order = Weighted::new(&[1.0, 0.0, 3.0], 1000, 42)?;
/// let twos = (0..order.len(0)).filter(|&p| order.index(0, p) == 2).count();
/// assert!((650..850).contains(&twos));
/// assert!((0..1000).all(|p| order.index(0, p) != 1));
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weighted {
    /// A draw chooses a column evenly, then keeps it with this probability, else takes its alias.
    keep: Arc<[f64]>,
    alias: Arc<[u32]>,
    len: u64,
    seed: u64,
    table: u64,
}

impl Weighted {
    /// Creates an order of `len` draws an epoch. Weights need not sum to one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a weight is negative or not finite, all are zero (or there are none) while `len` is
    /// not 0, their sum is beyond f64, or there are more than 2^32.
    pub fn new(weights: &[f64], len: u64, seed: u64) -> Result<Self> {
        if let Some((index, weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
            return Err(config(format!("weight {weight} of sample {index}")).with_index(index as u64));
        }
        let sum: f64 = weights.iter().sum();
        if !sum.is_finite() || (sum == 0.0 && len > 0) || u32::try_from(weights.len()).is_err() {
            return Err(config(format!("{} weights that sum to {sum}", weights.len())));
        }
        let (keep, alias) = alias_table(weights, sum);
        let digest = Digest::new("weighted").word(weights.len() as u64);
        let table = weights.iter().fold(digest, |digest, weight| digest.word(weight.to_bits())).finish();
        Ok(Weighted { keep: keep.into(), alias: alias.into(), len, seed, table })
    }
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
        .with_remedy("give one weight a sample, each finite and not negative, at least one above zero")
}

/// Returns for each column the probability to keep it and the index to take otherwise.
fn alias_table(weights: &[f64], sum: f64) -> (Vec<f64>, Vec<u32>) {
    let mean = sum / weights.len() as f64;
    // Heights are in units of the mean; dividing first keeps tiny and huge weights from leaving f64's range.
    let mut keep: Vec<f64> =
        weights.iter().map(|weight| if mean > 0.0 { weight / mean } else { 0.0 }).collect();
    // Whatever rounding leaves over goes to the heaviest, so that a zero weight is never drawn.
    let heaviest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b])).unwrap_or(0);
    let mut alias = vec![heaviest as u32; weights.len()];
    let (mut short, mut tall): (Vec<usize>, Vec<usize>) =
        (0..keep.len()).partition(|&column| keep[column] < 1.0);
    while let (Some(low), Some(&high)) = (short.last().copied(), tall.last()) {
        short.pop();
        alias[low] = high as u32;
        keep[high] = (keep[high] + keep[low]) - 1.0;
        if keep[high] < 1.0 {
            tall.pop();
            short.push(high);
        }
    }
    (keep, alias)
}

impl Sampler for Weighted {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of an order of {}", self.len);
        let key = mix(mix(self.seed.wrapping_add(SPREAD)) ^ epoch.wrapping_mul(SPREAD));
        let bits = mix(key.wrapping_add(position.wrapping_mul(SPREAD)));
        let column = below(bits, self.keep.len() as u64);
        let coin = (mix(bits ^ key.rotate_left(32)) >> 11) as f64 / (1u64 << 53) as f64;
        if coin < self.keep[column as usize] { column } else { u64::from(self.alias[column as usize]) }
    }

    fn fingerprint(&self) -> u64 {
        Digest::new("weighted").word(self.table).word(self.len).word(self.seed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(weights: &[f64], draws: u64) -> Vec<u64> {
        let order = Weighted::new(weights, draws, 11).unwrap();
        let mut counts = vec![0; weights.len()];
        for position in 0..draws {
            counts[order.index(2, position) as usize] += 1;
        }
        counts
    }

    #[test]
    fn samples_come_as_often_as_their_weight() {
        let weights = [0.5, 0.0, 3.0, 1.0, 7.5, 1e-3, 0.0, 2.0, 2.0, 2.0];
        let sum: f64 = weights.iter().sum();
        let draws = 1_000_000;
        for (weight, count) in weights.iter().zip(counts(&weights, draws)) {
            let expected = weight / sum * draws as f64;
            assert!(
                (count as f64 - expected).abs() <= 5.0 * expected.sqrt(),
                "{count} draws, not {expected}"
            );
        }
    }

    #[test]
    fn zero_weights_are_never_drawn() {
        let weights: Vec<f64> = (0..1001).map(|i| if i % 3 == 0 { 0.1 } else { 0.0 }).collect();
        let counts = counts(&weights, 200_000);
        assert!(counts.iter().zip(&weights).all(|(count, weight)| (*count > 0) == (*weight > 0.0)));
    }

    #[test]
    fn draws_depend_on_seed_epoch_and_position_alone() {
        let order = |seed, epoch| {
            let order = Weighted::new(&[1.0; 50], 100, seed).unwrap();
            (0..100).rev().map(|p| order.index(epoch, p)).collect::<Vec<_>>()
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(2, 0));
        assert_ne!(order(1, 0), order(1, 1));
    }

    #[test]
    fn bad_weights_are_refused_and_none_is_fine_for_no_draws() {
        for weights in
            [&[1.0, -1.0][..], &[f64::NAN], &[f64::INFINITY], &[0.0, 0.0], &[], &[f64::MAX, f64::MAX]]
        {
            assert_eq!(Weighted::new(weights, 5, 0).unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(Weighted::new(&[], 0, 0).unwrap().is_empty(0));
        assert_eq!(counts(&[1e-300], 10), [10]);
    }

    #[test]
    fn fingerprint_changes_with_a_weight() {
        let print = |weights: &[f64]| Weighted::new(weights, 5, 0).unwrap().fingerprint();
        assert_ne!(print(&[1.0, 2.0]), print(&[2.0, 1.0]));
    }
}
