//! `forebay decode`: pictures as the loader sees them, written as PNG.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use forebay::decode::{DecodeOptions, Decoder, Image, Size};
use forebay::{Error, ErrorKind, Result};

use super::args::DecodeArgs;
use super::console::Console;
use super::outcome::{Failure, Outcome};
use super::output::Output;
use super::progress::Progress;

/// Decodes each file into `<out>/<file name>.png`. A file that fails is reported, and the others go on.
pub(crate) fn run(
    args: &DecodeArgs,
    console: &Console,
    output: &mut Output,
) -> std::result::Result<Outcome, Failure> {
    let targets = targets(&args.files, &args.out)?;
    fs::create_dir_all(&args.out)
        .map_err(|error| Error::io("cannot make the directory", error).with_path(&args.out))?;
    let options = DecodeOptions { orientation: !args.no_orientation, ..DecodeOptions::default() };
    let mut reader = PictureReader::new(options)?;
    let progress = Progress::new(console, args.files.len() as u64, "files");
    let mut failed = 0;
    for (file, target) in args.files.iter().zip(&targets) {
        match reader.convert(file, target) {
            Ok(size) => output.line(format_args!("{} {}x{}", target.display(), size.width, size.height))?,
            Err(error) => {
                console.error(&error);
                failed += 1;
            }
        }
        progress.advance(1);
    }
    Ok(Outcome::from_failed(failed))
}

/// Returns where each file's PNG goes.
///
/// # Errors
/// [`ErrorKind::Config`] for a path without a file name, and for two that would overwrite each other.
fn targets(files: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>> {
    let mut taken = HashSet::new();
    let target = |file: &PathBuf| {
        let name = file
            .file_name()
            .ok_or_else(|| Error::new(ErrorKind::Config, "the path has no file name").with_path(file))?;
        let mut png = OsString::from(name);
        png.push(".png");
        if !taken.insert(png.clone()) {
            let message = format!("two of the files would both become {}", Path::new(&png).display());
            return Err(Error::new(ErrorKind::Config, message)
                .with_path(file)
                .with_remedy("decode them one call each"));
        }
        Ok(out.join(png))
    };
    files.iter().map(target).collect()
}

/// A decoder and its buffers, kept from file to file.
struct PictureReader {
    decoder: Decoder,
    max_bytes: u64,
    bytes: Vec<u8>,
    image: Image,
}

impl PictureReader {
    fn new(options: DecodeOptions) -> Result<Self> {
        Ok(PictureReader {
            decoder: Decoder::new(&options)?,
            max_bytes: options.limits.max_encoded_bytes,
            bytes: Vec::new(),
            image: Image::default(),
        })
    }

    fn convert(&mut self, file: &Path, target: &Path) -> Result<Size> {
        self.read(file).and_then(|()| self.decode()).map_err(|error| error.with_path(file))?;
        let Image { width, height, pixels } = &self.image;
        image::save_buffer(target, pixels, *width, *height, image::ColorType::Rgb8)
            .map_err(|error| Error::new(ErrorKind::Io, format!("cannot write: {error}")).with_path(target))?;
        Ok(self.image.size())
    }

    /// Reads a regular file; opening a pipe would wait for a writer.
    fn read(&mut self, file: &Path) -> Result<()> {
        let cannot = |error| Error::io("cannot read", error);
        let metadata = fs::metadata(file).map_err(cannot)?;
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::Dataset, "not a regular file"));
        }
        self.bytes.clear();
        // One byte more than the limit, so that the decoder sees what is too long, however the file grows meanwhile.
        File::open(file)
            .and_then(|open| open.take(self.max_bytes + 1).read_to_end(&mut self.bytes))
            .map_err(cannot)?;
        Ok(())
    }

    fn decode(&mut self) -> Result<()> {
        let header = self.decoder.header(&self.bytes)?;
        self.decoder.decode(&self.bytes, &header, None, &mut self.image).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_keep_the_whole_name() {
        let files = ["a/x.jpg".into(), "b/x.png".into()];
        let expected: [PathBuf; 2] = ["o/x.jpg.png".into(), "o/x.png.png".into()];
        assert_eq!(targets(&files, Path::new("o")).unwrap(), expected);
    }

    #[test]
    fn files_that_would_overwrite_each_other_are_refused() {
        let error = targets(&["a/x.jpg".into(), "b/x.jpg".into()], Path::new("o")).unwrap_err();
        assert!(error.to_string().contains("x.jpg.png"), "{error}");
        assert_eq!(targets(&["..".into()], Path::new("o")).unwrap_err().kind(), ErrorKind::Config);
    }
}
