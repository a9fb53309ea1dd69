//! What each format's pixels become, which headers are refused, and that damage never panics.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // test code throughout

use std::cell::{Cell, RefCell};
use std::io::Cursor;

use forebay::ErrorKind;
use forebay::decode::{DecodeOptions, Decoder, Format, Image, Limits, Rect, Request, Size};
use image::{DynamicImage, ImageEncoder, ImageFormat};
use proptest::prelude::*;

const WIDTH: u32 = 13;
const HEIGHT: u32 = 9;

/// A sample of 16 bits whose high byte differs from what rounding to 8 bits would give.
fn deep(x: u32, y: u32, channel: u32) -> u16 {
    ((x * 19 + y * 7 + channel * 50) as u16 & 0xff) << 8 | 0xf0
}

fn shallow(x: u32, y: u32, channel: u32) -> u8 {
    (deep(x, y, channel) >> 8) as u8
}

fn picture<P, const N: usize>(
    sample: impl Fn(u32, u32, u32) -> P::Subpixel,
) -> image::ImageBuffer<P, Vec<P::Subpixel>>
where
    P: image::Pixel,
{
    image::ImageBuffer::from_fn(WIDTH, HEIGHT, |x, y| {
        let samples: [_; N] = std::array::from_fn(|channel| sample(x, y, channel as u32));
        *P::from_slice(&samples)
    })
}

