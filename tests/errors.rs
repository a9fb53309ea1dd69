//! Samples that cannot be made: what batches, epochs and statistics say of them under each policy.

#![allow(clippy::unwrap_used)]

#[path = "common/spoiled.rs"]
mod spoiled;

use std::path::Path;

use forebay::prelude::*;
use forebay::{ErrorKind, LoaderBuilder, MaxErrors, SampleError};

use spoiled::{BROKEN, SAMPLES};

forebay::test_support!();

fn builder(folder: &Path, on_error: OnError) -> LoaderBuilder {
    Loader::builder(ImageFolder::open(folder).unwrap())
        .pipeline(Pipeline::train(16))
        .batch_size(4)
        .num_workers(2)
        .shuffle(true)
        .seed(3)
        .on_error(on_error)
}

fn is_the_broken_one(error: &SampleError) -> bool {
    error.key.ends_with(BROKEN) && error.kind == ErrorKind::Decode && !error.message.is_empty()
}

/// The one slot whose flag is set.
fn only(flags: &[bool]) -> usize {
    assert_eq!(flags.iter().filter(|flag| **flag).count(), 1, "{flags:?}");
    flags.iter().position(|flag| *flag).unwrap()
}

#[test]
fn fail_costs_the_batch_and_the_epoch_goes_on() {
    let folder = spoiled::folder();
    let loader = builder(folder.path(), OnError::Fail).build().unwrap();
    let mut epoch = loader.epoch(0);
    let results: Vec<_> = epoch.by_ref().map(|batch| batch.map(drop)).collect();
    let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!((results.len(), failed.len()), (SAMPLES.div_ceil(4), 1));
    let [error] = epoch.errors() else { panic!("{:?}", epoch.errors()) };
    assert!(is_the_broken_one(error) && error.substitute.is_none(), "{error}");
    assert_eq!(failed[0].path(), Some(Path::new(&error.key)));
    assert_eq!((failed[0].position(), failed[0].index()), (Some(error.position), Some(error.index)));
}

#[test]
fn skip_leaves_one_slot_empty_and_all_others_as_they_are() {
    let folder = spoiled::folder();
    let loader = builder(folder.path(), OnError::Skip).build().unwrap();
    let mut epoch = loader.epoch(0);
    let mut samples = 0;
    let mut empty = Vec::new();
    for batch in epoch.by_ref() {
        let batch = batch.unwrap();
        samples += batch.len();
        assert!(batch.substituted().iter().all(|substituted| !substituted));
        let [error] = batch.errors() else {
            assert!(batch.errors().is_empty() && batch.valid().iter().all(|valid| *valid));
            continue;
        };
        let slot = only(&batch.valid().iter().map(|valid| !valid).collect::<Vec<_>>());
        assert_eq!(error.position, batch.position() + slot as u64);
        assert_eq!(error.index, batch.indices()[slot]);
        assert!(batch.sample_bytes(slot).iter().all(|byte| *byte == 0));
        assert_eq!(batch.labels()[slot], 0);
        empty.push(error.clone());
    }
    assert_eq!(samples, SAMPLES);
    assert_eq!(epoch.errors(), empty);
    assert!(is_the_broken_one(&empty[0]) && empty.len() == 1, "{empty:?}");
    assert_eq!(loader.stats().failed, 1);
}

#[test]
fn substitute_fills_the_slot_with_another_sample_and_says_which() {
    let folder = spoiled::folder();
    let loader = builder(folder.path(), OnError::Substitute).build().unwrap();
    let mut epoch = loader.epoch(0);
    let mut seen = 0;
    for batch in epoch.by_ref() {
        let batch = batch.unwrap();
        assert!(batch.valid().iter().all(|valid| *valid));
        if batch.errors().is_empty() {
            assert!(batch.substituted().iter().all(|substituted| !substituted));
            continue;
        }
        let slot = only(batch.substituted());
        let error = batch.errors().last().unwrap();
        assert_eq!(error.position, batch.position() + slot as u64);
        assert_eq!(error.substitute, Some(batch.indices()[slot]));
        assert_ne!(error.substitute, Some(error.index));
        assert!(batch.sample_bytes(slot).iter().any(|byte| *byte != 0));
        seen += 1;
    }
    assert_eq!(seen, 1);
    assert!(is_the_broken_one(&epoch.errors()[0]));
}

#[test]
fn samples_above_the_error_budget_end_the_loader_and_are_told() {
    let folder = spoiled::folder();
    for max_errors in [MaxErrors::Count(0), MaxErrors::Share(0.0), MaxErrors::Share(0.03)] {
        // 3 % of 31 samples are none.
        let loader = builder(folder.path(), OnError::Skip).max_errors(max_errors).build().unwrap();
        let mut epoch = loader.epoch(0);
        let error = epoch.by_ref().find_map(Result::err).unwrap();
        assert_eq!((error.kind(), error.position()), (ErrorKind::Limit, None));
        assert!(error.message().contains("1 of 31 samples of epoch 0 failed, 0 may"), "{error}");
        assert!(epoch.next().is_none());
        let [failed] = epoch.errors() else { panic!("{max_errors}: {:?}", epoch.errors()) };
        assert!(is_the_broken_one(failed), "{failed}");
    }
    for max_errors in [MaxErrors::Count(1), MaxErrors::Share(0.04), MaxErrors::Unlimited] {
        let loader = builder(folder.path(), OnError::Skip).max_errors(max_errors).build().unwrap();
        for epoch in loader.epochs(2) {
            assert!(epoch.map(Result::unwrap).count() == SAMPLES.div_ceil(4), "the budget is an epoch's");
        }
    }
}

#[test]
fn the_failures_of_batches_that_were_never_taken_are_told_as_well() {
    let folder = spoiled::folder();
    for name in ["animal/again.jpg", "land/again.jpg"] {
        std::fs::copy(folder.path().join(BROKEN), folder.path().join(name)).unwrap();
    }
    let max_errors = MaxErrors::Count(2);
    let builder = builder(folder.path(), OnError::Skip).batch_size(1).prefetch(40).max_errors(max_errors);
    let loader = builder.build().unwrap();
    let mut epoch = loader.epoch(0);
    // The budget is gone before the first batch is taken: there is a slab for every sample.
    while loader.stats().failed < 3 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(epoch.by_ref().any(|batch| batch.is_err()));
    let positions: Vec<_> = epoch.errors().iter().map(|error| error.position).collect();
    assert!(positions.len() == 3 && positions.is_sorted(), "{positions:?}");
}

#[test]
fn a_share_that_is_none_is_refused() {
    let folder = spoiled::folder();
    for share in [-0.1, 1.1, f64::NAN] {
        let builder = builder(folder.path(), OnError::Skip).max_errors(MaxErrors::Share(share));
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.remedy().unwrap().contains("from 0 to 1"), "{error}");
    }
}
