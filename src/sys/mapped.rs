//! Typed views of mapped memory: atomics only, so that another process may write there at any time.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::prim::{AtomicU32, AtomicU64};
use crate::sync::ring::{Line, Ring};
use crate::sync::sleep::Sleeper;

/// A type that may lie in memory that other processes write.
///
/// Do not implement it by hand: [`shareable_struct!`] checks the fields.
///
/// # Safety
/// 1. It is `repr(C)` or `repr(transparent)`, so that every process of the same build agrees on where its fields lie.
/// 2. Every field is an atomic integer or itself `Shareable`, or an array of these: all access, by `&self` too, is atomic.
/// 3. Every bit pattern is a valid value, all zero bytes among them; no `bool`, enum, reference, pointer, or `usize`.
/// 4. It has no destructor that matters: values there are never created nor dropped.
pub unsafe trait Shareable: Sized {}

// SAFETY: a 32-bit atomic; every pattern is valid.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: a 64-bit atomic; every pattern is valid.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: an array is its elements one after the other.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}
// SAFETY: `repr(C)`, one atomic and padding.
unsafe impl Shareable for Line {}
// SAFETY: `repr(C)`, two lines and an array of arrays of atomics; zero bytes are the empty ring.
unsafe impl<const W: usize, const N: usize> Shareable for Ring<W, N> {}
// SAFETY: `repr(C)`, one atomic.
unsafe impl Shareable for Sleeper {}

/// Declares a `repr(C)` struct whose fields are all [`Shareable`], and makes it so.
macro_rules! shareable_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $ty:ty,)+ }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $ty,)+ }

        #[allow(unsafe_code)]
        const _: () = {
            const fn field_is_shareable<T: $crate::sys::mapped::Shareable>() {}
            $(field_is_shareable::<$ty>();)+
            // SAFETY: `repr(C)`, and the lines above compile only when every field is shareable.
            unsafe impl $crate::sys::mapped::Shareable for $name {}
        };
    };
}
pub(crate) use shareable_struct;

/// A `T` that lies in a mapping, which it keeps alive.
///
/// In a read-only mapping it may be read only: a store kills the process.
pub struct Mapped<T: Shareable> {
    mapping: Arc<Mapping>,
    /// Points to a `T` within `mapping`, aligned, for as long as `mapping` lives.
    at: NonNull<T>,
}

impl<T: Shareable> Mapped<T> {
    /// Takes the `T` that begins `offset` bytes into the mapping.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when it would reach past the end or is not aligned.
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> Result<Mapped<T>> {
        let at = locate::<T>(&mapping, offset, 1)?;
        Ok(Mapped { mapping, at })
    }

    /// Takes a part of it, such as a field.
    pub fn project<U: Shareable>(&self, part: impl for<'a> FnOnce(&'a T) -> &'a U) -> Mapped<U> {
        // The part lies within `self`, or is static: either way it lives as long as the mapping.
        Mapped { mapping: Arc::clone(&self.mapping), at: NonNull::from(part(self)) }
    }
}

impl<T: Shareable> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `at` points to aligned, mapped memory that lives as long as `self.mapping`; `T: Shareable` is valid
        // for any bytes and accessed atomically only, so other writers do no harm.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Shareable> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        Mapped { mapping: Arc::clone(&self.mapping), at: self.at }
    }
}

impl<T: Shareable> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped<{}>({:p})", std::any::type_name::<T>(), self.at)
    }
}

// SAFETY: it is shared access to atomics in memory that an `Arc` of a `Send + Sync` mapping keeps alive.
unsafe impl<T: Shareable> Send for Mapped<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Shareable> Sync for Mapped<T> {}

/// A run of `T`s in a mapping, which it keeps alive.
pub struct MappedSlice<T: Shareable> {
    mapping: Arc<Mapping>,
    /// Points to `len` elements within `mapping`, aligned, for as long as `mapping` lives.
    at: NonNull<T>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Shareable> MappedSlice<T> {
    /// Takes the `len` elements that begin `offset` bytes into the mapping.
    ///
    /// # Errors
    /// [`ErrorKind::SharedMemory`] when they would reach past the end or are not aligned.
    pub fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Result<MappedSlice<T>> {
        let at = locate::<T>(&mapping, offset, len)?;
        Ok(MappedSlice { mapping, at, len, elements: PhantomData })
    }
}

impl<T: Shareable> Deref for MappedSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `locate` has checked that `len` aligned elements lie within the mapping; see `Mapped::deref`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T: Shareable> Clone for MappedSlice<T> {
    fn clone(&self) -> Self {
        MappedSlice { mapping: Arc::clone(&self.mapping), at: self.at, len: self.len, elements: PhantomData }
    }
}

impl<T: Shareable> fmt::Debug for MappedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedSlice<{}>({:p}, {})", std::any::type_name::<T>(), self.at, self.len)
    }
}

