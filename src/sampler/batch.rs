//! Which positions the batches of one rank cover.

use super::distributed::{RankTail, Ranks};
use crate::error::{Error, ErrorKind, Result};

/// The positions of one batch: `len` in a row, of which the last `pad` lie beyond the epoch's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSpan {
    /// The global position of the batch's first slot.
    pub first_position: u64,
    /// How many slots, padding included.
    pub len: u32,
    /// How many slots at the end are padding: their samples are repeats and count as invalid.
    pub pad: u32,
}

impl BatchSpan {
    /// Returns the position of each slot in turn. Those of padding are at or beyond the epoch's length.
    pub fn positions(&self) -> std::ops::Range<u64> {
        self.first_position..self.first_position + u64::from(self.len)
    }

    /// Returns whether `slot` holds a sample of its own.
    pub const fn is_valid(&self, slot: u32) -> bool {
        slot < self.len - self.pad
    }
}

/// The batches of one rank over the rest of an epoch, by arithmetic alone.
///
/// From `start` on, global step *s* covers the positions `start + s*B*W .. start + (s+1)*B*W` (batch size *B*, world
/// size *W*), and rank *r* takes the *r*-th run of *B*. What remains after the last whole step is divided evenly, in
/// runs too, as [`RankTail`] says. A run stopped after any step goes on from
/// [`position_after`](BatchPlan::position_after) with any world size, and covers exactly the rest.
///
/// Nothing left means no batches, on every rank. With fewer positions left than ranks, `exact` gives the first ranks
/// one sample each and the others no batch, `pad` gives each rank a batch of one, `drop` gives none.
///
/// # Examples
/// ```
/// use forebay::sampler::{BatchPlan, RankTail, Ranks};
///
/// let ranks = Ranks::new(1, 2).with_tail(RankTail::Exact);
/// let plan = BatchPlan::new(11, 0, 4, &ranks, false)?;
/// assert_eq!(plan.steps(), 2);
/// assert_eq!(plan.batch(0).positions(), 4..8);
/// assert_eq!(plan.batch(1).positions(), 10..11); // rank 0 takes 8..10
/// assert_eq!(plan.position_after(0), 8);
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    len: u64,
    start: u64,
    batch_size: u32,
    rank: u32,
    stride: u64,
    whole: u64,
    tail: Option<BatchSpan>,
    tail_end: u64,
}

impl BatchPlan {
    /// Creates the plan of this rank for the positions `start..len`.
    ///
    /// With `drop_last` a batch of fewer than `batch_size` slots is left out (padding fills slots); each rank decides
    /// that for its own last batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `batch_size` is 0, the rank is not below the world size, or `start` is beyond `len`.
    pub fn new(len: u64, start: u64, batch_size: u32, ranks: &Ranks, drop_last: bool) -> Result<Self> {
        ranks.check()?;
        if batch_size == 0 {
            return Err(
                Error::new(ErrorKind::Config, "batch_size is 0").with_remedy("set batch_size to 1 or more")
            );
        }
        if start > len {
            let message = format!("start position {start} of an epoch of {len} positions");
            return Err(Error::new(ErrorKind::Config, message)
                .with_remedy("resume with the data set and sampler that the position comes from"));
        }
        let stride = u64::from(batch_size) * u64::from(ranks.world_size);
        let whole = (len - start) / stride;
        let tail_start = start + whole * stride;
        let (tail, tail_end) = tail_share(tail_start, len, ranks);
        let kept = tail.len == batch_size || (tail.len > 0 && !drop_last);
        Ok(BatchPlan {
            len,
            start,
            batch_size,
            rank: ranks.rank,
            stride,
            whole,
            tail: kept.then_some(tail),
            tail_end,
        })
    }

    /// Returns the position that the plan starts at.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Returns the number of batches of this rank.
    pub const fn steps(&self) -> u64 {
        self.whole + self.tail.is_some() as u64
    }

    /// Returns whether this rank has no batches.
    pub const fn is_empty(&self) -> bool {
        self.steps() == 0
    }

    /// Returns the positions of this rank's batch of `step`, counted from the plan's start.
    ///
    /// # Panics
    /// Panics if `step` is not below [`steps`](BatchPlan::steps).
    pub fn batch(&self, step: u64) -> BatchSpan {
        assert!(step < self.steps(), "step {step} of {}", self.steps());
        if step < self.whole {
            let first_position =
                self.start + step * self.stride + u64::from(self.rank) * u64::from(self.batch_size);
            return BatchSpan { first_position, len: self.batch_size, pad: 0 };
        }
        self.tail.unwrap_or_default()
    }

