//! `forebay synth`.

use std::fs;

use crate::{run, stderr, stdout, text};

#[test]
fn synth_gives_the_same_bytes_for_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, seed: &str| {
        let folder = dir.path().join(name);
        let flags = ["--images", "3", "--classes", "1", "--width", "40", "--height", "30", "--seed", seed];
        let output = run(&[&["synth", text(&folder)], &flags[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("3 images in 1 classes"), "{}", stdout(&output));
        let class = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let mut files: Vec<_> = fs::read_dir(class).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()
    };
    let first = make("a", "1");
    assert_eq!(first.len(), 3);
    assert_eq!(first, make("b", "1"));
    assert_ne!(first, make("c", "2"));
}

#[test]
fn synth_writes_into_no_directory_that_holds_something() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine.txt"), "mine").unwrap();
    let output = run(&["synth", text(dir.path()), "--images", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(text(dir.path())), "{}", stderr(&output));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_few_pictures_have_a_class_each() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("few");
    let output = run(&["synth", text(&folder), "--images", "3", "--width", "16", "--height", "16"]);
    assert!(stdout(&output).contains("3 images in 3 classes"), "{}", stderr(&output));
}

#[test]
fn what_synth_made_can_be_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let flags = ["--images", "7", "--classes", "2", "--width", "40", "--height", "30"];
    assert_eq!(run(&[&["synth", text(&folder)], &flags[..]].concat()).status.code(), Some(0));
    let output = run(&["run", text(&folder), "--size", "16", "--digest"]);
    assert!(stdout(&output).starts_with("epoch 0 samples 7 sha256 "), "{}", stderr(&output));
}
