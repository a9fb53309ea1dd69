//! The order of the data set itself.

use super::Sampler;
use crate::hash::Digest;

/// Every sample once, in the data set's order, in every epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequential {
    len: u64,
}

impl Sequential {
    /// Creates the order of `len` samples.
    pub const fn new(len: u64) -> Self {
        Sequential { len }
    }
}

impl Sampler for Sequential {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    fn index(&self, _epoch: u64, position: u64) -> u64 {
        position
    }

    fn fingerprint(&self) -> u64 {
        Digest::new("sequential").word(self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_indices() {
        let order = Sequential::new(5);
        assert_eq!((0..5).map(|p| order.index(3, p)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_ne!(order.fingerprint(), Sequential::new(6).fingerprint());
        assert!(Sequential::new(0).is_empty(0));
    }
}
