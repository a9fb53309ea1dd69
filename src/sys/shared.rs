//! Large read-only arrays that all workers map instead of copying.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use super::limits;
use super::mapping::Mapping;
use super::segment::{Backing, Segment};
use crate::error::{Error, ErrorKind, Result};

/// Smaller arrays travel with the message: a descriptor each would cost more than their bytes.
const SMALLEST_SEGMENT: usize = 64 << 10;

/// An immutable array that worker processes map instead of receiving a copy.
///
/// A data set keeps its large index in it (offsets, labels, packed names): ten million entries then cost their bytes
/// once, however many workers there are. It dereferences to a slice; a clone is another handle to the same memory.
///
/// Arrays below 64 KiB, and all where no shared memory can be had, lie in private memory and travel as plain numbers.
/// Serialised anywhere but on the way to a worker, it is a plain sequence of its elements.
///
/// # Examples
/// ```
/// use forebay::Shared;
///
/// let offsets = Shared::from_vec((0..100_000_u64).collect())?;
/// assert_eq!(offsets[99_999], 99_999);
/// # Ok::<(), forebay::Error>(())
/// ```
pub struct Shared<T: ?Sized> {
    store: Arc<Store<T>>,
}

enum Store<T: ?Sized> {
    Private(Box<T>),
    Segment {
        segment: Arc<Segment>,
        /// Keeps `at` mapped.
        _mapping: Arc<Mapping>,
        /// Points into the mapping, aligned and initialised; nobody writes there while the mapping lives.
        at: NonNull<T>,
    },
}

// SAFETY: `at` is read only and lives as long as the mapping beside it, which is `Send + Sync`; the rest follows `T`.
unsafe impl<T: ?Sized + Send + Sync> Send for Store<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for Store<T> {}

impl<T: Pod> Shared<[T]> {
    /// Moves the elements to shared memory, and frees the vector.
    ///
    /// Where no shared memory can be had, they stay where they are.
    ///
    /// # Errors
    /// None today; the place is kept for transports that refuse.
    pub fn from_vec(elements: Vec<T>) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(&elements);
        if bytes.len() >= SMALLEST_SEGMENT {
            for backing in [Backing::Memfd, Backing::Shm] {
                // Each is tried; the last resort, staying private, needs no memory more.
                if let Ok(shared) =
                    store(&backing, bytes).and_then(|segment| Self::view(segment, elements.len()))
                {
                    return Ok(shared);
                }
            }
        }
        Ok(Self::private(elements))
    }

    fn private(elements: Vec<T>) -> Self {
        Shared { store: Arc::new(Store::Private(elements.into_boxed_slice())) }
    }

    /// Reads the first `len` elements of a segment that nobody writes any more.
    fn view(segment: Arc<Segment>, len: usize) -> Result<Self> {
        let mapping = segment.reader()?;
        let fits = size_of::<T>().checked_mul(len).is_some_and(|bytes| bytes <= mapping.len());
        match NonNull::new(mapping.as_ptr().cast::<T>()) {
            Some(first) if fits && first.is_aligned() => {
                let at = NonNull::slice_from_raw_parts(first, len);
                Ok(Shared { store: Arc::new(Store::Segment { segment, _mapping: mapping, at }) })
            }
            _ => Err(Error::new(
                ErrorKind::SharedMemory,
                format!(
                    "{len} x {} bytes do not lie in a shared array of {}",
                    size_of::<T>(),
                    segment.bytes()
                ),
            )),
        }
    }
}

/// Writes `bytes` to a new segment and closes it to writers, as far as the backing can.
fn store(backing: &Backing, bytes: &[u8]) -> Result<Arc<Segment>> {
    let mut room_for = |chunk: usize| match limits::room() {
        room if room.bytes >= chunk as u64 => Ok(()),
        room => Err(Error::new(
            ErrorKind::SharedMemory,
            format!("a shared array needs {chunk} more bytes, {} leaves {}", room.bounded_by, room.bytes),
        )),
    };
    let segment = Segment::create(backing, "shared", bytes.len(), &mut room_for)?;
    segment.write_at(bytes, 0)?;
    segment.seal_all()?;
    Ok(Arc::new(segment))
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &*self.store {
            Store::Private(elements) => elements,
            // SAFETY: `at` points to initialised, aligned elements in the mapping beside it. They are `Pod`, so any
            // bytes are valid. Nobody writes: a memfd is sealed, and a file has no name and goes to our workers only,
            // which map it through this type.
            Store::Segment { at, .. } => unsafe { at.as_ref() },
        }
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { store: Arc::clone(&self.store) }
    }
}