// SAFETY: as for `Mapped`.
unsafe impl<T: Shareable> Send for MappedSlice<T> {}
// SAFETY: as for `Mapped`.
unsafe impl<T: Shareable> Sync for MappedSlice<T> {}

/// Returns where `len` elements lie, checked against the mapping's end and the element's alignment.
fn locate<T>(mapping: &Mapping, offset: usize, len: usize) -> Result<NonNull<T>> {
    let fits = size_of::<T>()
        .checked_mul(len)
        .and_then(|bytes| bytes.checked_add(offset))
        .is_some_and(|end| end <= mapping.len());
    let address = mapping.as_ptr().wrapping_add(offset);
    match NonNull::new(address.cast::<T>()) {
        Some(at) if fits && at.is_aligned() => Ok(at),
        _ => Err(Error::new(
            ErrorKind::SharedMemory,
            format!(
                "{len} x {} bytes at {offset}, aligned to {}, do not fit into a map of {}",
                size_of::<T>(),
                align_of::<T>(),
                mapping.len()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::sync::prim::Ordering;
    use crate::sync::ring::{Consumer, Producer};
    use crate::sys::segment::{Access, Backing, Segment};

    shareable_struct! {
        /// As a worker's control block will be.
        struct Block {
            version: AtomicU32,
            counts: [AtomicU64; 4],
            ring: Ring<2, 8>,
            sleeper: Sleeper,
        }
    }

    fn private(bytes: usize) -> Arc<Mapping> {
        Arc::new(Mapping::private(bytes).unwrap())
    }

    #[test]
    fn what_reaches_past_the_end_or_is_not_aligned_is_refused() {
        let mapping = private(8192);
        for offset in [8192, 8188, 8185, usize::MAX, 4, 1] {
            assert!(Mapped::<AtomicU64>::new(Arc::clone(&mapping), offset).is_err(), "{offset}");
        }
        assert!(Mapped::<AtomicU64>::new(Arc::clone(&mapping), 8184).is_ok());
        assert!(Mapped::<Ring<1, 2>>::new(Arc::clone(&mapping), 64).is_err());
        for (offset, len) in [(0, 1025), (8, 1024), (0, usize::MAX), (usize::MAX - 7, 1)] {
            assert!(
                MappedSlice::<AtomicU64>::new(Arc::clone(&mapping), offset, len).is_err(),
                "{offset} {len}"
            );
        }
        assert_eq!(MappedSlice::<AtomicU64>::new(Arc::clone(&mapping), 8, 1023).unwrap().len(), 1023);
        assert!(MappedSlice::<AtomicU64>::new(mapping, 8192, 0).unwrap().is_empty());
    }

    #[test]
    fn two_maps_of_a_segment_are_one_memory() {
        let directory = tempfile::tempdir().unwrap();
        for backing in [Backing::Memfd, Backing::Shm, Backing::File(directory.path().to_path_buf())] {
            let segment = Segment::create(&backing, "mapped", 8192, &mut |_| Ok(())).unwrap();
            let sent = segment.as_fd().try_clone_to_owned().unwrap();
            let received = Segment::from_fd(sent, 8000).unwrap();
            let here = Arc::new(segment.map(Access::ReadWrite, true).unwrap());
            let there = Arc::new(received.map(Access::ReadOnly, true).unwrap());
            assert_eq!((here.len(), there.len()), (8192, 8000));
            let here = MappedSlice::<AtomicU64>::new(here, 4096, 488).unwrap();
            let there = MappedSlice::<AtomicU64>::new(there, 4096, 488).unwrap();
            here.clone()[487].store(77, Ordering::Relaxed);
            segment.write_at(&9_u64.to_ne_bytes(), 4096).unwrap();
            assert_eq!([0, 1, 487].map(|i| there[i].load(Ordering::Relaxed)), [9, 0, 77]);
        }
    }

    #[test]
    fn parts_keep_the_memory_alive_and_a_ring_works_in_it() {
        let segment = Segment::create(&Backing::Memfd, "ring", size_of::<Block>(), &mut |_| Ok(())).unwrap();
        let map = || Arc::new(segment.map(Access::ReadWrite, false).unwrap());
        let (here, there) =
            (Mapped::<Block>::new(map(), 0).unwrap(), Mapped::<Block>::new(map(), 0).unwrap());
        here.version.store(3, Ordering::Relaxed);
        here.counts[2].store(9, Ordering::Relaxed);
        assert_eq!((there.version.load(Ordering::Relaxed), there.counts[2].load(Ordering::Relaxed)), (3, 9));
        let mut producer = Producer::new(here.project(|block| &block.ring));
        let mut consumer = Consumer::new(there.project(|block| &block.ring));
        let sleeper = there.project(|block| &block.sleeper);
        drop((segment, there));
        std::thread::spawn(move || producer.try_push(&[1, 2]).unwrap()).join().unwrap();
        assert_eq!(consumer.try_pop().unwrap(), Some([1, 2]));
        sleeper.announce();
        assert!(here.sleeper.must_wake());
    }
}
