//! A queue of fixed-size messages from one producer to one consumer, in memory that both processes map.
//!
//! Lamport's single-producer single-consumer ring ("Specifying concurrent program modules", 1983) with the cached indices
//! of Lee, Bu and Chandranmenon ("A lock-free, cache-efficient shared ring buffer", 2009). `README.md` has the orderings.

use std::fmt;
use std::ops::Deref;

use super::prim::{AtomicU32, AtomicU64, Ordering};

/// One index on cache lines of its own; 128 bytes, since processors fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line {
    index: AtomicU32,
}

/// The shared part of a queue of at most `N` messages of `W` words.
///
/// `N` is a power of two. All zero bytes are the empty ring. Both indices count messages since the start and wrap around
/// at 2^32; only their low bits name a slot.
#[repr(C)]
pub struct Ring<const W: usize, const N: usize> {
    /// How many messages were pushed; written by the producer only.
    tail: Line,
    /// How many messages were popped; written by the consumer only.
    head: Line,
    slots: [[AtomicU64; W]; N],
    /// What loom watches in the place of each slot.
    #[cfg(all(test, loom))]
    watched: [super::explore::Plain; N],
}

impl<const W: usize, const N: usize> Ring<W, N> {
    /// The capacity as an index distance; fails to compile for a capacity that is none.
    const CAPACITY: u32 = {
        assert!(W > 0 && N.is_power_of_two() && N <= 1 << 31, "N must be a power of two, at most 2^31");
        N as u32
    };

    /// Creates an empty ring in memory of this process.
    #[cfg(test)]
    pub fn new() -> Self {
        let line = || Line { index: AtomicU32::new(0) };
        let slots = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        Ring {
            tail: line(),
            head: line(),
            slots,
            #[cfg(all(test, loom))]
            watched: std::array::from_fn(|_| Default::default()),
        }
    }

    /// Empties it for a successor. Neither side may use it meanwhile, nor go on with it afterwards.
    #[cfg(all(test, loom))]
    pub fn reset(&self) {
        self.tail.index.store(0, Ordering::Relaxed);
        self.head.index.store(0, Ordering::Relaxed);
    }

    fn slot(&self, index: u32) -> &[AtomicU64; W] {
        &self.slots[index as usize & (N - 1)]
    }
}

impl<const W: usize, const N: usize> fmt::Debug for Ring<W, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring<{W}, {N}>")
    }
}

/// Why a message was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The consumer has not yet made room.
    Full,
    /// The consumer's index is impossible: its process is broken or hostile.
    Corrupt,
}

/// The producer's index is impossible: its process is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The side that pushes. There is one at a time, and it starts on an empty ring.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    /// How many were pushed. Kept here and never read back, so the peer cannot move it.
    tail: u32,
    /// The last valid count of the consumer's that was seen: at most `N` behind `tail`.
    head: u32,
}

impl<const W: usize, const N: usize, M: Deref<Target = Ring<W, N>>> Producer<M> {
    /// Takes the producing side of an empty ring.
    pub fn new(memory: M) -> Self {
        Producer { memory, tail: 0, head: 0 }
    }

    /// Pushes a message, if there is room.
    ///
    /// # Errors
    /// [`PushError::Full`], [`PushError::Corrupt`].
    pub fn try_push(&mut self, message: &[u64; W]) -> Result<(), PushError> {
        if self.tail.wrapping_sub(self.head) == Ring::<W, N>::CAPACITY {
            self.look()?;
            if self.tail.wrapping_sub(self.head) == Ring::<W, N>::CAPACITY {
                return Err(PushError::Full);
            }
        }
        #[cfg(all(test, loom))]
        self.memory.watched[self.tail as usize & (N - 1)].write();
        for (word, &value) in self.memory.slot(self.tail).iter().zip(message) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        // Release: whoever sees this count sees the words.
        self.memory.tail.index.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Returns how many messages are not yet popped, as far as can be seen now.
    ///
    /// # Errors
    /// [`PushError::Corrupt`].
    #[cfg(test)]
    pub fn len(&mut self) -> Result<usize, PushError> {
        self.look()?;
        Ok(self.tail.wrapping_sub(self.head) as usize)
    }

    /// Returns how many pushes will succeed at least.
    ///
    /// # Errors
    /// [`PushError::Corrupt`].
    #[cfg(test)]
    pub fn free(&mut self) -> Result<usize, PushError> {
        Ok(N - self.len()?)
    }

    /// Reads the consumer's count, which may only have come nearer to ours.
    fn look(&mut self) -> Result<(), PushError> {
        // Acquire: the words of the slots that this count frees were read before it was stored.
        let head = self.memory.head.index.load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head) {
            return Err(PushError::Corrupt);
        }
        self.head = head;
        Ok(())
    }
}

