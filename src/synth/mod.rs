//! Makes folders of photo-like JPEGs to measure on: same options, same bytes, on every machine.
//! Does not load anything.

mod photo;

use std::fs;
use std::path::{Path, PathBuf};

use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use rayon::prelude::*;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::hash::{SPREAD, mix};

/// The quality that most of ImageNet's files are near.
const QUALITY: u8 = 90;

/// What [`write()`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthOptions {
    /// How many pictures.
    pub images: u64,
    /// How many class directories; picture *i* goes to class `i % classes`.
    pub classes: u64,
    /// Columns of each picture, at most 65535.
    pub width: u32,
    /// Rows of each picture, at most 65535.
    pub height: u32,
    /// Changes every picture.
    pub seed: u64,
}

impl Default for SynthOptions {
    /// Returns 1000 pictures of 500 x 375 pixels, an ordinary size in ImageNet, in 10 classes.
    fn default() -> Self {
        SynthOptions { images: 1000, classes: 10, width: 500, height: 375, seed: 0 }
    }
}

impl SynthOptions {
    fn check(&self) -> Result<()> {
        let sides = 1..=u32::from(u16::MAX);
        let (what, got, may) = if !sides.contains(&self.width) {
            ("width", u64::from(self.width), "1 to 65535")
        } else if !sides.contains(&self.height) {
            ("height", u64::from(self.height), "1 to 65535")
        } else if self.classes == 0 || self.classes > self.images.max(1) {
            ("classes", self.classes, "at least 1 and at most one a picture")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, format!("{what} is {got}"))
            .with_remedy(format!("{what} may be {may}")))
    }

    fn path(&self, folder: &Path, image: u64) -> PathBuf {
        folder.join(format!("class-{:04}", image % self.classes)).join(format!("{image:08}.jpg"))
    }
}

/// What [`write()`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// How many pictures.
    pub images: u64,
    /// How many class directories.
    pub classes: u64,
    /// The size of all files together, in bytes.
    pub bytes: u64,
}

/// Fills `folder`, which is made if it is missing, on all cores of rayon's pool.
///
/// `progress` is called once for each picture when it is written, from any thread, with its bytes.
///
/// # Errors
/// [`ErrorKind::Config`] if an option is out of range or `folder` holds something; [`ErrorKind::Io`] if a file cannot
/// be written.
///
/// # Examples
/// ```
/// use forebay::synth::{SynthOptions, write};
///
/// let folder = std::env::temp_dir().join(format!("forebay-synth-{}", std::process::id()));
/// let options = SynthOptions { images: 4, classes: 2, width: 64, height: 48, seed: 1 };
/// let summary = write(&folder, &options, |_bytes| {})?;
/// assert_eq!(summary.images, 4);
/// assert!(folder.join("class-0001/00000003.jpg").exists());
/// std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), forebay::Error>(())
/// ```
pub fn write(
    folder: impl AsRef<Path>,
    options: &SynthOptions,
    progress: impl Fn(u64) + Sync,
) -> Result<Summary> {
    let folder = folder.as_ref();
    options.check()?;
    prepare(folder, options)?;
    let bytes = (0..options.images)
        .into_par_iter()
        .map(|image| {
            let data = encode(options, image)?;
            let path = options.path(folder, image);
            fs::write(&path, &data).map_err(|error| Error::io("writing", error).with_path(&path))?;
            progress(data.len() as u64);
            Ok::<_, Error>(data.len() as u64)
        })
        .try_reduce(|| 0, |a, b| Ok(a + b))?;
    Ok(Summary { images: options.images, classes: options.classes, bytes })
}

/// Makes the directories, and refuses a folder in use: old and new pictures would mix.
fn prepare(folder: &Path, options: &SynthOptions) -> Result<()> {
    let failed = |what: &str, path: &Path, error| Error::io(what, error).with_path(path);
    fs::create_dir_all(folder).map_err(|error| failed("making", folder, error))?;
    let mut entries = fs::read_dir(folder).map_err(|error| failed("reading", folder, error))?;
    if entries.next().is_some() {
        return Err(Error::new(ErrorKind::Config, "the folder is not empty")
            .with_path(folder)
            .with_remedy("name a new folder, or remove this one first"));
    }
    for class in 0..options.classes {
        let path = options.path(folder, class);
        let path = path.parent().unwrap_or(folder);
        fs::create_dir(path).map_err(|error| failed("making", path, error))?;
    }
    Ok(())
}

fn encode(options: &SynthOptions, image: u64) -> Result<Vec<u8>> {
    let SynthOptions { width, height, seed, .. } = *options;
    let key = mix(mix(seed.wrapping_add(SPREAD)) ^ image.wrapping_mul(SPREAD));
    let pixels = photo::pixels(key, width, height);
    let mut data = Vec::new();
    JpegEncoder::new_with_quality(&mut data, QUALITY)
        .encode(&pixels, width, height, ExtendedColorType::Rgb8)
        .map_err(|error| {
            Error::new(ErrorKind::Io, format!("encoding picture {image}: {error}")).with_source(error)
        })?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SynthOptions = SynthOptions { images: 6, classes: 2, width: 96, height: 64, seed: 3 };

    fn files(folder: &Path) -> Vec<Vec<u8>> {
        (0..SMALL.images).map(|image| fs::read(SMALL.path(folder, image)).unwrap()).collect()
    }

    #[test]
    fn same_options_give_the_same_bytes() {
        let make = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let summary = write(folder.path(), &SynthOptions { seed, ..SMALL }, |_| {}).unwrap();
            let files = files(folder.path());
            assert_eq!(summary.bytes, files.iter().map(|file| file.len() as u64).sum::<u64>());
            files
        };
        let first = make(3);
        assert_eq!(first, make(3));
        assert!(first.iter().zip(make(4)).all(|(a, b)| *a != b));
    }

    #[test]
    fn files_are_as_large_as_photographs() {
        let options = SynthOptions { images: 16, ..SynthOptions::default() };
        let bytes: u64 = (0..16).map(|image| encode(&options, image).unwrap().len() as u64).sum();
        let a_pixel = bytes as f64 / (16.0 * 500.0 * 375.0);
        assert!((0.50..0.60).contains(&a_pixel), "{a_pixel:.3} bytes a pixel");
    }

    #[test]
    fn progress_is_told_of_each_picture() {
        let folder = tempfile::tempdir().unwrap();
        let seen = std::sync::Mutex::new(Vec::new());
        let summary =
            write(folder.path().join("new/one"), &SMALL, |bytes| seen.lock().unwrap().push(bytes)).unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!((seen.len() as u64, seen.iter().sum()), (summary.images, summary.bytes));
    }

    #[test]
    fn a_folder_in_use_and_bad_options_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |options: &SynthOptions| write(folder.path(), options, |_| {}).unwrap_err().kind();
        for bad in [
            SynthOptions { width: 0, ..SMALL },
            SynthOptions { height: 70_000, ..SMALL },
            SynthOptions { classes: 0, ..SMALL },
            SynthOptions { classes: 7, ..SMALL },
        ] {
            assert_eq!(refused(&bad), ErrorKind::Config);
        }
        fs::write(folder.path().join("mine"), b"x").unwrap();
        assert_eq!(refused(&SMALL), ErrorKind::Config);
    }
}
