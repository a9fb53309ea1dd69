//! What a consumer sees of an epoch: every sample once, in order, the same bytes however they were made.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::Duration;

use forebay::prelude::*;
use forebay::{LoaderBuilder, State};

forebay::test_support!();

const SAMPLES: u64 = 103;

fn builder() -> LoaderBuilder {
    Loader::builder(Synthetic::new(SAMPLES, 40, 30))
        .transform(RandomResizedCrop::new(16))
        .transform(RandomHorizontalFlip::default())
        .transform(Normalize::IMAGENET)
        .batch_size(8)
        .num_workers(2)
        .shuffle(true)
        .seed(5)
}

/// Position, index, label and bytes of each sample, sorted by position.
fn samples(epoch: impl Iterator<Item = forebay::Result<Batch>>) -> Vec<(u64, u64, i64, Vec<u8>)> {
    let mut samples = Vec::new();
    for batch in epoch {
        let batch = batch.unwrap();
        for slot in 0..batch.len() {
            let position = batch.position() + slot as u64;
            let bytes = batch.sample_bytes(slot).to_vec();
            samples.push((position, batch.indices()[slot], batch.labels()[slot], bytes));
        }
    }
    samples.sort();
    samples
}

#[test]
fn every_sample_comes_once_and_in_order() {
    let loader = builder().build().unwrap();
    let epoch = loader.epoch(0);
    assert_eq!(epoch.len(), 13);
    let mut next = 0;
    let mut seen = HashMap::new();
    for batch in epoch {
        let batch = batch.unwrap();
        assert_eq!(batch.position(), next);
        next += batch.len() as u64;
        for &index in batch.indices() {
            *seen.entry(index).or_insert(0) += 1;
        }
        assert!(batch.valid().iter().all(|valid| *valid));
        assert_eq!(batch.images::<f32>().unwrap().shape(), [batch.len(), 3, 16, 16]);
    }
    assert_eq!(next, SAMPLES);
    assert_eq!(seen.len() as u64, SAMPLES);
}

#[test]
fn bytes_do_not_depend_on_workers_transport_or_order() {
    let reference = samples(builder().num_workers(0).build().unwrap().epoch(3));
    assert_eq!(reference.len() as u64, SAMPLES);
    for transport in Transport::ALL {
        for (workers, prefetch, unordered) in [(1, 1, false), (2, 4, true), (5, 2, false)] {
            let loader = builder()
                .transport(transport)
                .num_workers(workers)
                .prefetch(prefetch)
                .unordered(unordered)
                .build()
                .unwrap();
            let got = samples(loader.epoch(3));
            assert!(got == reference, "{transport}, {workers} workers, prefetch {prefetch}");
        }
    }
    assert!(samples(builder().build().unwrap().epoch(4)) != reference, "epochs have orders of their own");
    assert!(
        samples(builder().seed(6).build().unwrap().epoch(3)) != reference,
        "seeds have orders of their own"
    );
}

#[test]
fn an_epoch_begun_again_or_after_a_break_is_whole() {
    let loader = builder().build().unwrap();
    let reference = samples(loader.epoch(0));
    for taken in 0..4 {
        let part: Vec<_> = loader.epoch(1).take(taken).collect();
        assert!(part.iter().all(Result::is_ok));
        drop(part);
        assert!(samples(loader.epoch(0)) == reference);
    }
}

#[test]
fn workers_that_do_not_persist_end_with_their_epoch() {
    for workers in [0, 2] {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let events = seen.clone();
        let loader = builder()
            .num_workers(workers)
            .persistent_workers(false)
            .on_event(move |event| events.lock().unwrap().push(event.to_string()))
            .build()
            .unwrap();
        let mut pids = std::collections::HashSet::new();
        for epoch in 0..3 {
            let persistent = builder().num_workers(workers).build().unwrap();
            assert!(samples(loader.epoch(epoch)) == samples(persistent.epoch(epoch)));
            let before = pids.len();
            pids.extend(loader.stats().workers.iter().filter_map(|worker| worker.pid));
            assert!(workers == 0 || pids.len() > before, "epoch {epoch} has workers of its own");
            // One that is left in the middle ends them as well, and the next epoch begins at once.
            drop(loader.epoch(epoch).next());
        }
        assert_eq!(seen.lock().unwrap().as_slice(), [] as [String; 0]);
        assert_eq!(loader.stats().restarts, 0);
    }
}

#[test]
fn epochs_in_a_row_equal_single_epochs() {
    let loader = builder().unordered(true).build().unwrap();
    let single: Vec<_> = (0..3).map(|epoch| samples(loader.epoch(epoch))).collect();
    let row: Vec<_> = loader.epochs(3).map(samples).collect();
    assert!(row == single);
    // One that is left in the middle does not disturb the next.
    let mut epochs = loader.epochs(3);
    drop(epochs.next().unwrap().next());
    assert!(samples(epochs.next().unwrap()) == single[1]);
}

