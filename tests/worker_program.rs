//! A loader whose workers are another program: the command-line tool, which knows the built-in types and no others.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

use forebay::prelude::*;
use forebay::{ErrorKind, LoaderBuilder};
use serde::{Deserialize, Serialize};

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay");

fn builder() -> LoaderBuilder {
    Loader::builder(ImageFolder::open("datasets/tiny").unwrap())
        .pipeline(Pipeline::train(32))
        .batch_size(8)
        .shuffle(true)
        .seed(3)
}

fn bytes(loader: &Loader) -> Vec<u8> {
    loader.epoch(0).flat_map(|batch| batch.unwrap().image_bytes().to_vec()).collect()
}

#[test]
fn built_in_types_work_in_any_program_that_begins_with_init() {
    let foreign = builder().num_workers(2).worker_program(PROGRAM).build().unwrap();
    assert!(bytes(&foreign) == bytes(&builder().num_workers(0).build().unwrap()));
}

#[test]
fn the_kernel_takes_workers_before_their_host() {
    let loader = builder().num_workers(2).worker_program(PROGRAM).build().unwrap();
    let _ = loader.epoch(0).next().unwrap().unwrap();
    let pids: Vec<u32> = loader.stats().workers.iter().filter_map(|worker| worker.pid).collect();
    assert!(!pids.is_empty());
    for pid in pids {
        let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score.trim(), "1000");
    }
}

/// A step that only this test program has.
#[derive(Debug, Serialize, Deserialize)]
struct OnlyHere;

#[typetag::serde]
impl Transform for OnlyHere {
    fn apply(&self, _: &mut Sample, _: &mut SampleRng) -> forebay::Result<()> {
        Ok(())
    }
}

#[test]
fn a_step_that_the_program_does_not_link_is_named() {
    let pipeline = Pipeline::new().then(OnlyHere).then(CenterCrop::new(8));
    let loader = builder().pipeline(pipeline).num_workers(2).worker_program(PROGRAM).build().unwrap();
    let mut epoch = loader.epoch(0);
    let error = epoch.next().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("OnlyHere"), "{text}");
    assert!(text.contains("in a crate that the worker program links"), "{text}");
    assert!(epoch.next().is_none(), "an error that ends the loader comes once");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = builder().num_workers(1).worker_program("/nowhere/worker").build().unwrap_err();
    assert!(error.to_string().contains("/nowhere/worker"), "{error}");
    assert_ne!(error.kind(), ErrorKind::Timeout);
}