impl<T> fmt::Debug for Shared<[T]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &*self.store {
            Store::Private(_) => "private",
            Store::Segment { segment, .. } => segment.backing_name(),
        };
        let len = match &*self.store {
            Store::Private(elements) => elements.len(),
            Store::Segment { at, .. } => at.len(),
        };
        write!(f, "Shared([{}; {len}], {place})", std::any::type_name::<T>())
    }
}

/// What serialisation on this thread does with shared arrays now.
enum Scope {
    /// They are plain sequences.
    Plain,
    /// They are named by their place in this list, which grows.
    Export(Vec<Arc<Segment>>),
    /// They are found by their place in this list.
    Import(Vec<Arc<Segment>>),
}

thread_local! {
    static SCOPE: RefCell<Scope> = const { RefCell::new(Scope::Plain) };
}

/// Puts the former scope back, on a panic too.
struct Restore(Option<Scope>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            SCOPE.replace(before);
        }
    }
}

fn within<R>(scope: Scope, f: impl FnOnce() -> R) -> (R, Scope) {
    let mut restore = Restore(Some(SCOPE.replace(scope)));
    let result = f();
    let before = restore.0.take().unwrap_or(Scope::Plain);
    (result, SCOPE.replace(before))
}

/// Calls `f`, within which shared arrays serialise as references, and returns the segments they refer to, in order.
pub fn exporting<R>(f: impl FnOnce() -> R) -> (R, Vec<Arc<Segment>>) {
    match within(Scope::Export(Vec::new()), f) {
        (result, Scope::Export(segments)) => (result, segments),
        (result, _) => (result, Vec::new()),
    }
}

/// Calls `f`, within which the references that [`exporting`] made deserialise to maps of these segments.
pub fn importing<R>(segments: Vec<Arc<Segment>>, f: impl FnOnce() -> R) -> R {
    within(Scope::Import(segments), f).0
}

/// A shared array on its way to a worker.
#[derive(serde::Serialize, serde::Deserialize)]
enum Wire<E> {
    /// Its elements.
    Inline(E),
    /// Its place: which segment of the list, how many elements, of how many bytes each.
    Segment { segment: u32, len: u64, size: u32 },
}

impl<T: Pod + Serialize> Serialize for Shared<[T]> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = SCOPE.with_borrow_mut(|scope| match (scope, &*self.store) {
            (Scope::Export(list), Store::Segment { segment, .. }) => {
                let place = list.iter().position(|other| Arc::ptr_eq(other, segment)).unwrap_or_else(|| {
                    list.push(Arc::clone(segment));
                    list.len() - 1
                });
                Some(Wire::Segment {
                    segment: place as u32,
                    len: self.len() as u64,
                    size: size_of::<T>() as u32,
                })
            }
            (Scope::Export(_), Store::Private(_)) => Some(Wire::Inline(&**self)),
            _ => None,
        });
        match wire {
            Some(wire) => wire.serialize(serializer),
            None => (**self).serialize(serializer),
        }
    }
}

impl<'de, T: Pod + Deserialize<'de>> Deserialize<'de> for Shared<[T]> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !SCOPE.with_borrow(|scope| matches!(scope, Scope::Import(_))) {
            return Shared::from_vec(Vec::deserialize(deserializer)?).map_err(D::Error::custom);
        }
        match Wire::<Vec<T>>::deserialize(deserializer)? {
            Wire::Inline(elements) => Ok(Shared::private(elements)),
            Wire::Segment { segment, len, size } => import(segment, len, size).map_err(D::Error::custom),
        }
    }
}

