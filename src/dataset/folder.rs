//! Pictures in class directories.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::file::read_file;
use super::paths::{PathList, PathTable};
use super::scan::{Ancestors, Found, Listing, Skipped, list, walk};
use super::{Dataset, Record};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::Digest;

/// Endings of the formats that the decoder knows. What a file really is, its content tells.
const ENDINGS: [&str; 21] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "pnm", "pbm", "pgm", "ppm",
    "pam", "qoi", "tga", "dds", "ico", "hdr", "ff",
];

/// How an [`ImageFolder`] is opened.
///
/// # Examples
/// ```
/// use forebay::dataset::FolderOptions;
///
/// let options = FolderOptions::default().endings(["jpg", "jpeg"]).max_file_bytes(32 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct FolderOptions {
    endings: Vec<String>,
    max_file_bytes: u64,
}

impl Default for FolderOptions {
    /// Returns all endings the decoder knows, and at most 256 MiB a file.
    fn default() -> Self {
        FolderOptions { endings: ENDINGS.map(String::from).to_vec(), max_file_bytes: 256 << 20 }
    }
}

impl FolderOptions {
    /// Sets the endings, without dot and in any case, that make a file a sample.
    #[must_use]
    pub fn endings(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endings = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the largest file in bytes that is read; a larger one is an error of its sample, before any allocation.
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }
}

/// Pictures of a folder, one directory a class: `train/cat/1.jpg`, `train/dog/a/7.png`.
///
/// - Each directory in the folder is a class, numbered from 0 in the order of the bytes of its name, whether it
///   holds pictures or not; directories below belong to the same class.
/// - Samples lie class by class; within a directory its own files come first, sorted by the bytes of their names, then
///   those of its directories in turn.
/// - A file is a sample if it has a picture's ending, in any case. Hidden files (a leading dot), other files, pipes and
///   devices, and pictures beside the class directories are passed over and counted in [`skipped`](Self::skipped).
/// - Symbolic links are followed, but not into a directory that the walk is inside of. A file that two links lead to
///   is two samples.
/// - A folder that holds pictures and no class directory with pictures is one class, named `.`.
///
/// The scan looks at names only, in parallel; files are opened when they are read, each once, for as long as that takes.
///
/// # Examples
/// ```
/// use forebay::dataset::{Dataset, ImageFolder};
///
/// let folder = ImageFolder::open("datasets/tiny")?;
/// assert_eq!(folder.classes().len(), 6);
/// println!("{} pictures, {} other entries", folder.len(), folder.skipped().total());
/// # Ok::<(), forebay::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageFolder {
    /// Absolute, as bytes, since serde's form of a path must be UTF-8.
    root: Vec<u8>,
    classes: Vec<String>,
    /// Where each class ends in the table of paths.
    class_ends: Vec<u64>,
    paths: PathTable,
    skipped: Skipped,
    max_file_bytes: u64,
    fingerprint: u64,
    /// The path being read, ended by a zero byte; kept for its allocation.
    #[serde(skip)]
    scratch: Vec<u8>,
}

