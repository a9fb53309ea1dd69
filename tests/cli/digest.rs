//! `forebay run --digest`: the same data, pipeline and seed give the same bytes, however they were loaded.

use std::collections::BTreeMap;

use crate::{forebay, printed, run, stderr, stdout};

/// Small pictures, so that the many runs are quick; the work is that of any other size.
const RUN: &str = "run datasets/tiny --size 64 --batch-size 16 --progress never";

/// The transports that worker processes may use.
const TRANSPORTS: [&str; 6] = ["auto", "memfd", "shm", "file", "heap", "in-process"];

fn reference() -> String {
    printed(&format!("{RUN} --digest --epochs 2 --num-workers 0"))
}

#[test]
fn a_line_an_epoch_and_nothing_else() {
    let lines = reference();
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2);
    for (epoch, words) in lines.iter().enumerate() {
        assert_eq!(words[..5], ["epoch", &epoch.to_string(), "samples", "62", "sha256"]);
        assert!(words[5].len() == 64 && words[5].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_ne!(lines[0][5], lines[1][5], "epochs have orders and crops of their own");
}

#[test]
fn every_transport_gives_the_same_digests() {
    let reference = reference();
    for (number, transport) in TRANSPORTS.into_iter().enumerate() {
        // Worker counts and orders take turns over the transports; all pairs are below.
        let unordered = if number % 2 == 0 { "--unordered" } else { "" };
        let line = format!("{RUN} --digest --epochs 2 --transport {transport} --num-workers 2 {unordered}");
        assert_eq!(printed(&line), reference, "{line}");
    }
}

#[test]
fn workers_prefetch_and_arrival_do_not_change_the_digests() {
    let reference = reference();
    for workers in [0, 1, 2, 5] {
        for prefetch in [1, 4] {
            for unordered in ["", "--unordered"] {
                let line = format!(
                    "{RUN} --digest --epochs 2 --num-workers {workers} --prefetch {prefetch} {unordered}"
                );
                assert_eq!(printed(&line), reference, "{line}");
            }
        }
    }
}

#[test]
fn seed_size_and_type_change_the_digests() {
    let digest = |flags: &str| printed(&format!("{RUN} --digest --num-workers 0 {flags}"));
    let all: Vec<String> =
        ["", "--seed 1", "--no-shuffle", "--dtype f16", "--layout nhwc"].map(digest).into();
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{all:#?}");
    }
    assert_eq!(digest("--seed 0"), all[0]);
}

#[test]
fn a_late_start_gives_the_rest_of_the_lines() {
    let lines = |flags: &str| printed(&format!("{RUN} --batch-size 8 --epochs 2 --digest batch {flags}"));
    let whole = lines("--num-workers 0");
    let whole: Vec<&str> = whole.lines().collect();
    assert_eq!(whole.len(), 2 * 8);
    for (start, workers) in [(1, 1), (3, 2), (7, 5)] {
        let rest = lines(&format!("--num-workers {workers} --start-batch {start}"));
        assert_eq!(rest.lines().collect::<Vec<_>>(), whole[start..], "--start-batch {start}");
    }
}

#[test]
fn a_start_behind_the_end_is_refused() {
    let output = run(&["run", "datasets/tiny", "--batch-size", "16", "--start-batch", "5"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("--start-batch is 5") && said.contains("an epoch has 4 batches"), "{said}");
}

/// `epoch` 0's batches as one rank of three printed them: samples by batch number.
fn batches(rank: u32, tail: &str) -> BTreeMap<u64, u64> {
    let line = format!(
        "{RUN} --batch-size 7 --num-workers 1 --rank {rank} --world-size 3 --rank-tail {tail} --digest batch"
    );
    let number = |word: &str| word.parse::<u64>().unwrap();
    let printed = printed(&line);
    let words = printed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|words| (number(words[3]), number(words[5]))).collect()
}

#[test]
fn ranks_share_the_samples_as_their_tail_says() {
    for (tail, total) in [("exact", 62), ("pad", 63), ("drop", 60)] {
        let ranks: Vec<_> = (0..3).map(|rank| batches(rank, tail)).collect();
        assert_eq!(ranks.iter().flat_map(BTreeMap::values).sum::<u64>(), total, "{tail}: {ranks:?}");
        if tail != "exact" {
            assert!(ranks.iter().all(|rank| *rank == ranks[0]), "{tail}: {ranks:?}");
        }
    }
}

#[test]
fn the_variables_stand_in_for_the_flags() {
    let with = |workers: &str, transport: &str, flags: &[&str]| {
        let output = forebay()
            .args(["run", "datasets/tiny", "--size", "32", "--json", "--digest"])
            .args(flags)
            .envs([("FOREBAY_NUM_WORKERS", workers), ("FOREBAY_TRANSPORT", transport)])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    let report = with("3", "heap", &[]);
    assert_eq!((&report["num_workers"], &report["transports"][0]), (&3.into(), &"heap".into()));
    let flags = with("3", "heap", &["--num-workers", "1", "--transport", "memfd"]);
    assert_eq!((&flags["num_workers"], &flags["transports"][0]), (&1.into(), &"memfd".into()));
    assert_eq!(report["epochs"][0]["sha256"], flags["epochs"][0]["sha256"]);
}
