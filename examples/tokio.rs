//! Beside an asynchronous runtime: `init()` comes before the runtime's threads, batches are awaited from a blocking task.
//!
//! `cargo run --release --example tokio [DATA]` (default: `datasets/tiny`)
//!
//! `#[tokio::main]` would start threads before the first line of `main`; so `main` is written out.
#![allow(clippy::print_stdout)]

use forebay::prelude::*;

fn main() -> forebay::Result<()> {
    forebay::init();
    let data = std::env::args().nth(1).unwrap_or_else(|| "datasets/tiny".into());
    tokio::runtime::Runtime::new()?.block_on(train(data))
}

async fn train(data: String) -> forebay::Result<()> {
    let loader = Loader::builder(ImageFolder::open(data)?)
        .pipeline(Pipeline::train(96))
        .batch_size(16)
        .num_workers(2)
        .shuffle(true)
        .build()?;
    // An epoch may go to another thread, and so may each batch: here a blocking task takes batches and hands them over.
    let (sender, mut batches) = tokio::sync::mpsc::channel(1);
    let epoch = loader.epoch(0);
    let taker = tokio::task::spawn_blocking(move || {
        for batch in epoch {
            if sender.blocking_send(batch).is_err() {
                break; // nobody listens any more
            }
        }
    });
    let mut samples = 0;
    while let Some(batch) = batches.recv().await {
        let batch = batch?;
        samples += batch.len();
        println!("batch {}: {:?}", batch.step(), batch.shape());
    }
    taker.await.map_err(std::io::Error::other)?;
    println!("{samples} samples; {}", loader.stats());
    Ok(())
}
