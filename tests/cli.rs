//! The command-line tool as its users meet it: the real binary, its exit codes, and which stream says what.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn forebay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in ["FOREBAY_LOG", "FOREBAY_NUM_WORKERS", "FOREBAY_TRANSPORT", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    forebay().args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn version_names_the_codec() {
    let output = run(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        format!("forebay {} ({})\n", env!("CARGO_PKG_VERSION"), forebay::decode::codec_version())
    );
}

#[test]
fn usage_errors_go_to_standard_error_with_code_two() {
    for args in [&[][..], &["frobnicate"], &["decode"], &["synth", "d", "--images", "x"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("verify"), "{shell}");
    }
}

#[test]
fn decode_writes_what_the_decoder_gives() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("two.ppm"), dir.path().join("out"));
    fs::write(&file, b"P6 2 1 255\n\xff\0\0\0\0\xff").unwrap();
    let output = run(&["decode", text(&file), "--out", text(&out)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let png = out.join("two.ppm.png");
    assert_eq!(stdout(&output), format!("{} 2x1\n", png.display()));
    let image = image::open(&png).unwrap().into_rgb8();
    assert_eq!((image.dimensions(), image.into_raw()), ((2, 1), vec![255, 0, 0, 0, 0, 255]));
}

#[test]
fn a_file_that_fails_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad, out) = (dir.path().join("b.ppm"), dir.path().join("a.jpg"), dir.path().join("out"));
    fs::write(&good, b"P6 1 1 255\n\x01\x02\x03").unwrap();
    fs::write(&bad, b"not a picture").unwrap();
    let absent = dir.path().join("absent.png");
    let output = run(&["decode", text(&bad), text(&absent), text(&good), "--out", text(&out)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.join("b.ppm.png").exists());
    assert!(
        stderr(&output).contains("a.jpg") && stderr(&output).contains("absent.png"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.jpg");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = run(&["decode", text(&pipe), "--out", text(dir.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not a regular file"), "{}", stderr(&output));
}

#[test]
fn verify_finds_nothing_wrong_with_the_small_data_set() {
    let output = run(&["verify", "datasets/tiny"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("pictures, 0 broken"), "{}", stdout(&output));
}

#[test]
fn verify_lists_broken_files_in_order() {
    let output = run(&["verify", "datasets/broken"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    let (total, lines) =
        text.lines().collect::<Vec<_>>().split_last().map(|(a, b)| (*a, b.to_vec())).unwrap();
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    assert!(!lines.is_empty() && lines == sorted, "{text}");
    assert!(total.contains(&format!("{} broken", lines.len())), "{text}");
}

#[test]
fn verify_says_what_it_found_where_there_are_no_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["verify", text(dir.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && stderr(&output).contains("fix: "), "{}", stderr(&output));
}

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
fn a_closed_pipe_is_no_error() {
    let mut child = forebay()
        .args(["verify", "datasets/broken"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(!said.contains("error") && !said.contains("panicked"), "{said}");
}

#[test]
fn colour_follows_the_flag() {
    let with = |flag: &str| stderr(&run(&["verify", "/nowhere", "--color", flag]));
    assert!(
        with("always").contains("\x1b[")
            && !with("never").contains("\x1b[")
            && !with("auto").contains("\x1b[")
    );
}

#[test]
fn an_unknown_log_level_is_said_and_survived() {
    let output = forebay().args(["completions", "bash"]).env("FOREBAY_LOG", "loud").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("FOREBAY_LOG is \"loud\""), "{}", stderr(&output));
}
