//! What the benches share: settings, the small data set, and a `main` that worker processes may enter.

#![allow(dead_code, clippy::unwrap_used)] // no bench uses all of it; a bench has nobody to hand an error to

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;
use forebay::dataset::{Dataset, ImageFolder, Record};

/// Runs a bench. First line of each `main`, since workers of a bench are the bench's own program started again.
pub(crate) fn run(bench: fn(&mut Criterion)) {
    forebay::init();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}

/// Returns the folder of the small data set.
pub(crate) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/tiny")
}

/// Reads the small data set's JPEG files.
pub(crate) fn tiny_jpegs() -> Vec<Vec<u8>> {
    let mut folder = ImageFolder::open(tiny()).unwrap();
    let mut files = Vec::new();
    for index in 0..folder.len() {
        let mut record = Record::default();
        folder.read(index, &mut record).unwrap();
        if record.bytes.starts_with(&[0xFF, 0xD8]) {
            files.push(record.bytes);
        }
    }
    assert!(!files.is_empty(), "no JPEG in datasets/tiny");
    files
}
