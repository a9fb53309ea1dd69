//! Pipelines through their public door: as data, as promises about bytes, and against hostile files.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use forebay::decode::{DecodeOptions, Decoder, Image, Rect, Size, Source};
use forebay::transform::{
    CenterCrop, ColorJitter, Compiled, Fill, GaussianBlur, Normalize, Pipeline, RandomApply, RandomCrop,
    RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize,
    Sample, SampleKey, SampleRng, Shape, Transform,
};
use forebay::{DType, ErrorKind, Layout, Result};
#[cfg(feature = "cli")]
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// A picture whose pixels all differ from their neighbours.
fn picture(width: u32, height: u32) -> Image {
    let mut image = Image::default();
    image.reset(Size::new(width, height));
    let mut state = 7u32;
    for (n, byte) in image.pixels.iter_mut().enumerate() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = ((n / 3 * 5) as u32 + (state >> 27)) as u8;
    }
    image
}

fn raw(image: &Image) -> Source<'_> {
    Source::Rgb8 { width: image.width, height: image.height, pixels: &image.pixels }
}

fn key(position: u64) -> SampleKey {
    SampleKey::new(11, 2, position)
}

fn run(pipeline: Pipeline, source: Source<'_>, position: u64) -> Vec<u8> {
    let mut compiled = Compiled::new(pipeline, Shape::Varying).unwrap();
    let mut out = vec![0xAA; compiled.sample_bytes()];
    compiled.run(source, 5, key(position), &mut out).unwrap();
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_ne_bytes(*four)).collect()
}

/// One of each step, with parameters that differ from the defaults.
fn everything() -> Pipeline {
    Pipeline::new()
        .then(RandomResizedCrop::new([40, 48]).scale(0.1, 0.9).ratio(0.5, 2.0))
        .then(Resize::new(36).max_size(50))
        .then(RandomCrop::new(34).padding_sides(1, 2, 3, 4).fill([1, 2, 3]).pad_if_needed(true))
        .then(CenterCrop::new(33))
        .then(RandomVerticalFlip::new(0.25))
        .then(
            RandomApply::new(0.8)
                .then(ColorJitter::new(0.4, 0.3, 0.2, 0.1))
                .then(GaussianBlur::new(3).sigma(0.2, 1.5)),
        )
        .then(RandomGrayscale::default())
        .then(RandomErasing::new(0.6).value([9.0, 8.0, 7.0]))
        .then(RandomHorizontalFlip::default())
        .then(Normalize::IMAGENET)
        .then(RandomErasing::default().scale(0.1, 0.2).ratio(0.5, 2.0).random())
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    let smooth: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [(x * 3) as u8, (y * 2) as u8, (x * y / 16) as u8]))
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 90);
    encoder.encode(&smooth, width, height, image::ExtendedColorType::Rgb8).unwrap();
    bytes
}

fn decoded(bytes: &[u8]) -> Image {
    let mut decoder = Decoder::new(&DecodeOptions::default()).unwrap();
    let header = decoder.header(bytes).unwrap();
    let mut image = Image::default();
    decoder.decode(bytes, &header, None, &mut image).unwrap();
    image
}

#[test]
fn decoding_a_region_gives_the_bytes_of_decoding_everything() {
    let pipelines: [fn() -> Pipeline; 5] = [
        || Pipeline::train(64),
        || Pipeline::eval(64),
        || Pipeline::eval(224),
        || Pipeline::new().then(CenterCrop::new(50)),
        || Pipeline::new().then(RandomCrop::new(31)),
    ];
    for (width, height) in [(320, 240), (150, 401), (90, 64)] {
        let bytes = jpeg(width, height);
        let whole = decoded(&bytes);
        for (n, pipeline) in pipelines.iter().enumerate() {
            for position in 0..8 {
                let part = run(pipeline(), Source::Encoded(&bytes), position);
                let all = run(pipeline(), raw(&whole), position);
                assert!(part == all, "pipeline {n} on {width}x{height}, position {position}");
            }
        }
    }
}

#[test]
fn evaluation_asks_for_the_part_that_its_crop_needs() {
    let compiled = Compiled::new(Pipeline::eval(224), Shape::Varying).unwrap();
    let request = compiled.request(Size::new(1024, 512), key(0)).unwrap();
    let Rect { left, top, width, height } = request.region;
    assert!(width < 480 && height < 480, "{request:?}");
    assert!(left > 270 && top > 20, "{request:?}");
    assert_eq!(request.target, request.region.size());
}

