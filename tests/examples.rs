//! The examples, run as their readers would run them. Plain `cargo test` builds them beside this test.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

/// Runs an example on the data set it defaults to, and returns what it printed.
fn example(name: &str) -> String {
    // This test is target/<profile>/deps/examples-<hash>.
    let here = std::env::current_exe().unwrap();
    let program: PathBuf =
        [here.parent().unwrap().parent().unwrap(), "examples".as_ref(), name.as_ref()].iter().collect();
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    let output = Command::new(&program).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let (printed, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    printed
}

#[test]
fn quickstart_sees_every_picture_in_each_epoch() {
    let printed = example("quickstart");
    assert!(printed.starts_with("62 pictures in 6 classes: animal "), "{printed}");
    let seen: Vec<u32> = printed
        .lines()
        .filter_map(|line| line.split_once("labels seen [")?.1.strip_suffix(']'))
        .map(|counts| counts.split(", ").map(|count| count.parse::<u32>().unwrap()).sum())
        .collect();
    assert_eq!(seen, [62, 62], "{printed}");
    assert!(printed.contains("images [16, 3, 224, 224]"), "{printed}");
}

#[test]
fn custom_transform_darkens_the_corners_alone() {
    let printed = example("custom_transform");
    let levels: Vec<Vec<f64>> = printed
        .lines()
        .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .collect();
    let [[62.0, plain_corner, plain_middle], [62.0, corner, middle]] =
        [&levels[0][..], &levels[1][..]].map(|row| <[f64; 3]>::try_from(row).unwrap())
    else {
        panic!("{printed}")
    };
    assert!(corner < 0.8 * plain_corner && (middle - plain_middle).abs() <= 1.0, "{printed}");
}

#[test]
fn custom_dataset_hands_out_what_it_packed() {
    let printed = example("custom_dataset");
    assert!(printed.starts_with("packed 62 pictures, "), "{printed}");
    let samples: usize = printed
        .lines()
        .filter_map(|line| line.split_once("labels [")?.1.strip_suffix(']'))
        .map(|labels| labels.split(", ").count())
        .sum();
    assert_eq!(samples, 62, "{printed}");
}

#[test]
fn an_asynchronous_program_takes_every_batch() {
    let printed = example("tokio");
    assert_eq!(printed.lines().filter(|line| line.starts_with("batch ")).count(), 4, "{printed}");
    assert!(printed.contains("62 samples; "), "{printed}");
}
