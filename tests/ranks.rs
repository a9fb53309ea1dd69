//! Several training processes divide an epoch: what each of them gets, and how another number of them goes on.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use forebay::prelude::*;
use forebay::{LoaderBuilder, State};

forebay::test_support!();

/// Divides by neither 3 nor 4 nor the batch size.
const SAMPLES: u64 = 103;

fn builder(rank: u32, world_size: u32, tail: RankTail) -> LoaderBuilder {
    Loader::builder(Synthetic::new(SAMPLES, 12, 10))
        .transform(RandomResizedCrop::new(8))
        .transform(RandomHorizontalFlip::default())
        .batch_size(5)
        .shuffle(true)
        .seed(11)
        .num_workers(0)
        .ranks(Ranks { rank, world_size, tail })
}

fn loaders(world_size: u32, tail: RankTail) -> Vec<Loader> {
    (0..world_size).map(|rank| builder(rank, world_size, tail).build().unwrap()).collect()
}

/// One slot of one batch: position, index, whether it counts, pixels.
type Slot = (u64, u64, bool, Vec<u8>);

fn slots(batches: impl Iterator<Item = forebay::Result<Batch>>) -> Vec<Slot> {
    let mut slots = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        for slot in 0..batch.len() {
            let position = batch.position() + slot as u64;
            slots.push((
                position,
                batch.indices()[slot],
                batch.valid()[slot],
                batch.sample_bytes(slot).to_vec(),
            ));
        }
    }
    slots
}

/// What one process alone loads of `epoch`: index and pixels by position.
fn alone(epoch: u64) -> BTreeMap<u64, (u64, Vec<u8>)> {
    let loader = builder(0, 1, RankTail::Exact).build().unwrap();
    let reference: BTreeMap<_, _> = slots(loader.epoch(epoch))
        .into_iter()
        .map(|(position, index, _, pixels)| (position, (index, pixels)))
        .collect();
    assert_eq!(reference.len() as u64, SAMPLES);
    reference
}

/// Checks that the slots that count are each position of `reference` once, with its index and pixels.
fn assert_covers(slots: &[Slot], reference: &BTreeMap<u64, (u64, Vec<u8>)>) {
    let mut seen = BTreeMap::new();
    for (position, index, _, pixels) in slots.iter().filter(|(_, _, valid, _)| *valid) {
        let before = seen.insert(*position, (*index, pixels.clone()));
        assert!(before.is_none(), "position {position} came twice");
    }
    assert!(&seen == reference, "{} of {} positions, or other bytes", seen.len(), reference.len());
}

#[test]
fn exact_ranks_share_every_sample_once() {
    let loaders = loaders(3, RankTail::Exact);
    let parts: Vec<_> = loaders.iter().map(|loader| slots(loader.epoch(1))).collect();
    assert_covers(&parts.concat(), &alone(1));
    let lengths: Vec<_> = parts.iter().map(Vec::len).collect();
    assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{lengths:?}");
    assert!(parts.iter().flatten().all(|(_, _, valid, _)| *valid), "exact has no padding");
}

#[test]
fn padded_ranks_take_equally_many_batches_and_mask_what_is_added() {
    let loaders = loaders(3, RankTail::Pad);
    let mut all = Vec::new();
    let mut shapes = Vec::new();
    for loader in &loaders {
        let lengths: Vec<_> = loader.epoch(1).map(|batch| batch.unwrap().len()).collect();
        assert_eq!(lengths.len() as u64, loader.steps(1));
        shapes.push(lengths);
        all.extend(slots(loader.epoch(1)));
    }
    assert!(shapes.iter().all(|lengths| *lengths == shapes[0]), "{shapes:?}");
    // 103 samples on 3 ranks are 35 each, so 2 are added.
    assert_eq!(all.len() as u64, SAMPLES.next_multiple_of(3));
    assert_eq!(all.iter().filter(|(_, _, valid, _)| !valid).count(), 2);
    assert_covers(&all, &alone(1));
}

#[test]
fn dropping_ranks_leave_out_less_than_one_sample_a_rank() {
    let parts: Vec<_> = loaders(3, RankTail::Drop).iter().map(|loader| slots(loader.epoch(0))).collect();
    assert!(parts.iter().all(|part| part.len() as u64 == SAMPLES / 3));
    let reference = alone(0);
    let kept = reference.into_iter().take(3 * (SAMPLES as usize / 3)).collect();
    assert_covers(&parts.concat(), &kept);
}

/// Takes `steps` batches on each of 4 ranks, checks that their states are equal, and takes the rest on 3 others.
fn handed_over(steps: usize, tail: RankTail, workers: usize) {
    let mut all = Vec::new();
    let mut states: Vec<State> = Vec::new();
    for rank in 0..4 {
        let loader = builder(rank, 4, tail).num_workers(workers).build().unwrap();
        let mut epoch = loader.epoch(2);
        all.extend(slots(epoch.by_ref().take(steps)));
        states.push(epoch.state());
    }
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    assert_eq!(states[0].position, (steps as u64 * 5 * 4).min(SAMPLES));
    // It goes through a file, as a checkpoint does.
    let state: State = serde_json::from_str(&serde_json::to_string(&states[0]).unwrap()).unwrap();
    for rank in 0..3 {
        let loader = builder(rank, 3, tail).num_workers(workers).build().unwrap();
        all.extend(slots(loader.resume(&state).unwrap()));
    }
    assert_covers(&all, &alone(2));
}

#[test]
fn three_ranks_go_on_where_four_stopped() {
    for tail in [RankTail::Exact, RankTail::Pad] {
        for steps in 0..=5 {
            handed_over(steps, tail, 0);
        }
    }
}

#[test]
fn the_hand_over_is_the_same_with_worker_processes() {
    handed_over(2, RankTail::Exact, 2);
}

#[test]
fn a_checkpoint_of_another_seed_is_refused() {
    let state = builder(0, 1, RankTail::Exact).build().unwrap().epoch(0).state();
    let error = builder(0, 3, RankTail::Exact).seed(12).build().unwrap().resume(&state).unwrap_err();
    assert!(error.message().contains("seed is 11, this loader's is 12"), "{error}");
}