#[test]
fn bytes_depend_on_the_key_only_and_not_on_earlier_samples() {
    let image = picture(61, 47);
    let mut used = Compiled::new(everything(), Shape::Varying).unwrap();
    let mut outputs = Vec::new();
    for position in 0..20 {
        let other = picture(30 + position as u32, 90);
        let mut out = vec![0; used.sample_bytes()];
        used.run(raw(&other), 0, key(position + 100), &mut out).unwrap();
        used.run(raw(&image), 0, key(position), &mut out).unwrap();
        assert_eq!(out, run(everything(), raw(&image), position));
        outputs.push(out);
    }
    outputs.sort();
    outputs.dedup();
    assert_eq!(outputs.len(), 20);
}

#[test]
fn an_inserted_step_shifts_no_draws_of_others() {
    let image = picture(50, 40);
    let tail = |pipeline: Pipeline| {
        pipeline.then(RandomHorizontalFlip::default()).then(ColorJitter::new(0.5, 0.5, 0.5, 0.2))
    };
    for position in 0..20 {
        let plain = tail(Pipeline::new().then(RandomResizedCrop::new(24)));
        let more = tail(
            Pipeline::new()
                .then(RandomGrayscale::new(0.0))
                .then(RandomResizedCrop::new(24))
                .then(RandomVerticalFlip::new(0.0))
                .then(RandomApply::new(1.0).then(RandomHorizontalFlip::new(0.0))),
        );
        assert_eq!(run(plain, raw(&image), position), run(more, raw(&image), position));
    }
}

#[test]
fn two_steps_of_one_type_draw_differently() {
    let image = picture(9, 9);
    let flips = |n: usize| {
        (0..n).fold(Pipeline::new().then(CenterCrop::new(9)), |p, _| p.then(RandomHorizontalFlip::default()))
    };
    let same = (0..64)
        .filter(|&position| run(flips(2), raw(&image), position) == run(flips(0), raw(&image), position))
        .count();
    assert!((10..55).contains(&same), "{same} of 64 pairs of flips cancelled out");
}

/// Does nothing but ask for the pixels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Touch;

#[typetag::serde]
impl Transform for Touch {
    fn apply(&self, sample: &mut Sample, _rng: &mut SampleRng) -> Result<()> {
        sample.image_mut().map(|_| ())
    }
}

#[test]
fn deferred_flips_equal_flips_carried_out() {
    let image = picture(37, 29);
    let build = |touch: bool, horizontal: f64, vertical: f64| {
        let maybe = |pipeline: Pipeline| if touch { pipeline.then(Touch) } else { pipeline };
        let flips = |pipeline: Pipeline| {
            maybe(
                pipeline.then(RandomHorizontalFlip::new(horizontal)).then(RandomVerticalFlip::new(vertical)),
            )
        };
        let start = flips(Pipeline::new());
        let cut = flips(start.then(RandomResizedCrop::new(20)));
        let erased = flips(cut.then(RandomErasing::new(1.0).value([7.0, 8.0, 9.0])));
        erased.then(RandomCrop::new(16))
    };
    for (horizontal, vertical) in [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.5)] {
        for position in 0..10 {
            let deferred = run(build(false, horizontal, vertical), raw(&image), position);
            assert_eq!(deferred, run(build(true, horizontal, vertical), raw(&image), position));
        }
    }
}

