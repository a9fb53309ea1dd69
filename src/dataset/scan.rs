//! One walk over a folder: which files are samples, and a count of what was passed over.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::paths::PathList;
use crate::error::{Error, ErrorKind, Result};

/// Deeper than any folder of pictures; keeps the walk's stack small.
const MAX_DEPTH: u32 = 100;

/// More distinct endings than this are counted under one name.
const MAX_ENDINGS: usize = 64;

/// What a scan passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Files and directories whose name begins with a dot.
    pub hidden: u64,
    /// Files whose ending is not a picture's.
    pub other: u64,
    /// Pipes, sockets and devices.
    pub special: u64,
    /// Symbolic links that lead nowhere.
    pub dangling: u64,
    /// Links to a directory that the walk is inside of already.
    pub loops: u64,
    /// Pictures beside the class directories, so without a class.
    pub loose: u64,
}

impl Skipped {
    /// Returns how many entries were passed over.
    pub const fn total(&self) -> u64 {
        self.hidden + self.other + self.special + self.dangling + self.loops + self.loose
    }

    fn add(&mut self, other: &Skipped) {
        self.hidden += other.hidden;
        self.other += other.other;
        self.special += other.special;
        self.dangling += other.dangling;
        self.loops += other.loops;
        self.loose += other.loose;
    }
}

/// What was found under one directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) paths: PathList,
    pub(super) skipped: Skipped,
    pub(super) directories: u64,
    /// Endings of the files that are no pictures, for the message when nothing is found.
    pub(super) endings: BTreeMap<String, u64>,
}

impl Found {
    /// Takes in what was found elsewhere, but for the paths.
    pub(super) fn count(&mut self, other: &Found) {
        self.skipped.add(&other.skipped);
        self.directories += other.directories;
        for (ending, count) in &other.endings {
            self.ending(ending, *count);
        }
    }

    fn ending(&mut self, ending: &str, count: u64) {
        let known = self.endings.contains_key(ending) || self.endings.len() < MAX_ENDINGS;
        *self.endings.entry(if known { ending.into() } else { "others".into() }).or_default() += count;
    }
}

/// The entries of one directory, sorted by the bytes of their names.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) files: PathList,
    pub(super) directories: Vec<Vec<u8>>,
    pub(super) found: Found,
}

/// The directories that the walk is inside of, innermost first.
#[derive(Clone, Copy)]
pub(super) struct Ancestors<'a> {
    id: (u64, u64),
    depth: u32,
    outer: Option<&'a Ancestors<'a>>,
}

impl<'a> Ancestors<'a> {
    /// Enters a directory, unless the walk is inside of it already.
    pub(super) fn enter(path: &Path, outer: Option<&'a Ancestors<'a>>) -> Result<Option<Self>> {
        let meta = fs::metadata(path).map_err(|error| unreadable("looking at", path, error))?;
        let id = (meta.dev(), meta.ino());
        let depth = outer.map_or(0, |outer| outer.depth + 1);
        if depth > MAX_DEPTH {
            let message = format!("directories lie more than {MAX_DEPTH} deep");
            return Err(Error::new(ErrorKind::Dataset, message).with_path(path));
        }
        let inside =
            std::iter::successors(outer, |ancestor| ancestor.outer).any(|ancestor| ancestor.id == id);
        Ok((!inside).then_some(Ancestors { id, depth, outer }))
    }
}

/// Finds all pictures under `root/relative`: first the directory's own, then those of its directories in turn.
pub(super) fn walk(
    root: &Path,
    relative: &[u8],
    outer: Option<&Ancestors<'_>>,
    endings: &[String],
) -> Result<Found> {
    let path = root.join(OsStr::from_bytes(relative));
    let Some(here) = Ancestors::enter(&path, outer)? else {
        let skipped = Skipped { loops: 1, ..Skipped::default() };
        return Ok(Found { skipped, ..Found::default() });
    };
    let Listing { files, directories, mut found } = list(&path, endings)?;
    for name in files.iter() {
        found.paths.push(&[relative, b"/", name]);
    }
    let below: Vec<Found> = directories
        .par_iter()
        .map(|name| walk(root, &[relative, b"/", name].concat(), Some(&here), endings))
        .collect::<Result<_>>()?;
    for part in &below {
        found.paths.append(&part.paths);
        found.count(part);
    }
    Ok(found)
}

/// Reads one directory.
pub(super) fn list(path: &Path, endings: &[String]) -> Result<Listing> {
    let mut listing = Listing::default();
    listing.found.directories = 1;
    let mut names = Names::default();
    let failed = |error| unreadable("reading", path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let (name, found) = (name.as_bytes(), &mut listing.found);
        if name.starts_with(b".") {
            found.skipped.hidden += 1;
            continue;
        }
        match target_type(&entry) {
            Ok(kind) if kind.is_dir() => listing.directories.push(name.to_vec()),
            Ok(kind) if !kind.is_file() => found.skipped.special += 1,
            Ok(_) if is_picture(name, endings) => names.push(name),
            Ok(_) => {
                found.skipped.other += 1;
                found.ending(&ending_of(name), 1);
            }
            Err(error) if is_dead_end(&error) => found.skipped.dangling += 1,
            Err(error) => return Err(unreadable("looking at", &entry.path(), error)),
        }
    }
    listing.directories.sort_unstable();
    listing.files = names.sorted();
    Ok(listing)
}

/// Names in one block, sorted by their places: a directory of millions of files costs no allocation a name.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    spans: Vec<(usize, u16)>,
}

impl Names {
    fn push(&mut self, name: &[u8]) {
        // Linux names are at most 255 bytes on the disk formats in use, and 4096 (a path) in any case.
        self.spans.push((self.bytes.len(), name.len() as u16));
        self.bytes.extend_from_slice(name);
    }

    fn sorted(mut self) -> PathList {
        let name = |&(start, len): &(usize, u16)| &self.bytes[start..start + usize::from(len)];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        let mut table = PathList::default();
        for span in &self.spans {
            table.push(&[name(span)]);
        }
        table
    }
}

/// Returns what an entry is, or what its link leads to.
fn target_type(entry: &DirEntry) -> io::Result<FileType> {
    let kind = entry.file_type()?;
    if kind.is_symlink() { Ok(fs::metadata(entry.path())?.file_type()) } else { Ok(kind) }
}

/// Returns whether a link leads nowhere: to nothing, through a file, or round in a circle.
fn is_dead_end(error: &io::Error) -> bool {
    let dead = [rustix::io::Errno::NOENT, rustix::io::Errno::NOTDIR, rustix::io::Errno::LOOP];
    dead.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    Some(&name[dot + 1..])
}

fn is_picture(name: &[u8], endings: &[String]) -> bool {
    extension(name)
        .is_some_and(|own| endings.iter().any(|ending| own.eq_ignore_ascii_case(ending.as_bytes())))
}

fn ending_of(name: &[u8]) -> String {
    match extension(name) {
        Some(own) if own.len() <= 12 => format!(".{}", String::from_utf8_lossy(own).to_lowercase()),
        _ => "none".into(),
    }
}

fn unreadable(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(what, error).with_kind(ErrorKind::Dataset).with_path(path)
}
