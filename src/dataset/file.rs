//! One file into memory that is used again.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::{Errno, read, retry_on_intr};

use crate::error::{Error, ErrorKind, Result};

/// Reads the file at `path`, which ends with a zero byte, into `bytes`; in the steady state open, fstat, read, close.
///
/// # Errors
/// [`ErrorKind::Dataset`] with the path if it cannot be opened or read, is not a regular file, or changes its size
/// meanwhile; [`ErrorKind::Limit`] if it is larger than `max_bytes`.
pub(super) fn read_file(path: &[u8], max_bytes: u64, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    let place = Path::new(OsStr::from_bytes(path.strip_suffix(b"\0").unwrap_or(path)));
    let failed = |what: &str, errno: Errno| {
        Error::io(what, errno.into()).with_kind(ErrorKind::Dataset).with_path(place)
    };
    let broken = |kind: ErrorKind, message: String| Error::new(kind, message).with_path(place);
    let Ok(name) = CStr::from_bytes_with_nul(path) else {
        return Err(broken(ErrorKind::Dataset, "a zero byte within the path".into()));
    };

    // Without O_NONBLOCK a pipe that took the file's place would hang the worker in open().
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file: File =
        retry_on_intr(|| open(name, flags, Mode::empty())).map_err(|e| failed("opening", e))?.into();
    let stat = fstat(&file).map_err(|e| failed("looking at", e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(broken(ErrorKind::Dataset, "not a regular file".into()));
    }
    let size = stat.st_size.unsigned_abs();
    if size > max_bytes {
        let message = format!("the file has {size} bytes, at most {max_bytes} are read");
        return Err(broken(ErrorKind::Limit, message).with_remedy("raise FolderOptions::max_file_bytes"));
    }
    let size = size as usize;
    // One byte of room more: a read that ends at the size then shows that the file does, without a second call.
    bytes.reserve(size + 1);
    while bytes.len() <= size {
        let missing = size - bytes.len();
        match retry_on_intr(|| read(&file, spare_capacity(bytes))).map_err(|e| failed("reading", e))? {
            _ if bytes.len() == size => return Ok(()),
            0 => {
                return Err(broken(
                    ErrorKind::Dataset,
                    format!("the file lost {missing} of its {size} bytes while it was read"),
                ));
            }
            _ => {}
        }
    }
    Err(broken(ErrorKind::Dataset, format!("the file grew beyond its {size} bytes while it was read")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own files lie about their size, as files do that others write to.
    fn misread(path: &str, message: &str) {
        if !Path::new(path.trim_end_matches('\0')).exists() {
            println!("skipped: no {path}");
            return;
        }
        let error = read_file(path.as_bytes(), 1 << 20, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dataset);
        assert!(error.message().contains(message), "{error}");
    }

    #[test]
    fn a_file_that_grows_is_an_error() {
        misread("/proc/self/status\0", "grew beyond its 0 bytes");
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        misread("/sys/kernel/mm/transparent_hugepage/enabled\0", "of its 4096 bytes");
    }

    #[test]
    fn a_larger_buffer_from_before_does_not_matter() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"short").unwrap();
        let path = [file.path().as_os_str().as_bytes(), b"\0"].concat();
        let mut bytes = vec![7; 10_000];
        let capacity = bytes.capacity();
        read_file(&path, 5, &mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), bytes.capacity()), (&b"short"[..], capacity));
        assert_eq!(read_file(&path, 4, &mut bytes).unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(read_file(b"no end", 4, &mut bytes).unwrap_err().kind(), ErrorKind::Dataset);
    }
}