#[test]
fn every_dtype_and_layout_holds_the_same_values() {
    let image = picture(13, 7);
    for (horizontal, vertical) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
        let output = |dtype, layout| {
            let pipeline = Pipeline::new()
                .then(CenterCrop::new([7, 13]))
                .then(RandomHorizontalFlip::new(horizontal))
                .then(RandomVerticalFlip::new(vertical));
            run(pipeline.output(dtype, layout), raw(&image), 0)
        };
        let place = |y: usize, x: usize| {
            let y = if vertical == 1.0 { 6 - y } else { y };
            let x = if horizontal == 1.0 { 12 - x } else { x };
            (y * 13 + x) * 3
        };
        let nhwc: Vec<u8> = (0..7)
            .flat_map(|y| (0..13).flat_map(move |x| (0..3).map(move |c| (y, x, c))))
            .map(|(y, x, c)| image.pixels[place(y, x) + c])
            .collect();
        let nchw: Vec<u8> =
            (0..3).flat_map(|c| nhwc.iter().skip(c).step_by(3).copied().collect::<Vec<_>>()).collect();
        for (layout, bytes) in [(Layout::Nhwc, nhwc), (Layout::Nchw, nchw)] {
            let scaled: Vec<f32> = bytes.iter().map(|&v| f32::from(v) / 255.0).collect();
            assert_eq!(output(DType::U8, layout), bytes);
            assert_eq!(floats(&output(DType::F32, layout)), scaled);
            let f16: Vec<u8> = scaled.iter().flat_map(|&v| half::f16::from_f32(v).to_ne_bytes()).collect();
            assert_eq!(output(DType::F16, layout), f16);
            let bf16: Vec<u8> = scaled.iter().flat_map(|&v| half::bf16::from_f32(v).to_ne_bytes()).collect();
            assert_eq!(output(DType::BF16, layout), bf16);
        }
    }
}

#[test]
fn normalisation_equals_torchvision_within_5e_7() {
    let image = picture(256, 3);
    let pipeline = Pipeline::new().then(CenterCrop::new([3, 256])).then(Normalize::IMAGENET);
    let out = floats(&run(pipeline, raw(&image), 0));
    let (mean, std) = ([0.485f32, 0.456, 0.406], [0.229f32, 0.224, 0.225]);
    for (n, value) in out.iter().enumerate() {
        let (channel, pixel) = (n / 768, n % 768);
        let torchvision =
            (f32::from(image.pixels[pixel * 3 + channel]) / 255.0 - mean[channel]) / std[channel];
        assert!((value - torchvision).abs() <= 5e-7, "{value} {torchvision}");
    }
}

#[test]
fn erasing_after_the_normalisation_puts_elements_in_place() {
    let image = picture(20, 20);
    let base = || Pipeline::new().then(CenterCrop::new(20)).then(Normalize::IMAGENET);
    let plain = floats(&run(base(), raw(&image), 0));
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let erased =
            base().then(RandomErasing::new(1.0).value([50.0, 60.0, 70.0])).output(DType::F32, layout);
        let erased = floats(&run(erased, raw(&image), 0));
        let mut counts = [0; 3];
        for (n, &value) in erased.iter().enumerate() {
            let (channel, pixel) = if layout == Layout::Nchw { (n / 400, n % 400) } else { (n % 3, n / 3) };
            if value == [50.0, 60.0, 70.0][channel] {
                counts[channel] += 1;
            } else {
                assert_eq!(value, plain[channel * 400 + pixel]);
            }
        }
        assert!(counts[0] >= 6 && counts == [counts[0]; 3], "{counts:?}");
    }
    let noisy = floats(&run(
        base().then(RandomErasing::new(1.0).scale(0.8, 0.9).ratio(0.9, 1.1).random()),
        raw(&image),
        1,
    ));
    let noise: Vec<f32> = noisy.iter().zip(&plain).filter(|(a, b)| a != b).map(|(a, _)| *a).collect();
    let mean = noise.iter().sum::<f32>() / noise.len() as f32;
    assert!(noise.len() > 800 && mean.abs() < 0.2, "{} {mean}", noise.len());
}

#[test]
fn steps_after_the_normalisation_cannot_reach_pixels() {
    let mut sample = Sample::new(picture(8, 8), 3);
    let mut rng = SampleRng::root(key(0));
    assert_eq!(
        sample
            .erase(Rect { left: 0, top: 0, width: 2, height: 2 }, Fill::Normal(rng.clone()))
            .unwrap_err()
            .kind(),
        ErrorKind::Config
    );
    Normalize::IMAGENET.apply(&mut sample, &mut rng).unwrap();
    assert!(sample.is_normalized());
    for error in [
        sample.image_mut().map(|_| ()).unwrap_err(),
        sample.resize(Size::new(4, 4)).unwrap_err(),
        sample.crop(0, 0, Size::new(4, 4), [0; 3]).unwrap_err(),
        Normalize::IMAGENET.apply(&mut sample, &mut rng).unwrap_err(),
    ] {
        assert!(error.remedy().unwrap().contains("Normalize behind"), "{error}");
    }
}

