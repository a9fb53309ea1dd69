//! `forebay synth`: a data set of photo-like JPEGs.

use forebay::synth::{self, SynthOptions};

use super::args::SynthArgs;
use super::console::Console;
use super::folder;
use super::outcome::{Failure, Outcome};
use super::output::Output;
use super::progress::Progress;

/// Makes the data set and prints what was made.
pub(crate) fn run(args: &SynthArgs, console: &Console, output: &mut Output) -> Result<Outcome, Failure> {
    let SynthArgs { images, width, height, seed, .. } = *args;
    let classes = args.classes.unwrap_or_else(|| SynthOptions::default().classes.min(images));
    folder::use_all_cores()?;
    let progress = Progress::new(console, images, "images");
    let options = SynthOptions { images, classes, width, height, seed };
    let made = synth::write(&args.dir, &options, |_| progress.advance(1))?;
    drop(progress);
    let megabytes = made.bytes as f64 / 1e6;
    let dir = args.dir.display();
    output
        .line(format_args!("{dir}: {} images in {} classes, {megabytes:.1} MB", made.images, made.classes))?;
    Ok(Outcome::Done)
}
