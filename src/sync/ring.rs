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
        Ring { tail: line(), head: line(), slots }
    }

    /// Empties it for a successor. Neither side may use it meanwhile, nor go on with it afterwards.
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
    pub fn len(&mut self) -> Result<usize, PushError> {
        self.look()?;
        Ok(self.tail.wrapping_sub(self.head) as usize)
    }

    /// Returns how many pushes will succeed at least.
    ///
    /// # Errors
    /// [`PushError::Corrupt`].
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
        let slot = self.memory.slot(self.head);
        let message = std::array::from_fn(|word| slot[word].load(Ordering::Relaxed));
        self.head = self.head.wrapping_add(1);
        // Release: whoever sees this count may write the slot, so it was read before.
        self.memory.head.index.store(self.head, Ordering::Release);
        Ok(Some(message))
    }
}