#[test]
fn pictures_of_any_size_pass_through_every_step() {
    for (width, height) in [(1, 1), (1, 300), (300, 1), (2, 3), (700, 500)] {
        let image = picture(width, height);
        for position in 0..4 {
            let out = run(everything(), raw(&image), position);
            assert!(floats(&out).iter().all(|value| value.is_finite()));
            assert_eq!(run(Pipeline::train(224), raw(&image), position).len(), 224 * 224 * 12);
            assert_eq!(run(Pipeline::eval(224), raw(&image), position).len(), 224 * 224 * 12);
        }
    }
}

#[test]
fn labels_and_times_come_back() {
    let image = picture(8, 8);
    let mut compiled = Compiled::new(Pipeline::new().then(CenterCrop::new(8)), Shape::Varying).unwrap();
    let mut out = vec![0; compiled.sample_bytes()];
    assert_eq!(compiled.run(raw(&image), -4, key(0), &mut out).unwrap().label, -4);
    let error = compiled.run(raw(&image), 0, key(0), &mut out[1..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transform);
}

#[test]
fn check_names_the_step_and_what_mends_it() {
    let refused = |pipeline: Pipeline, text: &str, remedy: &str| {
        let error = pipeline.check(Shape::Varying).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(text), "{error}");
        assert!(error.remedy().unwrap().contains(remedy), "{error}");
    };
    refused(Pipeline::new(), "vary in size", "CenterCrop");
    refused(Pipeline::new().then(Resize::new(20)), "vary in size", "CenterCrop");
    refused(Pipeline::train(8).then(CenterCrop::new(4)), "step 4 (CenterCrop)", "in front of Normalize");
    refused(Pipeline::train(8).then(Normalize::IMAGENET), "step 4 (Normalize)", "in front");
    refused(Pipeline::train(8).output(DType::U8, Layout::Nchw), "u8", "dtype = \"f32\"");
    refused(Pipeline::train(0), "step 1 (RandomResizedCrop)", "1 to 32768");
    refused(Pipeline::new().then(RandomErasing::default().random()), "normal noise", "Normalize in front");
    refused(Pipeline::new().then(GaussianBlur::new(4)), "kernel_size 4x4", "odd");
    refused(Pipeline::new().then(RandomHorizontalFlip::new(1.5)), "p = 1.5", "0 to 1");
    refused(Pipeline::new().then(ColorJitter::new(0.0, 0.0, 0.0, 0.6)), "hue", "0.5");
    refused(Pipeline::new().then(RandomApply::new(0.5).then(Normalize::IMAGENET)), "RandomApply", "out of");
    let crop = || Pipeline::new().then(RandomCrop::new(10));
    assert_eq!(crop().check(Shape::Fixed(Size::new(10, 12))).unwrap(), Size::new(10, 10));
    assert!(crop().check(Shape::Fixed(Size::new(9, 12))).is_err());
    let exact = Pipeline::new().then(Resize::new(10)).check(Shape::Fixed(Size::new(30, 20))).unwrap();
    assert_eq!(exact, Size::new(15, 10));
}

#[test]
fn json_and_toml_bring_back_the_same_pipeline() {
    for pipeline in [everything(), Pipeline::train(224), Pipeline::eval(224), Pipeline::new()] {
        let json = pipeline.to_json().unwrap();
        assert_eq!(Pipeline::from_json(&json).unwrap().to_json().unwrap(), json);
        #[cfg(feature = "cli")]
        {
            let toml = Pipeline::from_toml(&pipeline.to_toml().unwrap()).unwrap();
            assert_eq!(toml.to_json().unwrap(), json);
            assert_eq!(toml.fingerprint(), pipeline.fingerprint());
        }
    }
    assert_ne!(Pipeline::train(224).fingerprint(), Pipeline::train(225).fingerprint());
    let bytes = Pipeline::train(224).output(DType::F16, Layout::Nchw);
    assert_ne!(Pipeline::train(224).fingerprint(), bytes.fingerprint());
}

