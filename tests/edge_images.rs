//! Odd, broken and hostile files against the decoder: references, errors, memory.
//!
//! Runs over a folder with a `manifest.tsv`, named by `FOREBAY_EDGE_DATA` or at `../shared/data/edge`; says so when there is none.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // test code throughout

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay::decode::{DecodeOptions, Decoder, Image, Limits};

/// What decoding may take beside the limit on decoded bytes.
const SLACK: u64 = 64 << 20;

/// Held by each test: one of them measures the memory of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files that only libjpeg-turbo can decode.
const NEED_TURBO: &[&str] = &["jpeg_baseline_noninterleaved.jpg"];

struct Row {
    file: String,
    format: String,
    decodes: bool,
    strictness: String,
    reference: Option<PathBuf>,
    path: PathBuf,
}

/// Returns the rows that have a file.
fn manifest() -> Option<Vec<Row>> {
    let named = std::env::var_os("FOREBAY_EDGE_DATA").map(PathBuf::from);
    let folder =
        named.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/edge"));
    let Ok(text) = fs::read_to_string(folder.join("manifest.tsv")) else {
        println!("skipped: no {}", folder.join("manifest.tsv").display());
        return None;
    };
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, format, _, _, _, _, expected, _, strictness, _, reference] = fields[..] else {
            panic!("manifest line with {} fields: {line}", fields.len())
        };
        Row {
            path: folder.join(file),
            file: file.to_owned(),
            format: format.to_owned(),
            decodes: expected == "decode",
            strictness: strictness.to_owned(),
            reference: reference.starts_with("ref/").then(|| folder.join(reference)),
        }
    };
    Some(text.lines().skip(1).map(row).filter(|row| row.path.is_file()).collect())
}

fn stored_pixels() -> Decoder {
    Decoder::new(&DecodeOptions { orientation: false, ..DecodeOptions::default() }).unwrap()
}

fn decode(decoder: &mut Decoder, bytes: &[u8], out: &mut Image) -> forebay::Result<()> {
    let header = decoder.header(bytes)?;
    let decoded = decoder.decode(bytes, &header, None, out)?;
    assert_eq!((decoded.full, decoded.covers.size()), (header.full, out.size()));
    assert_eq!(out.pixels.len() as u64, out.size().pixels() * 3);
    Ok(())
}

/// Returns the largest and the mean difference, or what makes the two incomparable.
fn difference(image: &Image, reference: &PathBuf) -> Result<(u8, f64), String> {
    let wanted = image::open(reference).map_err(|error| error.to_string())?.into_rgb8();
    if wanted.dimensions() != (image.width, image.height) {
        return Err(format!("{}x{} instead of {:?}", image.width, image.height, wanted.dimensions()));
    }
    let each = || image.pixels.iter().zip(wanted.as_raw()).map(|(a, b)| a.abs_diff(*b));
    let mean = each().map(f64::from).sum::<f64>() / image.pixels.len() as f64;
    Ok((each().max().unwrap_or(0), mean))
}

/// Returns what is wrong with a decoded picture: lossy formats may differ by a few levels, others not at all.
fn wrong(row: &Row, image: &Image) -> Option<String> {
    // How DXT rounds between its two colours is left to the decoder.
    let lossy = matches!(row.format.as_str(), "JPEG" | "MPO" | "DDS")
        || row.file.contains("lossy")
        || row.file.contains("jpeg");
    let (most, mean) = match difference(image, row.reference.as_ref()?) {
        Ok(difference) => difference,
        Err(text) => return Some(text),
    };
    let fine = if lossy { most <= 4 && mean <= 0.5 } else { most == 0 };
    (!fine).then(|| format!("off by {most} at most, {mean:.3} on average"))
}