fn rgb() -> DynamicImage {
    picture::<image::Rgb<u8>, 3>(shallow).into()
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn decode_with(options: &DecodeOptions, bytes: &[u8]) -> forebay::Result<Image> {
    let mut decoder = Decoder::new(options)?;
    let (header, mut image) = (decoder.header(bytes)?, Image::default());
    decoder.decode(bytes, &header, None, &mut image)?;
    Ok(image)
}

fn decode(bytes: &[u8]) -> forebay::Result<Image> {
    decode_with(&DecodeOptions::default(), bytes)
}

fn expected(channels: [u32; 3]) -> Vec<u8> {
    (0..HEIGHT)
        .flat_map(|y| (0..WIDTH).flat_map(move |x| channels.map(|channel| shallow(x, y, channel))))
        .collect()
}

#[test]
fn gray_is_repeated_alpha_dropped_and_16_bits_give_their_high_byte() {
    let gray = [0, 0, 0];
    let color = [0, 1, 2];
    let pictures: [(DynamicImage, _); 8] = [
        (picture::<image::Luma<u8>, 1>(shallow).into(), gray),
        (picture::<image::LumaA<u8>, 2>(shallow).into(), gray),
        (picture::<image::Rgb<u8>, 3>(shallow).into(), color),
        (picture::<image::Rgba<u8>, 4>(shallow).into(), color),
        (picture::<image::Luma<u16>, 1>(deep).into(), gray),
        (picture::<image::LumaA<u16>, 2>(deep).into(), gray),
        (picture::<image::Rgb<u16>, 3>(deep).into(), color),
        (picture::<image::Rgba<u16>, 4>(deep).into(), color),
    ];
    for (picture, channels) in pictures {
        let image = decode(&encoded(&picture, ImageFormat::Png)).unwrap();
        assert_eq!(image.size(), Size::new(WIDTH, HEIGHT));
        assert_eq!(image.pixels, expected(channels), "{:?}", picture.color());
    }
}

fn lossless() -> Vec<(Format, Vec<u8>)> {
    let rgb = rgb();
    let rgba = DynamicImage::from(picture::<image::Rgba<u8>, 4>(shallow));
    let deep = DynamicImage::from(picture::<image::Rgba<u16>, 4>(deep));
    vec![
        (Format::Png, encoded(&rgb, ImageFormat::Png)),
        (Format::Bmp, encoded(&rgb, ImageFormat::Bmp)),
        (Format::WebP, encoded(&rgb, ImageFormat::WebP)),
        (Format::Tiff, encoded(&rgb, ImageFormat::Tiff)),
        (Format::Pnm, encoded(&rgb, ImageFormat::Pnm)),
        (Format::Qoi, encoded(&rgb, ImageFormat::Qoi)),
        (Format::Ico, encoded(&rgba, ImageFormat::Ico)),
        (Format::Farbfeld, encoded(&deep, ImageFormat::Farbfeld)),
    ]
}

/// A compressed texture of 16x8 pixels: one block of 4x4 after the other.
fn dds() -> Vec<u8> {
    let mut words = [0u32; 32];
    (words[0], words[1], words[2]) = (u32::from_le_bytes(*b"DDS "), 124, 0x1007);
    (words[3], words[4], words[19]) = (8, 16, 32);
    (words[20], words[21], words[27]) = (4, u32::from_le_bytes(*b"DXT1"), 0x1000);
    let blocks = (0..8u8).flat_map(|i| [i * 9, 200, i, 7, 0x1b, i, 0xe4, 0x55]);
    words.iter().flat_map(|word| word.to_le_bytes()).chain(blocks).collect()
}

fn every_format() -> Vec<(Format, Vec<u8>)> {
    let mut all = lossless();
    all.push((Format::Gif, encoded(&rgb(), ImageFormat::Gif)));
    all.push((Format::Jpeg, encoded(&rgb(), ImageFormat::Jpeg)));
    all.push((Format::Dds, dds()));
    all
}

#[test]
fn every_format_is_told_by_content_and_lossless_ones_are_exact() {
    for (format, bytes) in every_format() {
        assert_eq!(Format::of(&bytes).unwrap(), format);
        decode(&bytes).unwrap();
    }
    for (format, bytes) in lossless() {
        assert_eq!(decode(&bytes).unwrap().pixels, expected([0, 1, 2]), "{format}");
    }
}

/// A big-endian EXIF block with an orientation.
fn exif(number: u8) -> Vec<u8> {
    [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[number][..], b"\0\0\0\0\0\0"].concat()
}

#[test]
fn orientation_of_png_and_webp_is_applied_unless_switched_off() {
    let rgb = rgb();
    let (mut png, mut webp) = (Vec::new(), Vec::new());
    let mut encoder = image::codecs::png::PngEncoder::new(&mut png);
    encoder.set_exif_metadata(exif(6)).unwrap();
    encoder.write_image(rgb.as_bytes(), WIDTH, HEIGHT, rgb.color().into()).unwrap();
    let mut encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut webp);
    encoder.set_exif_metadata(exif(6)).unwrap();
    encoder.write_image(rgb.as_bytes(), WIDTH, HEIGHT, rgb.color().into()).unwrap();
    let turned = rgb.rotate90().into_bytes();
    for bytes in [png, webp] {
        let image = decode(&bytes).unwrap();
        assert_eq!((image.width, image.height), (HEIGHT, WIDTH));
        assert_eq!(image.pixels, turned);
        let off = DecodeOptions { orientation: false, ..DecodeOptions::default() };
        assert_eq!(decode_with(&off, &bytes).unwrap().pixels, rgb.as_bytes());
    }
}

#[test]
fn a_region_outside_the_picture_is_refused() {
    let bytes = encoded(&rgb(), ImageFormat::Png);
    let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
    let (header, mut image) = (decoder.header(&bytes).unwrap(), Image::default());
    for (left, width, fine) in
        [(0, WIDTH, true), (3, WIDTH - 3, true), (4, WIDTH - 3, false), (0, 0, false), (u32::MAX, 2, false)]
    {
        let request = Request { region: Rect { left, top: 0, width, height: 1 }, target: Size::new(1, 1) };
        let result = decoder.decode(&bytes, &header, Some(&request), &mut image);
        match result {
            Ok(decoded) => assert!(fine && decoded.covers.contains(request.region)),
            Err(error) => assert!(!fine && error.kind() == ErrorKind::Transform, "{error}"),
        }
    }
}

