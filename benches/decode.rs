//! How long does a photo take to decode, and how much does a request for a part of it save?
//!
//! One thread, the files of `datasets/tiny` in memory. `part` asks for the middle quarter of the area, as a random crop
//! does on average.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::Throughput;
use forebay::decode::{DecodeOptions, Decoder, Header, Image, Rect, Request, Size};

mod common;

fn main() {
    common::run(|criterion| {
        let files = common::tiny_jpegs();
        let encoded = files.iter().map(|file| file.len() as u64).sum();
        let mut group = criterion.benchmark_group("decode");
        group.throughput(Throughput::ElementsAndBytes { elements: files.len() as u64, bytes: encoded });
        group.bench_function("header", |b| {
            let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
            b.iter(|| files.iter().map(|file| decoder.header(file).unwrap().full.pixels()).sum::<u64>());
        });
        group.bench_function("whole", |b| b.iter(decode_all(&files, |_| None)));
        group.bench_function("part", |b| b.iter(decode_all(&files, |header| Some(middle(header.full)))));
    });
}

/// Returns what decodes every file, as a worker does: one decoder, one buffer.
fn decode_all(files: &[Vec<u8>], request: impl Fn(&Header) -> Option<Request>) -> impl FnMut() {
    let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
    let mut image = Image::default();
    move || {
        for file in files {
            let header = decoder.header(file).unwrap();
            decoder.decode(file, &header, request(&header).as_ref(), &mut image).unwrap();
            black_box(&image.pixels);
        }
    }
}

fn middle(full: Size) -> Request {
    let (width, height) = (full.width / 2, full.height / 2);
    let region = Rect { left: full.width / 4, top: full.height / 4, width, height };
    Request { region, target: Size::new(width, height) }
}
