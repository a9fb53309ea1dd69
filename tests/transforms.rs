//! Steps against reference pictures: Pillow's own, and torchvision's formulas restated in numpy
//! (`tests/fixtures/transform/make.py`).
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;

use forebay::decode::{DecodeOptions, Decoder, Image, Rect, Size};
use forebay::transform::{
    CenterCrop, ColorJitter, GaussianBlur, RandomGrayscale, Resize, Sample, SampleKey, SampleRng, Transform,
};

fn fixture(name: &str) -> Image {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transform").join(format!("{name}.png"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
    let header = decoder.header(&bytes).unwrap();
    let mut image = Image::default();
    decoder.decode(&bytes, &header, None, &mut image).unwrap();
    image
}

fn run(step: &dyn Transform) -> Image {
    let mut sample = Sample::new(fixture("source"), 0);
    let mut rng = SampleRng::root(SampleKey::new(1, 2, 3)).child(step.typetag_name(), 0);
    step.apply(&mut sample, &mut rng).unwrap();
    sample.image().unwrap().clone()
}

/// Allows a difference of so many levels anywhere.
#[track_caller]
fn assert_close(ours: &Image, name: &str, tolerance: u8) {
    let reference = fixture(name);
    assert_eq!(ours.size(), reference.size(), "{name}");
    let worst = ours.pixels.iter().zip(&reference.pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    println!("{name}: worst {worst}");
    assert!(worst <= tolerance, "{name}: {worst} levels off, {tolerance} allowed");
}

/// Compares with what torchvision does to a PIL image and to a uint8 tensor.
#[track_caller]
fn check(step: &dyn Transform, name: &str, pil: u8, tensor: u8) {
    let ours = run(step);
    assert_close(&ours, &format!("pil-{name}"), pil);
    assert_close(&ours, &format!("tensor-{name}"), tensor);
}

#[track_caller]
fn check_one(step: &dyn Transform, name: &str, tolerance: u8) {
    assert_close(&run(step), name, tolerance);
}

fn jitter() -> ColorJitter {
    ColorJitter::default()
}

#[test]
fn resize_equals_torchvision_within_one_level() {
    check_one(&Resize::new(30), "pil-resize-shorter-30", 1);
    check_one(&Resize::new([100, 37]), "pil-resize-exact-100x37", 1);
}

#[test]
fn crop_resize_reads_nothing_outside_its_rectangle() {
    let mut sample = Sample::new(fixture("source"), 0);
    let rect = Rect { left: 11, top: 5, width: 45, height: 31 };
    sample.crop_resize(rect, Size::new(20, 24)).unwrap();
    assert_close(sample.image().unwrap(), "pil-crop-resize", 1);
}

#[test]
fn center_crop_pads_and_rounds_as_torchvision() {
    check_one(&CenterCrop::new([51, 33]), "tensor-center-crop-51x33", 0);
}

#[test]
fn brightness_equals_torchvision() {
    check(&jitter().brightness([1.4, 1.4]), "brightness-1.4", 1, 1);
    check(&jitter().brightness([0.6, 0.6]), "brightness-0.6", 1, 1);
}

#[test]
fn contrast_equals_torchvision() {
    check(&jitter().contrast([1.5, 1.5]), "contrast-1.5", 1, 1);
    check(&jitter().contrast([0.4, 0.4]), "contrast-0.4", 1, 1);
}

#[test]
fn saturation_equals_torchvision() {
    check(&jitter().saturation([1.7, 1.7]), "saturation-1.7", 1, 1);
    check(&jitter().saturation([0.3, 0.3]), "saturation-0.3", 1, 1);
}

#[test]
fn hue_equals_torchvision() {
    check(&jitter().hue([0.2, 0.2]), "hue-0.2", 8, 1);
    check(&jitter().hue([-0.35, -0.35]), "hue--0.35", 8, 1);
}

#[test]
fn grayscale_equals_torchvision() {
    check(&RandomGrayscale::new(1.0), "grayscale", 1, 0);
}

#[test]
fn blur_equals_torchvision() {
    check_one(&GaussianBlur::new(5).sigma(1.3, 1.3), "tensor-blur-5-1.3", 1);
    check_one(&GaussianBlur::new(23).sigma(2.0, 2.0), "tensor-blur-23-2", 1);
}
