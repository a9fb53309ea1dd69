//! A part of a data set, in the order of another sampler.

use std::ops::Range;
use std::sync::Arc;

use super::{Sampler, Sequential, Shuffle};
use crate::hash::Digest;

/// Some samples of a data set: those of a range or a list, in the order of the sampler `S` over them.
///
/// The sampler `S` gives places within the range or list; `Subset` turns them into data set indices.
///
/// # Examples
/// ```
/// use forebay::sampler::{Sampler, Subset};
///
/// let train = Subset::range(0..800).shuffled(42);
/// let held_out = Subset::range(800..1000);
/// assert_eq!((train.len(0), held_out.len(0)), (800, 200));
/// assert_eq!(held_out.index(0, 0), 800);
///
/// let chosen = Subset::list(vec![3, 3, 17]);
/// assert_eq!(chosen.index(0, 2), 17);
/// ```
#[derive(Clone, Debug)]
pub struct Subset<S = Sequential> {
    indices: Indices,
    order: S,
}

#[derive(Clone, Debug)]
enum Indices {
    Range(Range<u64>),
    List(Arc<[u64]>),
}

impl Indices {
    fn len(&self) -> u64 {
        match self {
            Indices::Range(range) => range.end.saturating_sub(range.start),
            Indices::List(list) => list.len() as u64,
        }
    }
}

impl Subset {
    /// Creates the order of the samples `range`, ascending. An inverted range is empty.
    pub fn range(range: Range<u64>) -> Self {
        Subset::new(Indices::Range(range))
    }

    /// Creates the order of the samples in `list`, as listed. An index may occur more than once.
    pub fn list(list: impl Into<Arc<[u64]>>) -> Self {
        Subset::new(Indices::List(list.into()))
    }

    fn new(indices: Indices) -> Self {
        let order = Sequential::new(indices.len());
        Subset { indices, order }
    }

    /// Returns the same samples, shuffled anew in each epoch.
    pub fn shuffled(self, seed: u64) -> Subset<Shuffle> {
        let order = Shuffle::new(self.indices.len(), seed);
        self.ordered_by(order)
    }

    /// Returns the same samples in the order of any sampler over `0..len`, such as a weighted one.
    pub fn ordered_by<S: Sampler>(self, order: S) -> Subset<S> {
        Subset { indices: self.indices, order }
    }
}

impl<S: Sampler> Sampler for Subset<S> {
    fn len(&self, epoch: u64) -> u64 {
        self.order.len(epoch)
    }

    /// Returns the data set index that stands at `position` of `epoch`.
    ///
    /// # Panics
    /// Panics if the inner sampler names a place outside the range or list.
    fn index(&self, epoch: u64, position: u64) -> u64 {
        let (place, len) = (self.order.index(epoch, position), self.indices.len());
        assert!(place < len, "the sampler names place {place} of a subset of {len}");
        match &self.indices {
            Indices::Range(range) => range.start + place,
            Indices::List(list) => list[place as usize],
        }
    }

    fn fingerprint(&self) -> u64 {
        let digest = Digest::new("subset").word(self.order.fingerprint());
        match &self.indices {
            Indices::Range(range) => digest.word(range.start).word(range.end).finish(),
            Indices::List(list) => {
                list.iter().fold(digest.bytes(b"list"), |d, index| d.word(*index)).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(order: &impl Sampler, epoch: u64) -> Vec<u64> {
        (0..order.len(epoch)).map(|p| order.index(epoch, p)).collect()
    }

    #[test]
    fn ranges_and_lists_keep_their_order() {
        assert_eq!(epoch(&Subset::range(5..9), 0), [5, 6, 7, 8]);
        assert_eq!(epoch(&Subset::list([9, 2, 9]), 1), [9, 2, 9]);
        let (start, end) = (9, 5);
        assert!(Subset::range(start..end).is_empty(0));
    }

    #[test]
    fn a_shuffled_subset_holds_the_same_samples() {
        let order = Subset::range(100..200).shuffled(3);
        let mut indices = epoch(&order, 0);
        assert_ne!(indices, epoch(&order, 1));
        indices.sort_unstable();
        assert_eq!(indices, (100..200).collect::<Vec<_>>());
    }

    #[test]
    fn fingerprints_tell_samples_and_order_apart() {
        let prints = [
            Subset::range(0..4).fingerprint(),
            Subset::range(1..5).fingerprint(),
            Subset::list([0, 1, 2, 3]).fingerprint(),
            Subset::list([0, 1, 3, 2]).fingerprint(),
            Subset::range(0..4).shuffled(1).fingerprint(),
            Subset::range(0..4).shuffled(2).fingerprint(),
        ];
        let distinct: std::collections::HashSet<_> = prints.iter().collect();
        assert_eq!(distinct.len(), prints.len());
    }
}
