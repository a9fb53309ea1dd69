//! The resizer gives the same bytes at every level of SIMD support, so that batches are equal on every machine.
#![allow(unsafe_code, clippy::unwrap_used)]

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{CpuExtensions, FilterType, ResizeAlg, ResizeOptions, Resizer};

fn resize(level: CpuExtensions, pixels: &[u8], from: [u32; 2], cut: [u32; 4], to: [u32; 2]) -> Vec<u8> {
    let mut resizer = Resizer::new();
    // SAFETY: the caller passes only levels for which `is_supported` returned true on this machine.
    unsafe { resizer.set_cpu_extensions(level) };
    let whole = TypedImageRef::<U8x3>::from_buffer(from[0], from[1], pixels).unwrap();
    let view = TypedCroppedImage::new(whole, cut[0], cut[1], cut[2], cut[3]).unwrap();
    let mut bytes = vec![0; (to[0] * to[1] * 3) as usize];
    let mut out = TypedImage::<U8x3>::from_buffer(to[0], to[1], &mut bytes).unwrap();
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    resizer.resize_typed(&view, &mut out, &options).unwrap();
    drop(out);
    bytes
}

#[test]
fn every_simd_level_gives_the_bytes_of_the_portable_path() {
    let levels: Vec<_> = [CpuExtensions::Sse4_1, CpuExtensions::Avx2]
        .into_iter()
        .filter(|level| level.is_supported())
        .collect();
    if levels.is_empty() {
        println!("skipped: this machine has neither SSE4.1 nor AVX2");
        return;
    }
    let mut state = 1u64;
    let mut next = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    for round in 0..400 {
        let from = [1 + next(190), 1 + next(150)];
        let to = [1 + next(150), 1 + next(150)];
        let pixels: Vec<u8> = (0..from[0] * from[1] * 3)
            .map(|_| if round % 3 == 0 { [0, 255][next(2) as usize] } else { next(256) as u8 })
            .collect();
        let (left, top) = (next(from[0]), next(from[1]));
        let cut = [left, top, 1 + next(from[0] - left), 1 + next(from[1] - top)];
        let portable = resize(CpuExtensions::None, &pixels, from, cut, to);
        for &level in &levels {
            let other = resize(level, &pixels, from, cut, to);
            assert_eq!(portable, other, "{level:?} differs: {from:?} cut {cut:?} to {to:?}");
        }
    }
}
