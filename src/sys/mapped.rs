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
#[allow(unused_macros)] // used by the rooms above
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
#[allow(unused_imports)] // used by the rooms above
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