/// Runs `work` with one thread a core, or on this thread alone where no more may be started. The threads end with it.
fn on_all_cores<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let builder = || rayon::ThreadPoolBuilder::new().thread_name(|_| "forebay-scan".into());
    match builder().build().or_else(|_| builder().num_threads(1).use_current_thread().build()) {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

impl ImageFolder {
    /// Opens the folder at `path` with the default options.
    ///
    /// # Errors
    /// [`ErrorKind::Dataset`] if a directory cannot be read, or no pictures were found; then it says what was.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        ImageFolder::open_with(path, FolderOptions::default())
    }

    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Dataset`] if a directory cannot be read, or no pictures were found; then it says what was.
    pub fn open_with(path: impl AsRef<Path>, options: FolderOptions) -> Result<Self> {
        // Absolute, so that a later change of the working directory moves nothing.
        let root = std::path::absolute(path.as_ref())
            .map_err(|error| Error::io("no such path", error).with_kind(ErrorKind::Dataset))?;
        check_root(&root)?;
        let here = Ancestors::enter(&root, None)?;
        let Listing { files, directories, found: mut total } = list(&root, &options.endings)?;
        let scan = || -> Result<Vec<Found>> {
            directories.par_iter().map(|class| walk(&root, class, here.as_ref(), &options.endings)).collect()
        };
        let mut parts = on_all_cores(scan)?;
        parts.iter().for_each(|part| total.count(part));
        let mut classes = directories;
        if parts.iter().all(|part| part.paths.len() == 0) {
            if files.len() == 0 {
                return Err(nothing_found(&root, &total, &options));
            }
            classes = vec![b".".to_vec()];
            parts = vec![Found { paths: files, ..Found::default() }];
        } else {
            total.skipped.loose = files.len();
        }
        ImageFolder::assemble(&root, &classes, parts, total.skipped, options.max_file_bytes)
    }

    fn assemble(
        root: &Path,
        classes: &[Vec<u8>],
        parts: Vec<Found>,
        skipped: Skipped,
        max_file_bytes: u64,
    ) -> Result<Self> {
        let mut paths = PathList::default();
        let mut class_ends = Vec::with_capacity(parts.len());
        for part in parts {
            paths.append(&part.paths);
            class_ends.push(paths.len());
        }
        let digest = classes.iter().fold(Digest::new("ImageFolder"), |digest, class| digest.bytes(class));
        let digest = class_ends.iter().fold(digest, |digest, end| digest.word(*end));
        let fingerprint = paths.iter().fold(digest, |digest, path| digest.bytes(path)).finish();
        Ok(ImageFolder {
            root: root.as_os_str().as_bytes().to_vec(),
            classes: classes.iter().map(|class| String::from_utf8_lossy(class).into_owned()).collect(),
            class_ends,
            paths: paths.share()?,
            skipped,
            max_file_bytes,
            fingerprint,
            scratch: Vec::new(),
        })
    }

    /// Returns the names of the classes by number; bytes that are not UTF-8 are replaced.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns what the scan passed over.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns the folder, absolute.
    pub fn root(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.root))
    }

    /// Returns the class of sample `index`, or nothing beyond the end.
    pub fn label(&self, index: u64) -> Option<u32> {
        (index < self.paths.len()).then(|| self.class_ends.partition_point(|end| *end <= index) as u32)
    }

    /// Returns the path of sample `index`, or nothing beyond the end.
    pub fn path(&self, index: u64) -> Option<PathBuf> {
        self.paths.get(index).map(|path| self.root().join(OsStr::from_bytes(path)))
    }
}

/// Checks that there is a directory to look into.
fn check_root(root: &Path) -> Result<()> {
    let what = match std::fs::metadata(root) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => "not a directory",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "there is no such directory",
        // Whatever else it is, the walk meets it too and says so.
        Err(_) => return Ok(()),
    };
    Err(Error::new(ErrorKind::Dataset, what).with_path(root).with_remedy(
        "name the directory that holds one directory a class: DATA where pictures lie as DATA/cat/1.jpg",
    ))
}

fn nothing_found(root: &Path, found: &Found, options: &FolderOptions) -> Error {
    let Found { skipped, directories, endings, .. } = found;
    let mut text =
        format!("no pictures found: {} directories below, {} other files", directories - 1, skipped.other);
    let mut endings: Vec<_> = endings.iter().collect();
    endings.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (at, (ending, count)) in endings.iter().take(5).enumerate() {
        let lead = if at == 0 { ", endings" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{lead} {ending} ({count})");
    }
    let Skipped { hidden, special, dangling, .. } = *skipped;
    for (count, what) in [(hidden, "hidden"), (special, "pipes or devices"), (dangling, "links to nothing")] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    Error::new(ErrorKind::Dataset, text).with_path(root).with_remedy(format!(
        "put pictures into one directory a class, as in {}/cat/1.jpg; endings looked for: {}",
        root.display(),
        options.endings.join(" ")
    ))
}

#[typetag::serde]
impl Dataset for ImageFolder {
    fn len(&self) -> u64 {
        self.paths.len()
    }

    fn read(&mut self, index: u64, record: &mut Record) -> Result<()> {
        let Some(path) = self.paths.get(index) else {
            let message = format!("there is no sample {index} in a folder of {}", self.paths.len());
            return Err(Error::new(ErrorKind::Dataset, message).with_path(self.root()));
        };
        self.scratch.clear();
        for part in [&self.root, &b"/"[..], path, b"\0"] {
            self.scratch.extend_from_slice(part);
        }
        read_file(&self.scratch, self.max_file_bytes, &mut record.bytes)
            .map_err(|error| error.with_index(index))?;
        record.label = self.label(index).map_or(0, i64::from);
        Ok(())
    }

    fn key(&self, index: u64) -> String {
        self.path(index).map_or_else(|| format!("#{index}"), |path| path.display().to_string())
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