    /// Returns the global position from which a run goes on that stopped after `step`: the same on all ranks.
    ///
    /// Every position below it, from the start on, was in some rank's batch (or was left out by `drop_last`).
    pub const fn position_after(&self, step: u64) -> u64 {
        if step < self.whole { self.start + (step + 1) * self.stride } else { self.tail_end }
    }

    /// Returns the position whose sample stands at `position`: itself, or for padding one counted from the start again.
    ///
    /// # Panics
    /// Panics if the epoch has no positions.
    pub const fn sample_position(&self, position: u64) -> u64 {
        position % self.len
    }

    /// Returns how many slots all batches of this rank have together, padding included.
    pub fn samples(&self) -> u64 {
        self.whole * u64::from(self.batch_size) + self.tail.map_or(0, |tail| u64::from(tail.len))
    }
}

/// Returns one rank's share of the last, partial step, and the position up to which all shares reach.
fn tail_share(start: u64, end: u64, ranks: &Ranks) -> (BatchSpan, u64) {
    let (rank, world, rest) = (u64::from(ranks.rank), u64::from(ranks.world_size), end - start);
    let (even, odd) = (rest / world, rest % world);
    let (first, len, tail_end) = match ranks.tail {
        RankTail::Exact => (rank * even + rank.min(odd), even + u64::from(rank < odd), end),
        RankTail::Pad => (rank * rest.div_ceil(world), rest.div_ceil(world), end),
        RankTail::Drop => (rank * even, even, start + even * world),
    };
    let valid = rest.saturating_sub(first).min(len);
    // A share is at most the batch size, since the rest is below batch size times world size.
    let span = BatchSpan { first_position: start + first, len: len as u32, pad: (len - valid) as u32 };
    (span, tail_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plans(
        len: u64,
        start: u64,
        batch: u32,
        world: u32,
        tail: RankTail,
        drop_last: bool,
    ) -> Vec<BatchPlan> {
        (0..world)
            .map(|rank| {
                BatchPlan::new(len, start, batch, &Ranks::new(rank, world).with_tail(tail), drop_last)
            })
            .collect::<Result<_>>()
            .unwrap()
    }

    /// Returns the valid positions of the first `steps` steps of all ranks, sorted.
    fn covered(plans: &[BatchPlan], steps: u64) -> Vec<u64> {
        let mut all: Vec<u64> = plans
            .iter()
            .flat_map(|plan| (0..plan.steps().min(steps)).map(|step| plan.batch(step)))
            .flat_map(|span| span.positions().take((span.len - span.pad) as usize))
            .collect();
        all.sort_unstable();
        all
    }

    fn all_slots(plan: &BatchPlan) -> Vec<BatchSpan> {
        (0..plan.steps()).map(|step| plan.batch(step)).collect()
    }

    proptest! {
        #[test]
        fn exact_covers_the_rest_once(len in 0u64..300, part in 0.0..=1.0, batch in 1u32..20, world in 1u32..9) {
            let start = (len as f64 * part) as u64;
            let plans = plans(len, start, batch, world, RankTail::Exact, false);
            prop_assert_eq!(covered(&plans, u64::MAX), (start..len).collect::<Vec<_>>());
            let (most, least) = (plans[0].samples(), plans[world as usize - 1].samples());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn pad_covers_the_rest_once_with_equal_batches(len in 0u64..300, part in 0.0..=1.0, batch in 1u32..20, world in 1u32..9) {
            let start = (len as f64 * part) as u64;
            let plans = plans(len, start, batch, world, RankTail::Pad, false);
            prop_assert_eq!(covered(&plans, u64::MAX), (start..len).collect::<Vec<_>>());
            let sizes = |plan: &BatchPlan| all_slots(plan).iter().map(|span| span.len).collect::<Vec<_>>();
            for plan in &plans {
                prop_assert_eq!(sizes(plan), sizes(&plans[0]));
            }
            let slots: u64 = plans.iter().map(BatchPlan::samples).sum();
            let world = u64::from(world);
            prop_assert_eq!(slots, (len - start).div_ceil(world) * world);
            for span in plans.iter().flat_map(all_slots) {
                for (slot, position) in span.positions().enumerate() {
                    prop_assert_eq!(span.is_valid(slot as u32), position < len);
                    prop_assert!(plans[0].sample_position(position) < len);
                }
            }
        }

        #[test]
        fn drop_leaves_out_less_than_one_sample_a_rank(len in 0u64..300, part in 0.0..=1.0, batch in 1u32..20, world in 1u32..9) {
            let start = (len as f64 * part) as u64;
            let plans = plans(len, start, batch, world, RankTail::Drop, false);
            let world = u64::from(world);
            let end = start + (len - start) / world * world;
            prop_assert_eq!(covered(&plans, u64::MAX), (start..end).collect::<Vec<_>>());
            for plan in &plans {
                prop_assert_eq!(plan.samples(), plans[0].samples());
                prop_assert!(all_slots(plan).iter().all(|span| span.pad == 0));
            }
        }

        #[test]
        fn drop_last_keeps_full_batches_only(len in 0u64..300, batch in 1u32..20, world in 1u32..9, tail in 0usize..3) {
            let tail = [RankTail::Pad, RankTail::Drop, RankTail::Exact][tail];
            let (all, full) = (plans(len, 0, batch, world, tail, false), plans(len, 0, batch, world, tail, true));
            for (all, full) in all.iter().zip(&full) {
                let mut expected = all_slots(all);
                expected.retain(|span| span.len == batch);
                prop_assert_eq!(all_slots(full), expected);
            }
        }

        #[test]
        fn a_stop_on_some_ranks_resumes_on_others(
            len in 0u64..400, batch in 1u32..20, before in 1u32..9, after in 1u32..9, stop in 0u64..30, tail in 0usize..3,
        ) {
            let tail = [RankTail::Pad, RankTail::Drop, RankTail::Exact][tail];
            let first = plans(len, 0, batch, before, tail, false);
            prop_assume!(first[0].steps() > 0);
            let step = stop % first[0].steps();
            let position = first[0].position_after(step);
            for plan in &first {
                prop_assert_eq!(plan.position_after(step), position);
            }
            let second = plans(len, position, batch, after, RankTail::Exact, false);
            let mut both = covered(&first, step + 1);
            both.extend(covered(&second, u64::MAX));
            prop_assert_eq!(both, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn fewer_samples_than_ranks_and_none_are_defined() {
        let steps =
            |len, tail| plans(len, 0, 8, 4, tail, false).iter().map(BatchPlan::steps).collect::<Vec<_>>();
        assert_eq!(steps(2, RankTail::Exact), [1, 1, 0, 0]);
        assert_eq!(steps(2, RankTail::Pad), [1, 1, 1, 1]);
        assert_eq!(steps(2, RankTail::Drop), [0, 0, 0, 0]);
        for tail in [RankTail::Exact, RankTail::Pad, RankTail::Drop] {
            assert_eq!(steps(0, tail), [0, 0, 0, 0]);
        }
        let last = plans(2, 0, 8, 4, RankTail::Pad, false)[3].batch(0);
        assert_eq!(last, BatchSpan { first_position: 3, len: 1, pad: 1 });
        assert!(!last.is_valid(0));
    }

    #[test]
    fn sizes_near_the_limits_do_not_overflow() {
        let ranks = Ranks::new(u32::MAX - 1, u32::MAX);
        let plan = BatchPlan::new(1 << 63, 0, u32::MAX, &ranks, false).unwrap();
        assert_eq!(plan.steps(), 1);
        assert!(plan.batch(0).first_position < 1 << 63);
        let plan = BatchPlan::new(1 << 63, 5, 1, &Ranks::default(), false).unwrap();
        assert_eq!(plan.batch(plan.steps() - 1).first_position, (1 << 63) - 1);
        assert_eq!(plan.position_after(plan.steps() - 1), 1 << 63);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let ranks = Ranks::default();
        for plan in [
            BatchPlan::new(10, 0, 0, &ranks, false),
            BatchPlan::new(10, 11, 4, &ranks, false),
            BatchPlan::new(10, 0, 4, &Ranks::new(2, 2), false),
        ] {
            assert_eq!(plan.unwrap_err().kind(), ErrorKind::Config);
        }
    }
}
