//! What do resizing and the last pass into the slab cost?
//!
//! One thread, through a whole pipeline on raw pixels, so each figure has one copy of the input in it; `finish/u8 nhwc` is
//! that copy and the plainest output.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use forebay::decode::{Size, Source};
use forebay::transform::{
    Compiled, Normalize, Pipeline, RandomHorizontalFlip, RandomResizedCrop, Resize, SampleKey, Shape,
};
use forebay::{DType, Layout};

mod common;

fn main() {
    common::run(|criterion| {
        finish(criterion);
        resize(criterion);
    });
}

fn finish(criterion: &mut Criterion) {
    let size = Size::new(224, 224);
    let flipped = || Pipeline::new().then(RandomHorizontalFlip::default());
    let mut group = criterion.benchmark_group("finish");
    for (name, dtype, layout) in [
        ("u8 nhwc", DType::U8, Layout::Nhwc),
        ("u8 nchw", DType::U8, Layout::Nchw),
        ("f16 nchw", DType::F16, Layout::Nchw),
        ("f32 nhwc", DType::F32, Layout::Nhwc),
        ("f32 nchw", DType::F32, Layout::Nchw),
    ] {
        let steps = if dtype == DType::U8 { flipped() } else { flipped().then(Normalize::IMAGENET) };
        group.throughput(Throughput::ElementsAndBytes {
            elements: 1,
            bytes: size.pixels() * 3 * dtype.size() as u64,
        });
        let mut make = work(steps.output(dtype, layout), size);
        group.bench_function(name, |b| b.iter(&mut make));
    }
}

fn resize(criterion: &mut Criterion) {
    let size = Size::new(500, 375);
    let mut group = criterion.benchmark_group("resize");
    group.throughput(Throughput::Elements(1));
    let cases = [
        ("500x375 to 224x224", Pipeline::new().then(Resize::new([224, 224]))),
        ("random part of 500x375 to 224x224", Pipeline::new().then(RandomResizedCrop::new(224))),
        ("500x375 to 1000x750", Pipeline::new().then(Resize::new([750, 1000]))),
    ];
    for (name, pipeline) in cases {
        let mut make = work(pipeline.output(DType::U8, Layout::Nhwc), size);
        group.bench_function(name, |b| b.iter(&mut make));
    }
}

/// Returns what makes one sample after the other, with buffers that are kept.
fn work(pipeline: Pipeline, input: Size) -> impl FnMut() {
    let mut compiled = Compiled::new(pipeline, Shape::Fixed(input)).unwrap();
    let pixels: Vec<u8> = (0..input.pixels() * 3).map(|i| ((i * i) >> 4) as u8).collect();
    let mut out = vec![0; compiled.sample_bytes()];
    let mut position = 0;
    move || {
        let source = Source::Rgb8 { width: input.width, height: input.height, pixels: &pixels };
        compiled.run(source, 0, SampleKey::new(0, 0, position), &mut out).unwrap();
        position += 1;
        black_box(&out);
    }
}