/// Finds a segment of the list and views it, if what was said about it can be.
fn import<T: Pod>(segment: u32, len: u64, size: u32) -> Result<Shared<[T]>> {
    let found = SCOPE.with_borrow(|scope| match scope {
        Scope::Import(list) => list.get(segment as usize).cloned(),
        _ => None,
    });
    match (found, usize::try_from(len)) {
        (Some(found), Ok(len)) if size as usize == size_of::<T>() => Shared::view(found, len),
        (found, _) => Err(Error::new(
            ErrorKind::SharedMemory,
            format!(
                "a shared array of {len} x {size} bytes in segment {segment} ({}) is none of {}-byte elements",
                if found.is_some() { "present" } else { "absent" },
                size_of::<T>()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn large() -> Shared<[u64]> {
        Shared::from_vec((0..20_000).map(|i| i * i).collect()).unwrap()
    }

    /// Copies descriptors as a socket between processes would.
    fn sent(segments: &[Arc<Segment>]) -> Vec<Arc<Segment>> {
        let copy = |segment: &Arc<Segment>| {
            Segment::from_fd_whole(segment.as_fd().try_clone_to_owned().unwrap()).unwrap()
        };
        segments.iter().map(copy).map(Arc::new).collect()
    }

    #[test]
    fn a_large_array_lies_in_a_sealed_memfd() {
        let array = large();
        assert_eq!(array.len(), 20_000);
        assert_eq!(array[19_999], 19_999 * 19_999);
        assert_eq!(format!("{array:?}"), "Shared([u64; 20000], memfd)");
        let Store::Segment { segment, .. } = &*array.store else { panic!("a segment is expected") };
        assert!(segment.is_write_sealed());
        assert!(segment.write_at(&[1], 0).is_err());
    }

    #[test]
    fn a_small_array_needs_no_descriptor() {
        let array = Shared::from_vec(vec![1_u8, 2, 3]).unwrap();
        assert_eq!(format!("{array:?}"), "Shared([u8; 3], private)");
        let (text, segments) = exporting(|| serde_json::to_string(&array).unwrap());
        assert!(segments.is_empty());
        let back: Shared<[u8]> = importing(segments, || serde_json::from_str(&text).unwrap());
        assert_eq!(*back, [1, 2, 3]);
        assert!(Shared::<[u64]>::from_vec(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn outside_both_scopes_it_is_a_plain_sequence() {
        let array = Shared::from_vec(vec![5_u32; 20_000]).unwrap();
        let text = serde_json::to_string(&array).unwrap();
        assert!(text.starts_with("[5,5,"));
        let back: Shared<[u32]> = serde_json::from_str(&text).unwrap();
        assert_eq!(*back, *array);
    }

    #[test]
    fn another_process_maps_what_was_exported() {
        let (a, b) = (large(), Shared::from_vec(vec![7_u8; 70_000]).unwrap());
        let (text, segments) = exporting(|| serde_json::to_string(&(&a, &b, &a)).unwrap());
        assert_eq!(segments.len(), 2, "the same array is sent once");
        assert!(text.len() < 300, "{text}");
        type Arrays = (Shared<[u64]>, Shared<[u8]>, Shared<[u64]>);
        let (a2, b2, a3): Arrays = importing(sent(&segments), || serde_json::from_str(&text).unwrap());
        drop((segments, b));
        assert_eq!((&*a2, &*a3), (&*a, &*a));
        assert_eq!(*b2, [7; 70_000]);
        assert_ne!(a2.as_ptr(), a.as_ptr());
    }

    #[test]
    fn threads_of_one_process_share_the_map() {
        let array = large();
        let (text, segments) = exporting(|| serde_json::to_string(&array).unwrap());
        let there = std::thread::spawn(move || -> Shared<[u64]> {
            importing(segments, || serde_json::from_str(&text).unwrap())
        });
        assert_eq!(there.join().unwrap().as_ptr(), array.as_ptr());
    }

    #[test]
    fn references_that_lie_are_refused() {
        let (_, segments) = exporting(|| serde_json::to_string(&large()).unwrap());
        for (segment, len, size) in [(1, 1, 8), (0, 1 << 40, 8), (0, u64::MAX, 8), (0, 20_481, 8), (0, 10, 4)]
        {
            let text = format!(r#"{{"Segment":{{"segment":{segment},"len":{len},"size":{size}}}}}"#);
            let result: Result<Shared<[u64]>, _> =
                importing(segments.clone(), || serde_json::from_str(&text));
            assert!(result.is_err(), "{text}");
        }
    }

    #[test]
    fn a_panic_leaves_the_scope() {
        let caught = std::panic::catch_unwind(|| exporting(|| panic!("on purpose")));
        assert!(caught.is_err());
        assert!(serde_json::to_string(&large()).unwrap().starts_with('['));
    }

    #[test]
    fn what_is_not_there_to_be_shared_stays_private() {
        let file = Backing::File("/nowhere".into());
        assert!(store(&file, &[0; 4096]).is_err());
        assert_eq!(*Shared::private(vec![3_u8]), [3]);
    }
}
