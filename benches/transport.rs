//! What does each way from worker to consumer cost, with the same work behind it?
//!
//! Two workers make cheap samples of 224x224 in `f32`, and the consumer reads every byte once: an epoch of 16 batches of
//! 32. `in-process` does the same work in threads.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;

use criterion::Throughput;
use forebay::prelude::*;

mod common;

const SAMPLES: u64 = 512;
const SIDE: u32 = 224;

fn main() {
    common::run(|criterion| {
        let mut group = criterion.benchmark_group("transport");
        group.sample_size(10);
        let bytes = SAMPLES * u64::from(SIDE * SIDE * 3) * DType::F32.size() as u64;
        group.throughput(Throughput::ElementsAndBytes { elements: SAMPLES, bytes });
        for transport in Transport::ALL.into_iter().filter(|transport| *transport != Transport::Auto) {
            let builder = Loader::builder(Synthetic::new(SAMPLES, SIDE, SIDE))
                .batch_size(32)
                .num_workers(2)
                .transport(transport)
                .strict(true);
            let loader = match builder.build() {
                Ok(loader) => loader,
                Err(error) => {
                    println!("transport/{transport}: skipped: {error}"); // such as a /dev/shm of 64 MB
                    continue;
                }
            };
            let mut epoch = 0;
            group.bench_function(transport.name(), |b| {
                b.iter(|| {
                    epoch += 1;
                    loader.epoch(epoch).map(|batch| sum(&batch.unwrap())).fold(0, u64::wrapping_add)
                });
            });
        }
    });
}

/// Reads every byte of the images.
fn sum(batch: &Batch) -> u64 {
    let (words, _) = batch.image_bytes().as_chunks::<8>();
    black_box(words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word))))
}