#[test]
fn the_form_that_fingerprints_hash_is_pinned() {
    let json = Pipeline::train(224).to_json().unwrap();
    assert!(json.starts_with(r#"{"dtype":"f32","layout":"nchw","decode":{"#), "{json}");
    let steps = concat!(
        r#""step":[{"type":"RandomResizedCrop","size":224,"scale":[0.08,1.0],"ratio":[0.75,1.3333333333333333]},"#,
        r#"{"type":"RandomHorizontalFlip","p":0.5},"#,
        r#"{"type":"Normalize","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}]}"#
    );
    assert!(json.ends_with(steps), "{json}");
}

#[test]
fn a_step_of_the_users_own_goes_through_json() {
    let pipeline = Pipeline::new().then(Touch).then(RandomApply::new(0.5).then(Touch));
    let copy = Pipeline::from_json(&pipeline.to_json().unwrap()).unwrap();
    assert_eq!(format!("{copy:?}"), format!("{pipeline:?}"));
}

#[cfg(feature = "cli")]
#[test]
fn a_file_with_a_wrong_key_is_refused_by_name() {
    let refused = |text: &str, part: &str| {
        let error = Pipeline::from_toml(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(part), "{error}");
    };
    refused("dtyp = \"f32\"", "dtyp");
    refused("dtype = \"f64\"", "f64");
    refused("[[step]]\ntype = \"RandomResizedCrap\"", "RandomResizedCrap");
    refused("[[step]]\ntype = \"CenterCrop\"\nsize = 3\nsise = 4", "sise");
    refused("[[step]]\ntype = \"CenterCrop\"", "size");
    refused("[[step]]\ntype = \"CenterCrop\"\nsize = \"big\"", "[height, width]");
    refused("[[step]]\ntype = \"RandomErasing\"\nvalue = \"noise\"", "random");
    refused("[[step]]\nsize = 3", "type");
    refused("[decode]\norientaton = true", "orientaton");
    refused(
        "[[step]]\ntype = \"RandomApply\"\ntransforms = [{ type = \"Touch\" }, { type = \"Nope\" }]",
        "Nope",
    );
}

#[cfg(feature = "cli")]
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|x| format!("{x:?}")),
        (0..70u32).prop_map(|n| n.to_string()),
        (0.0..1.5f64).prop_map(|x| format!("{x:?}")),
        Just("nan".into()),
        Just("-inf".into()),
        Just("\"random\"".into()),
    ]
}

#[cfg(feature = "cli")]
fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => number(), 1 => prop::collection::vec(number(), 0..5).prop_map(|all| format!("[{}]", all.join(", ")))]
}

#[cfg(feature = "cli")]
fn step() -> impl Strategy<Value = String> {
    let tag = prop::sample::select(vec![
        "RandomResizedCrop",
        "Resize",
        "CenterCrop",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomVerticalFlip",
        "ColorJitter",
        "RandomGrayscale",
        "GaussianBlur",
        "RandomErasing",
        "RandomApply",
        "Normalize",
    ]);
    let key = prop::sample::select(vec![
        "size",
        "scale",
        "ratio",
        "max_size",
        "padding",
        "fill",
        "pad_if_needed",
        "p",
        "brightness",
        "contrast",
        "saturation",
        "hue",
        "kernel_size",
        "sigma",
        "value",
        "transforms",
        "mean",
        "std",
    ]);
    (tag, prop::collection::btree_map(key, value(), 0..3)).prop_map(|(tag, keys)| {
        let keys: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        format!("[[step]]\ntype = \"{tag}\"\n{keys}")
    })
}

#[cfg(feature = "cli")]
proptest! {
    #[test]
    fn no_text_makes_a_pipeline_panic(text in "[ -~\n]{0,200}") {
        if let Ok(pipeline) = Pipeline::from_toml(&text) {
            let _ = pipeline.check(Shape::Varying);
        }
    }

    #[test]
    fn a_pipeline_that_passes_its_check_runs_or_errs(steps in prop::collection::vec(step(), 0..4), position in 0..9u64) {
        let Ok(pipeline) = Pipeline::from_toml(&steps.concat()) else { return Ok(()) };
        let pipeline = pipeline.then(CenterCrop::new(9));
        let small = pipeline.steps.iter().all(|step| match step.shape(Shape::Fixed(Size::new(40, 9))) {
            Ok(Shape::Fixed(size)) => size.pixels() < 1 << 20,
            _ => true,
        });
        let Ok(mut compiled) = Compiled::new(pipeline, Shape::Varying) else { return Ok(()) };
        prop_assume!(small);
        let image = picture(40, 9);
        let mut out = vec![0; compiled.sample_bytes()];
        let _ = compiled.run(raw(&image), 0, key(position), &mut out);
    }
}