/// The side that pops. There is one at a time, and it starts on a ring that nothing was popped from.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    /// How many were popped. Kept here and never read back, so the peer cannot move it.
    head: u32,
    /// The last valid count of the producer's that was seen: at most `N` ahead of `head`.
    tail: u32,
}

impl<const W: usize, const N: usize, M: Deref<Target = Ring<W, N>>> Consumer<M> {
    /// Takes the consuming side of a ring that nothing was popped from.
    pub fn new(memory: M) -> Self {
        Consumer { memory, head: 0, tail: 0 }
    }

    /// Pops the oldest message, if there is one. Its words are what the producer's process put there: check them.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn try_pop(&mut self) -> Result<Option<[u64; W]>, Corrupt> {
        if self.head == self.tail {
            // Acquire: the words of the messages that this count covers.
            let tail = self.memory.tail.index.load(Ordering::Acquire);
            if tail.wrapping_sub(self.head) > Ring::<W, N>::CAPACITY {
                return Err(Corrupt);
            }
            self.tail = tail;
            if self.head == tail {
                return Ok(None);
            }
        }
        #[cfg(all(test, loom))]
        self.memory.watched[self.head as usize & (N - 1)].read();
        let slot = self.memory.slot(self.head);
        let message = std::array::from_fn(|word| slot[word].load(Ordering::Relaxed));
        self.head = self.head.wrapping_add(1);
        // Release: whoever sees this count may write the slot, so it was read before.
        self.memory.head.index.store(self.head, Ordering::Release);
        Ok(Some(message))
    }
}

