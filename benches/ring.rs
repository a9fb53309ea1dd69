//! What does a message cost in the ring, beside queues that live in one process only?
//!
//! `one thread` pushes and pops in turn: the price of the instructions. `two threads` streams messages from one thread to
//! the other, with the same back-off for every queue: the price of the cache lines that travel.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use crossbeam_utils::Backoff;

mod common;
// The room stands alone, so the file that is shipped is measured without a door in the public interface.
#[allow(unused)] // what only the crate and the room's unit tests use
#[path = "../src/sync/mod.rs"]
mod sync;

use sync::ring::{Consumer, Producer, Ring};

/// Messages in one measured stream: many, so that starting the thread does not count.
const STREAM: u64 = 10_000;

fn main() {
    common::run(|criterion| {
        queues::<2, 64>(criterion, "ring/task"); // as from the host to a worker
        queues::<64, 32>(criterion, "ring/report"); // as from a worker to the host
    });
}

/// Measures queues of at most `N` messages of `W` words.
fn queues<const W: usize, const N: usize>(criterion: &mut Criterion, name: &str) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    group.bench_function("one thread/forebay", |b| b.iter_custom(|n| one_thread(n, forebay::<W, N>())));
    group.bench_function("one thread/rtrb", |b| b.iter_custom(|n| one_thread(n, rtrb::<W, N>())));
    group.bench_function("one thread/crossbeam", |b| b.iter_custom(|n| one_thread(n, crossbeam::<W, N>())));
    group.throughput(Throughput::Elements(STREAM));
    group.bench_function("two threads/forebay", |b| {
        b.iter_custom(|n| two_threads(n * STREAM, forebay::<W, N>()))
    });
    group.bench_function("two threads/rtrb", |b| b.iter_custom(|n| two_threads(n * STREAM, rtrb::<W, N>())));
    group.bench_function("two threads/crossbeam", |b| {
        b.iter_custom(|n| two_threads(n * STREAM, crossbeam::<W, N>()))
    });
}

/// The two ends of a queue: tells whether a message went in, gives the one that came out.
type Ends<Push, Pop> = (Push, Pop);

fn forebay<const W: usize, const N: usize>()
-> Ends<impl FnMut([u64; W]) -> bool + Send + 'static, impl FnMut() -> Option<[u64; W]>> {
    let ring = Arc::new(Ring::<W, N>::new());
    let (mut producer, mut consumer) = (Producer::new(Arc::clone(&ring)), Consumer::new(ring));
    (move |message| producer.try_push(&message).is_ok(), move || consumer.try_pop().unwrap())
}

fn rtrb<const W: usize, const N: usize>()
-> Ends<impl FnMut([u64; W]) -> bool + Send + 'static, impl FnMut() -> Option<[u64; W]>> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(N);
    (move |message| producer.push(message).is_ok(), move || consumer.pop().ok())
}

fn crossbeam<const W: usize, const N: usize>()
-> Ends<impl FnMut([u64; W]) -> bool + Send + 'static, impl FnMut() -> Option<[u64; W]>> {
    let (sender, receiver) = crossbeam_channel::bounded(N);
    (move |message| sender.try_send(message).is_ok(), move || receiver.try_recv().ok())
}

fn one_thread<const W: usize>(
    messages: u64,
    (mut push, mut pop): Ends<impl FnMut([u64; W]) -> bool, impl FnMut() -> Option<[u64; W]>>,
) -> Duration {
    let start = Instant::now();
    for i in 0..messages {
        assert!(push([i; W]));
        assert_eq!(black_box(pop()).map(|message| message[W - 1]), Some(i));
    }
    start.elapsed()
}

fn two_threads<const W: usize>(
    messages: u64,
    (mut push, mut pop): Ends<
        impl FnMut([u64; W]) -> bool + Send + 'static,
        impl FnMut() -> Option<[u64; W]>,
    >,
) -> Duration {
    let start = Instant::now();
    let pushing = thread::spawn(move || {
        for i in 0..messages {
            let backoff = Backoff::new();
            while !push([i; W]) {
                backoff.snooze();
            }
        }
    });
    for i in 0..messages {
        let backoff = Backoff::new();
        let message = loop {
            match pop() {
                Some(message) => break message,
                None => backoff.snooze(),
            }
        };
        assert_eq!(black_box(message)[W - 1], i);
    }
    pushing.join().unwrap();
    start.elapsed()
}