#[test]
fn what_must_decode_gives_its_reference_and_what_must_err_errs() {
    let _alone = alone();
    let Some(rows) = manifest() else { return };
    let (mut decoder, mut image) = (stored_pixels(), Image::default());
    let (mut failures, mut counts) = (Vec::new(), BTreeMap::new());
    let mut compared = 0;
    for row in &rows {
        let bytes = fs::read(&row.path).unwrap();
        let result = decode(&mut decoder, &bytes, &mut image);
        let difference = if result.is_ok() { wrong(row, &image) } else { None };
        compared += usize::from(result.is_ok() && row.reference.is_some());
        let verdict = match (&result, &difference) {
            (Ok(()), None) => "decodes".to_owned(),
            (Ok(()), Some(text)) => format!("WRONG: {text}"),
            (Err(error), _) => error.to_string().replace('\n', ";"),
        };
        *counts.entry((row.strictness.clone(), row.decodes, result.is_ok())).or_insert(0) += 1;
        let must =
            row.strictness == "must" && (cfg!(feature = "turbo") || !NEED_TURBO.contains(&row.file.as_str()));
        if row.strictness != "must" || (must && result.is_err() == row.decodes) {
            println!("{:14} {:40} {verdict}", row.strictness, row.file);
        }
        if difference.is_some() && row.strictness != "may" || must && result.is_ok() != row.decodes {
            failures.push(format!("{}: {verdict}", row.file));
        }
    }
    println!(
        "{} files, {compared} compared with a reference; (strictness, expected, got): {counts:?}",
        rows.len()
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(compared > 50, "only {compared} references compared");
}

/// The peak of this process's memory since the last [`forget_peak`], or `None` where the kernel doesn't tell.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

fn forget_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[test]
fn no_file_takes_more_memory_than_the_limit() {
    let _alone = alone();
    let Some(rows) = manifest() else { return };
    if !forget_peak() || peak().is_none() {
        println!("skipped: this kernel doesn't reset the peak of memory");
        return;
    }
    let max_bytes = 96 << 20;
    let mut most = (0, "");
    let options =
        DecodeOptions { limits: Limits { max_bytes, ..Limits::default() }, ..DecodeOptions::default() };
    for row in &rows {
        let bytes = fs::read(&row.path).unwrap();
        let (mut decoder, mut image) = (Decoder::new(&options).unwrap(), Image::default());
        forget_peak();
        let before = peak().unwrap();
        let result = decode(&mut decoder, &bytes, &mut image);
        let grown = peak().unwrap().saturating_sub(before);
        most = most.max((grown >> 20, &row.file));
        assert!(grown <= max_bytes + SLACK, "{}: {} MiB, {result:?}", row.file, grown >> 20);
    }
    println!("{} files, at most {} MiB ({})", rows.len(), most.0, most.1);
}

#[test]
fn a_broken_file_leaves_nothing_behind_for_the_next() {
    let _alone = alone();
    let Some(rows) = manifest() else { return };
    let (mut decoder, mut image) = (stored_pixels(), Image::default());
    let good = rows.iter().find(|row| row.file == "jpeg_progressive_444.jpg").unwrap();
    let good = fs::read(&good.path).unwrap();
    decode(&mut decoder, &good, &mut image).unwrap();
    let wanted = image.clone();
    for row in rows.iter().filter(|row| !row.file.contains("bomb")) {
        let _ = decode(&mut decoder, &fs::read(&row.path).unwrap(), &mut image);
        decode(&mut decoder, &good, &mut image).unwrap();
        assert!(image == wanted, "differs after {}", row.file);
    }
}

#[test]
fn every_prefix_of_a_small_file_decodes_or_errs() {
    let _alone = alone();
    let Some(rows) = manifest() else { return };
    let (mut decoder, mut image) = (Decoder::new(&DecodeOptions::default()).unwrap(), Image::default());
    let mut prefixes = 0;
    for row in rows.iter().filter(|row| !row.file.contains("bomb")) {
        let bytes = fs::read(&row.path).unwrap();
        for length in (0..bytes.len()).step_by((bytes.len() / 40).max(1)) {
            let _ = decode(&mut decoder, &bytes[..length], &mut image);
            prefixes += 1;
        }
    }
    println!("{prefixes} prefixes");
}

#[test]
fn flipped_bits_decode_or_err() {
    let _alone = alone();
    let Some(rows) = manifest() else { return };
    let limits = Limits { max_bytes: 16 << 20, ..Limits::default() };
    let options = DecodeOptions { limits, ..DecodeOptions::default() };
    let (mut decoder, mut image) = (Decoder::new(&options).unwrap(), Image::default());
    let (mut state, mut decoded, mut refused) = (1u64, 0, 0);
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for row in rows.iter().filter(|row| !row.file.contains("bomb")) {
        let bytes = fs::read(&row.path).unwrap();
        for round in 0..if bytes.is_empty() { 0 } else { 40 } {
            let mut broken = bytes.clone();
            for _ in 0..=random(4) {
                let reach = if round % 2 == 0 { bytes.len().min(700) } else { bytes.len() };
                broken[random(reach)] ^= 1 << random(8);
            }
            match decode(&mut decoder, &broken, &mut image) {
                Ok(()) => decoded += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{decoded} decoded, {refused} refused");
}