#[test]
fn a_resumed_epoch_is_the_rest_of_the_interrupted_one() {
    for unordered in [false, true] {
        let whole = samples(builder().unordered(unordered).build().unwrap().epoch(2));
        for taken in [0, 1, 5, 12, 13] {
            let loader = builder().unordered(unordered).build().unwrap();
            let mut epoch = loader.epoch(2);
            let mut first = samples(epoch.by_ref().take(taken));
            let state: State = serde_json::from_str(&serde_json::to_string(&epoch.state()).unwrap()).unwrap();
            drop(epoch);
            let other = builder().unordered(unordered).num_workers(1).build().unwrap();
            first.extend(samples(other.resume(&state).unwrap()));
            first.sort();
            assert!(first == whole, "unordered {unordered}, {taken} taken");
        }
    }
}

#[test]
fn a_consumer_that_keeps_every_slab_is_told_so() {
    let loader = builder().prefetch(1).hold(1).hold_timeout(Duration::from_millis(300)).build().unwrap();
    let mut epoch = loader.epoch(0);
    let kept: Vec<_> = epoch.by_ref().take(2).map(Result::unwrap).collect();
    let error = epoch.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), forebay::ErrorKind::Timeout);
    assert!(error.to_string().contains(".hold(3)"), "{error}");
    drop(kept);
    assert!(epoch.next().unwrap().is_ok());
}

#[test]
fn batches_outlive_epoch_and_loader() {
    let loader = builder().build().unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    let before = batch.image_bytes().to_vec();
    drop(loader);
    assert_eq!(batch.image_bytes(), before);
    assert_eq!(std::thread::spawn(move || batch.len()).join().unwrap(), 8);
}

#[test]
fn memory_that_is_refused_is_said_however_late_an_epoch_begins() {
    // No file can be made there, and no other memory will do.
    let builder = || builder().transport(Transport::File).file_dir("/proc").strict(true);
    for late in [0, 300] {
        let loader = builder().build().unwrap();
        std::thread::sleep(Duration::from_millis(late));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for epoch in 0..2 {
                let mut epoch = loader.epoch(epoch);
                sender.send((epoch.next().unwrap().unwrap_err(), epoch.next().is_none())).unwrap();
            }
        });
        for _ in 0..2 {
            let (error, ended) =
                receiver.recv_timeout(Duration::from_secs(60)).expect("an error, not a wait");
            assert!(error.to_string().contains("/proc") && ended, "{error}");
        }
    }
}

/// Calls `work` on a thread of its own and gives up waiting after a minute.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("a result, not a wait without end")
}

#[test]
fn an_epoch_that_is_kept_does_not_starve_the_next() {
    within_a_minute(|| {
        let loader = builder().build().unwrap();
        let reference = samples(loader.epoch(1));
        let mut kept = loader.epoch(0);
        assert!(kept.next().unwrap().is_ok());
        // Everything that was made ahead of the kept one is in its way out.
        std::thread::sleep(Duration::from_millis(200));
        assert!(samples(loader.epoch(1)) == reference);
        assert!(kept.next().is_none(), "another epoch has taken its place");
        let mut epochs = loader.epochs(3);
        let unfinished = epochs.next();
        assert!(samples(epochs.next().unwrap()) == reference);
        drop(unfinished);
    });
}

#[test]
fn the_last_number_of_all_is_an_epoch_without_batches() {
    within_a_minute(|| assert!(builder().build().unwrap().epoch(u64::MAX).next().is_none()));
}

#[test]
fn a_checkpoint_taken_behind_the_end_resumes_to_nothing() {
    let loader = builder().build().unwrap();
    let state = loader.epoch_from(0, 99).state();
    assert_eq!(state.position, SAMPLES);
    assert_eq!(loader.resume(&state).unwrap().count(), 0);
}

/// An order that fails where nobody expects it.
#[derive(Debug)]
struct BrokenOrder;

impl Sampler for BrokenOrder {
    fn len(&self, _: u64) -> u64 {
        SAMPLES
    }

    fn index(&self, _: u64, position: u64) -> u64 {
        assert!(position < 20, "no order beyond 20");
        position
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[test]
fn a_panic_in_an_order_is_an_error_that_says_so() {
    let error = within_a_minute(|| {
        let loader = builder().sampler(BrokenOrder).build().unwrap();
        loader.epoch(0).find_map(Result::err).unwrap()
    });
    assert!(error.to_string().contains("panicked: no order beyond 20"), "{error}");
}
