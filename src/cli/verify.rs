//! `forebay verify`: decodes a whole data set and lists what is broken.

use std::ops::Range;

use forebay::dataset::{Dataset, ImageFolder, Record};
use forebay::decode::{DecodeOptions, Decoder, Image};
use forebay::{Error, Result};
use rayon::prelude::*;

use super::args::VerifyArgs;
use super::console::Console;
use super::folder;
use super::outcome::{Failure, Outcome};
use super::output::Output;
use super::progress::Progress;

/// Pictures between two looks at what was found: enough to keep every core busy, few enough to hear of it soon.
const WINDOW: u64 = 4096;

/// Decodes every picture on all cores; prints a line for each broken one, in the data set's order, and a total.
pub(crate) fn run(
    args: &VerifyArgs,
    console: &Console,
    output: &mut Output,
) -> std::result::Result<Outcome, Failure> {
    let folder = folder::open(&args.data, console)?;
    folder::use_all_cores()?;
    let total = folder.len();
    let progress = Progress::new(console, total, "images");
    let mut broken = 0;
    for start in (0..total).step_by(WINDOW as usize) {
        let found = check(&folder, start..total.min(start + WINDOW), &progress)?;
        for (index, error) in &found {
            output.line(format_args!("{}: {}: {}", folder.key(*index), error.kind(), error.message()))?;
        }
        broken += found.len() as u64;
    }
    drop(progress);
    let passed_over = folder.skipped().total();
    output
        .line(format_args!("{total} pictures, {broken} broken; {passed_over} other entries passed over"))?;
    Ok(Outcome::from_failed(broken))
}

/// Returns the samples of a range that fail, in order.
///
/// # Errors
/// Only when a decoder cannot be made.
fn check(folder: &ImageFolder, range: Range<u64>, progress: &Progress) -> Result<Vec<(u64, Error)>> {
    let per_thread =
        || Decoder::new(&DecodeOptions::default()).map(|decoder| Checker::new(folder.clone(), decoder));
    let results = range.into_par_iter().map_init(per_thread, |checker, index| {
        let checker = match checker {
            Ok(checker) => checker,
            Err(error) => return Some(Err(Error::new(error.kind(), error.message()))),
        };
        let result = checker.check(index);
        progress.advance(1);
        result.err().map(|error| Ok((index, error)))
    });
    results.filter_map(|found| found).collect()
}

/// What one thread needs, and keeps from picture to picture.
struct Checker {
    folder: ImageFolder,
    decoder: Decoder,
    record: Record,
    image: Image,
}

impl Checker {
    fn new(folder: ImageFolder, decoder: Decoder) -> Self {
        Checker { folder, decoder, record: Record::default(), image: Image::default() }
    }

    fn check(&mut self, index: u64) -> Result<()> {
        self.record.clear();
        self.folder.read(index, &mut self.record)?;
        let header = self.decoder.header(&self.record.bytes)?;
        self.decoder.decode(&self.record.bytes, &header, None, &mut self.image).map(drop)
    }
}
