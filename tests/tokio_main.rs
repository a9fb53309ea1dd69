//! `#[tokio::main]` starts its threads before the first line of `main`, so `init()` comes too late there. That has to be
//! said when the loader is built; a worker process must not be started, and nothing may hang.
#![allow(clippy::unwrap_used)]

use forebay::ErrorKind;
use forebay::prelude::*;

/// This program's only test, as test runners call it.
const NAME: &str = "init_under_tokio_main_is_refused_with_the_line_that_mends_it";

#[tokio::main(worker_threads = 2)]
async fn main() {
    forebay::init();
    if listed() {
        return;
    }
    let builder = || Loader::builder(Synthetic::new(8, 8, 8)).batch_size(4).num_workers(1);
    let error = builder().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("threads ran already"), "{error}");
    assert!(
        error.remedy().unwrap().contains("the first line of main(), before any thread starts"),
        "{error}"
    );
    // The way out that the remedy names.
    let loader = builder().transport(Transport::InProcess).build().unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).map(|batch| batch.len()).sum::<usize>(), 8);
}

/// Answers a test runner that asks which tests there are (`--list`, those that are ignored apart).
#[allow(clippy::print_stdout)]
fn listed() -> bool {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    if has("--list") && !has("--ignored") {
        println!("{NAME}: test");
    }
    has("--list")
}