#[cfg(test)]
impl<const W: usize, const N: usize> Ring<W, N> {
    /// Creates an empty ring whose both sides have counted up to `start`, and its sides.
    fn started<M>(start: u32, share: impl FnOnce(Self) -> (M, M)) -> (Producer<M>, Consumer<M>) {
        let ring = Ring::new();
        ring.tail.index.store(start, Ordering::Relaxed);
        ring.head.index.store(start, Ordering::Relaxed);
        let (a, b) = share(ring);
        (Producer { memory: a, tail: start, head: start }, Consumer { memory: b, head: start, tail: start })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn shared<T>(value: T) -> (Arc<T>, Arc<T>) {
        let value = Arc::new(value);
        (Arc::clone(&value), value)
    }

    #[test]
    fn zero_bytes_are_the_empty_ring() {
        let ring = Ring::<3, 4>::new();
        assert_eq!(ring.tail.index.load(Ordering::Relaxed), 0);
        assert_eq!(size_of::<Ring<3, 4>>(), 128 + 128 + 128);
        assert_eq!(align_of::<Ring<3, 4>>(), 128);
        assert_eq!(Consumer::new(&ring).try_pop(), Ok(None));
    }

    #[test]
    fn a_full_ring_takes_no_more_and_loses_nothing() {
        let ring = Ring::<1, 4>::new();
        let mut producer = Producer::new(&ring);
        let mut consumer = Consumer::new(&ring);
        for i in 0..4 {
            assert_eq!(producer.free(), Ok(4 - i as usize));
            producer.try_push(&[i]).unwrap();
        }
        assert_eq!(producer.try_push(&[9]), Err(PushError::Full));
        assert_eq!(producer.len(), Ok(4));
        assert_eq!(consumer.try_pop(), Ok(Some([0])));
        producer.try_push(&[4]).unwrap();
        assert_eq!(
            (0..5).map(|_| consumer.try_pop().unwrap()).collect::<Vec<_>>(),
            [Some([1]), Some([2]), Some([3]), Some([4]), None]
        );
    }

    #[test]
    fn an_impossible_count_of_the_peer_is_noticed_and_changes_nothing() {
        let ring = Ring::<1, 4>::new();
        let mut producer = Producer::new(&ring);
        let mut consumer = Consumer::new(&ring);
        for bad in [1, 5, u32::MAX, 1 << 31] {
            ring.head.index.store(bad, Ordering::Relaxed);
            assert_eq!(producer.len(), Err(PushError::Corrupt), "{bad}");
        }
        for bad in [5, u32::MAX, 1 << 31] {
            ring.tail.index.store(bad, Ordering::Relaxed);
            assert_eq!(consumer.try_pop(), Err(Corrupt), "{bad}");
        }
        ring.head.index.store(0, Ordering::Relaxed);
        producer.try_push(&[7]).unwrap();
        assert_eq!(consumer.try_pop(), Ok(Some([7])));
    }

    #[test]
    fn a_count_that_goes_back_is_noticed() {
        let ring = Ring::<1, 4>::new();
        let mut producer = Producer::new(&ring);
        let mut consumer = Consumer::new(&ring);
        for i in 0..3 {
            producer.try_push(&[i]).unwrap();
            consumer.try_pop().unwrap();
        }
        assert_eq!(producer.len(), Ok(0));
        ring.head.index.store(2, Ordering::Relaxed);
        assert_eq!(producer.len(), Err(PushError::Corrupt));
    }

    #[test]
    fn two_threads_see_every_message_once_in_order_across_the_wrap() {
        const COUNT: u64 = 200_000;
        let (mut producer, mut consumer) = Ring::<2, 8>::started(u32::MAX - 1000, shared);
        let pushing = std::thread::spawn(move || {
            for i in 0..COUNT {
                while producer.try_push(&[i, !i]) == Err(PushError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        for i in 0..COUNT {
            let message = loop {
                match consumer.try_pop().unwrap() {
                    Some(message) => break message,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(message, [i, !i]);
        }
        pushing.join().unwrap();
        assert_eq!(consumer.try_pop(), Ok(None));
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_bounded_queue(start: u32, pushes in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut producer, mut consumer) = Ring::<1, 4>::started(start, shared);
            let mut model = VecDeque::new();
            for (i, push) in pushes.into_iter().enumerate() {
                if push {
                    let pushed = producer.try_push(&[i as u64]);
                    prop_assert_eq!(pushed.is_ok(), model.len() < 4);
                    if pushed.is_ok() {
                        model.push_back([i as u64]);
                    }
                } else {
                    prop_assert_eq!(consumer.try_pop().unwrap(), model.pop_front());
                }
                prop_assert_eq!(producer.len().unwrap(), model.len());
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::explore::explore;

    fn shared<T>(value: T) -> (Arc<T>, Arc<T>) {
        let value = Arc::new(value);
        (Arc::clone(&value), value)
    }

    /// A message whose words belong together, so that a torn or stale one is seen.
    fn message(i: u64) -> [u64; 2] {
        [i + 1, !(i + 1)]
    }

    fn pop<const N: usize>(consumer: &mut Consumer<Arc<Ring<2, N>>>) -> [u64; 2] {
        loop {
            match consumer.try_pop().unwrap() {
                Some(message) => return message,
                None => thread::yield_now(),
            }
        }
    }

    #[test]
    fn an_empty_ring_gives_nothing_or_the_whole_message() {
        explore("empty", || {
            let (mut producer, mut consumer) = Ring::<2, 2>::started(0, shared);
            let pushing = thread::spawn(move || producer.try_push(&message(0)).unwrap());
            let early = consumer.try_pop().unwrap();
            pushing.join().unwrap();
            let late = consumer.try_pop().unwrap();
            assert_eq!(early.or(late), Some(message(0)));
            assert!(early.is_none() || late.is_none());
        });
    }

    #[test]
    fn a_full_ring_refuses_until_the_slot_was_read() {
        explore("full", || {
            let (mut producer, mut consumer) = Ring::<2, 1>::started(0, shared);
            producer.try_push(&message(0)).unwrap();
            let popping = thread::spawn(move || {
                let first = consumer.try_pop().unwrap();
                (first, consumer)
            });
            let refused = producer.try_push(&message(1)) == Err(PushError::Full);
            let (first, mut consumer) = popping.join().unwrap();
            assert_eq!(first, Some(message(0)));
            if refused {
                assert_eq!(producer.len(), Ok(0));
                producer.try_push(&message(1)).unwrap();
            }
            assert_eq!(consumer.try_pop(), Ok(Some(message(1))));
        });
    }

    #[test]
    fn order_is_kept_where_slots_and_counts_wrap_around() {
        explore("wrap-around", || {
            let (mut producer, mut consumer) = Ring::<2, 2>::started(u32::MAX - 1, shared);
            let pushing = thread::spawn(move || {
                for i in 0..3 {
                    while producer.try_push(&message(i)) == Err(PushError::Full) {
                        thread::yield_now();
                    }
                }
            });
            for i in 0..3 {
                assert_eq!(pop(&mut consumer), message(i));
            }
            pushing.join().unwrap();
            assert_eq!(consumer.try_pop(), Ok(None));
        });
    }

    /// Pushes as `try_push` does, but dies after `steps` of its stores.
    fn push_and_die(ring: &Ring<2, 2>, tail: u32, message: [u64; 2], steps: usize) {
        for word in 0..steps.min(2) {
            ring.slot(tail)[word].store(message[word], Ordering::Relaxed);
        }
        if steps > 2 {
            ring.tail.index.store(tail + 1, Ordering::Release);
        }
    }

    #[test]
    fn a_producer_that_dies_after_any_step_leaves_whole_messages_only() {
        for steps in 0..=3 {
            explore(&format!("producer dies at {steps}"), move || {
                let (mut producer, mut consumer) = Ring::<2, 2>::started(0, shared);
                let ring = Arc::clone(&consumer.memory);
                let dying = thread::spawn(move || {
                    producer.try_push(&message(0)).unwrap();
                    push_and_die(&producer.memory, 1, message(1), steps);
                });
                let mut seen: Vec<_> = consumer.try_pop().unwrap().into_iter().collect();
                dying.join().unwrap();
                while let Some(message) = consumer.try_pop().unwrap() {
                    seen.push(message);
                }
                let expected: &[_] = if steps == 3 { &[message(0), message(1)] } else { &[message(0)] };
                assert_eq!(seen, expected);
                succeed(ring);
            });
        }
    }

    #[test]
    fn a_consumer_that_dies_after_any_step_frees_read_slots_only() {
        for steps in 0..=3 {
            explore(&format!("consumer dies at {steps}"), move || {
                let (mut producer, consumer) = Ring::<2, 2>::started(0, shared);
                producer.try_push(&message(0)).unwrap();
                producer.try_push(&message(1)).unwrap();
                let ring = Arc::clone(&consumer.memory);
                let dying = thread::spawn(move || {
                    let ring = consumer.memory;
                    assert_eq!(ring.tail.index.load(Ordering::Acquire), 2);
                    for word in 0..steps.min(2) {
                        assert_eq!(ring.slot(0)[word].load(Ordering::Relaxed), message(0)[word]);
                    }
                    if steps > 2 {
                        ring.head.index.store(1, Ordering::Release);
                    }
                });
                let early = producer.try_push(&message(2));
                dying.join().unwrap();
                let late = producer.try_push(&message(2));
                assert_eq!(early.is_ok() || late.is_ok(), steps == 3);
                succeed(ring);
            });
        }
    }

    /// The successor of a dead side starts on the ring made new, with a new peer.
    fn succeed(ring: Arc<Ring<2, 2>>) {
        ring.reset();
        let mut producer = Producer::new(Arc::clone(&ring));
        let mut consumer = Consumer::new(ring);
        let pushing = thread::spawn(move || producer.try_push(&message(7)).unwrap());
        assert_eq!(pop(&mut consumer), message(7));
        pushing.join().unwrap();
    }
}