/// Headers that declare far more than their bytes hold.
fn bombs() -> Vec<(&'static str, Vec<u8>, ErrorKind)> {
    let mut png = encoded(&rgb(), ImageFormat::Png);
    let resized = |png: &mut Vec<u8>, side: u32| {
        png[16..20].copy_from_slice(&side.to_be_bytes());
        png[20..24].copy_from_slice(&side.to_be_bytes());
        let mut crc = !0u32; // of the chunk's type and content
        for byte in &png[12..29] {
            crc =
                (0..8).fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()));
        }
        png[29..33].copy_from_slice(&(!crc).to_be_bytes());
    };
    resized(&mut png, 30_000);
    let mut short = png.clone();
    resized(&mut short, 16_000);
    let gif =
        [b"GIF89a\xff\xff\xff\xff\0\0\0", &[0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0, 0x3b][..]]
            .concat();
    // Lossless WebP: 14 bits each of width - 1 and height - 1.
    let webp = [b"RIFF\x14\0\0\0WEBPVP8L\x08\0\0\0\x2f\xfe\xbf\xff\x0f\0\0\0".as_slice()].concat();
    let body = |head: &[u8]| [head, &[7; 100]].concat();
    vec![
        ("png", png, ErrorKind::Limit),
        ("png within the limits", short, ErrorKind::Decode),
        ("gif", gif, ErrorKind::Limit),
        ("webp", webp, ErrorKind::Limit),
        ("ppm", body(b"P6 60000 60000 255\n"), ErrorKind::Limit),
        ("ppm within the limits", body(b"P6 9000 9000 255\n"), ErrorKind::Decode),
        ("ascii pgm within the limits", body(b"P2 9000 9000 255\n"), ErrorKind::Decode),
        ("pbm within the limits", body(b"P4 9000 9000\n"), ErrorKind::Decode),
        ("qoi", body(b"qoif\0\0\x42\x68\0\0\x42\x68\x03\0"), ErrorKind::Limit),
        // More than the format's own 400 million pixels.
        ("qoi of 60000x60000", body(b"qoif\0\0\xea\x60\0\0\xea\x60\x03\0"), ErrorKind::Decode),
        ("qoi within the limits", body(b"qoif\0\0\x23\x28\0\0\x23\x28\x03\0"), ErrorKind::Decode),
        ("farbfeld", body(b"farbfeld\0\0\xea\x60\0\0\xea\x60"), ErrorKind::Limit),
        ("farbfeld within the limits", body(b"farbfeld\0\0\x17\x70\0\0\x17\x70"), ErrorKind::Decode),
    ]
}

#[test]
fn headers_that_declare_too_much_are_refused_before_decoding() {
    let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
    for (name, bytes, kind) in bombs() {
        let error = decoder.header(&bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        println!("{name}: {error}");
    }
    let small = DecodeOptions {
        limits: Limits { max_encoded_bytes: 99, ..Limits::default() },
        ..DecodeOptions::default()
    };
    let error = Decoder::new(&small).unwrap().header(&[0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
}

/// The peak of this process's memory, where the kernel tells.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn damaged_bytes_decode_or_err_within_the_memory_limit() {
    let files = every_format();
    let max_bytes = 16 << 20;
    let options =
        DecodeOptions { limits: Limits { max_bytes, ..Limits::default() }, ..DecodeOptions::default() };
    let decoder = RefCell::new(Decoder::new(&options).unwrap());
    let counts = (Cell::new(0), Cell::new(0));
    let before = peak();
    let strategy = (
        0..files.len(),
        proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        any::<prop::sample::Index>(),
    );
    let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((file, changes, cut) in strategy)| {
        let mut bytes = files[file].1.clone();
        for (n, (at, value)) in changes.iter().enumerate() {
            // Headers are where damage hurts most: every other change goes there.
            let reach = if n % 2 == 0 { bytes.len().min(64) } else { bytes.len() };
            let at = at.index(reach);
            bytes[at] = *value;
        }
        if cut.index(4) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut decoder = decoder.borrow_mut();
        let header = decoder.header(&bytes);
        let decoded = header.and_then(|header| decoder.decode(&bytes, &header, None, &mut Image::default()));
        let counter = if decoded.is_ok() { &counts.0 } else { &counts.1 };
        counter.set(counter.get() + 1);
    });
    let grown = peak().saturating_sub(before);
    let (decoded, refused) = (counts.0.get(), counts.1.get());
    println!("{} formats, {decoded} decoded, {refused} refused, {} MiB at most", files.len(), grown >> 20);
    assert!(decoded > 1000 && refused > 1000);
    assert!(grown <= max_bytes + (64 << 20), "{} MiB", grown >> 20);
}
