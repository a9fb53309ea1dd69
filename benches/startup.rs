//! How long is it from `build()` to the first batch, and from one epoch to the next one's first batch?
//!
//! The small data set with the training pipeline. Ending the loader is not in the figures.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use forebay::LoaderBuilder;
use forebay::prelude::*;

mod common;

fn main() {
    common::run(|criterion| {
        let mut group = criterion.benchmark_group("startup");
        group.sample_size(10);
        for workers in [0, 1, 2, 8] {
            group.bench_function(format!("first batch/{workers} workers"), |b| {
                b.iter_custom(|times| (0..times).map(|_| first_batch(builder(workers))).sum());
            });
        }
        group.bench_function("next epoch/2 workers", |b| {
            let loader = builder(2).build().unwrap();
            let mut epoch = 0;
            b.iter_custom(|times| {
                (0..times)
                    .map(|_| {
                        epoch += 1;
                        let start = Instant::now();
                        let mut batches = loader.epoch(epoch);
                        batches.next().unwrap().unwrap();
                        let took = start.elapsed();
                        assert!(batches.all(|batch| batch.is_ok()));
                        took
                    })
                    .sum()
            });
        });
    });
}

fn builder(workers: usize) -> LoaderBuilder {
    Loader::builder(ImageFolder::open(common::tiny()).unwrap())
        .pipeline(Pipeline::train(224))
        .batch_size(8)
        .num_workers(workers)
        .shuffle(true)
}

fn first_batch(builder: LoaderBuilder) -> Duration {
    let start = Instant::now();
    let loader = builder.build().unwrap();
    loader.epoch(0).next().unwrap().unwrap();
    start.elapsed()
}
