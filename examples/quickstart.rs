//! A whole training program, but for the training: folders of pictures in, batches out, made by worker processes.
//!
//! `cargo run --release --example quickstart [DATA]` (default: `datasets/tiny`)
#![allow(clippy::print_stdout)]

use forebay::prelude::*;

fn main() -> forebay::Result<()> {
    forebay::init(); // first line: a worker process stays here, the trainer goes on
    let data = std::env::args().nth(1).unwrap_or_else(|| "datasets/tiny".into());
    let train = ImageFolder::open(data)?;
    println!("{} pictures in {} classes: {}", train.len(), train.classes().len(), train.classes().join(" "));
    let classes = train.classes().len();

    let loader = Loader::builder(train)
        .transform(RandomResizedCrop::new(224))
        .transform(RandomHorizontalFlip::default())
        .transform(Normalize::IMAGENET)
        .output(DType::F32, Layout::Nchw)
        .batch_size(16)
        .num_workers(2)
        .shuffle(true)
        .seed(42)
        .build()?;

    for epoch in loader.epochs(2) {
        let number = epoch.epoch();
        let mut seen = vec![0; classes];
        for batch in epoch {
            let batch = batch?;
            let images = batch.images::<f32>()?; // ndarray's ArrayView4: the slab itself, no copy
            train_step(batch.step(), images, batch.labels(), &mut seen);
        } // dropping a batch frees its slab for the workers
        println!("epoch {number}: labels seen {seen:?}");
        println!("  {}", loader.stats());
    }
    Ok(())
}

/// Where your model goes. This one only looks at what it is given.
fn train_step(step: u64, images: ndarray::ArrayView4<'_, f32>, labels: &[i64], seen: &mut [u32]) {
    for &label in labels {
        seen[label as usize] += 1;
    }
    let mean = images.mean().unwrap_or_default();
    println!("  batch {step}: images {:?}, mean {mean:+.3}", images.shape());
}
