//! A pipeline step of your own, in worker processes and in pipeline files.
//!
//! `cargo run --release --example custom_transform [DATA]` (default: `datasets/tiny`)
//!
//! Your package needs `serde` (with `derive`) and `typetag` beside `forebay`.
#![allow(clippy::print_stdout)]

use forebay::decode::Size;
use forebay::prelude::*;
use forebay::transform::Shape;
use forebay::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Darkens the picture's corners, by an amount that is drawn anew for each sample.
///
/// The type is data: workers get it through serde, and a pipeline file may say `type = "Vignette"`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vignette {
    /// The largest share of light that the corners lose, in `[0, 1]`.
    strength: f64,
}

#[typetag::serde] // makes the type known to this program, and so to its worker processes
impl Transform for Vignette {
    /// Checks the parameters when the loader is built, before any worker starts.
    fn shape(&self, input: Shape) -> Result<Shape> {
        if (0.0..=1.0).contains(&self.strength) {
            return Ok(input);
        }
        Err(Error::new(ErrorKind::Config, format!("Vignette: strength = {} is no share", self.strength))
            .with_remedy("give a number from 0 to 1"))
    }

    /// Takes all randomness from `rng`, which depends on the seed, the epoch and the sample's position alone: the same
    /// bytes come out whichever worker runs this, and whenever.
    fn apply(&self, sample: &mut Sample, rng: &mut SampleRng) -> Result<()> {
        let loss = rng.uniform_in(0.0, self.strength);
        let image = sample.image_mut()?;
        let Size { width, height } = image.size();
        let (middle_x, middle_y) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
        let rows = image.pixels.chunks_exact_mut(3 * width as usize);
        for (y, row) in rows.enumerate() {
            let dy = (y as f64 + 0.5 - middle_y) / middle_y;
            for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                let dx = (x as f64 + 0.5 - middle_x) / middle_x;
                let light = 1.0 - loss * (dx * dx + dy * dy) / 2.0;
                *pixel = pixel.map(|level| (f64::from(level) * light + 0.5) as u8);
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    forebay::init();
    let data = std::env::args().nth(1).unwrap_or_else(|| "datasets/tiny".into());
    for strength in [0.0, 1.0] {
        let loader = Loader::builder(ImageFolder::open(&data)?)
            .transform(RandomResizedCrop::new(128))
            .transform(Vignette { strength })
            .output(DType::U8, Layout::Nhwc)
            .batch_size(16)
            .num_workers(2)
            .build()?;
        let (mut corners, mut middles, mut count) = (0.0, 0.0, 0.0);
        for batch in loader.epoch(0) {
            let batch = batch?;
            for image in batch.images::<u8>()?.outer_iter() {
                corners += f64::from(image[[0, 0, 1]]);
                middles += f64::from(image[[64, 64, 1]]);
                count += 1.0;
            }
        }
        println!(
            "strength {strength:.1}: {count} pictures, green {:.0} in the corner, {:.0} in the middle, on average",
            corners / count,
            middles / count,
        );
    }
    Ok(())
}
