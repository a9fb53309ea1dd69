//! Positions to indices: which sample stands where in an epoch, and which positions a rank's batch covers.
//! Does not read samples and holds no state that moves.

mod batch;
mod distributed;
mod sequential;
mod shuffle;
mod subset;
mod weighted;

use std::fmt::Debug;

pub use batch::{BatchPlan, BatchSpan};
pub use distributed::{RankTail, Ranks};
pub use sequential::Sequential;
pub use shuffle::Shuffle;
pub use subset::Subset;
pub use weighted::Weighted;

/// The order of samples: a pure function of (epoch, position), so that any position can be asked at any time.
pub trait Sampler: Debug + Send + Sync {
    /// Returns the number of positions in `epoch`, over all ranks.
    fn len(&self, epoch: u64) -> u64;

    /// Returns whether `epoch` has no positions.
    fn is_empty(&self, epoch: u64) -> bool {
        self.len(epoch) == 0
    }

    /// Returns the data set index that stands at `position` of `epoch`.
    ///
    /// # Panics
    /// May panic if `position` is not below [`len`](Sampler::len).
    fn index(&self, epoch: u64, position: u64) -> u64;

    /// Returns a number that changes when the order does, for checkpoints.
    fn fingerprint(&self) -> u64;
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn len(&self, epoch: u64) -> u64 {
        (**self).len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        (**self).index(epoch, position)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
