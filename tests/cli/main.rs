//! The command-line tool as its users meet it: the real binary, its exit codes, and which stream says what.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does

mod decode;
mod digest;
mod errors;
mod run;
#[path = "../common/spoiled.rs"]
mod spoiled;
mod streams;
mod synth;
mod verify;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary, in the package's directory, without what the environment may say.
fn forebay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in ["FOREBAY_LOG", "FOREBAY_NUM_WORKERS", "FOREBAY_TRANSPORT", "NO_COLOR", "LOCAL_WORLD_SIZE"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    forebay().args(args).output().unwrap()
}

/// Runs a line of flags that has no spaces within a word, and returns what it printed; it must end with code 0.
fn printed(line: &str) -> String {
    let output = forebay().args(line.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "forebay {line}\n{}", stderr(&output));
    stdout(&output)
}

/// Runs a line of flags that must fail with code 2 and print no result; returns what it said.
fn refused(line: &str) -> String {
    let output = forebay().args(line.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "forebay {line}\n{}", stderr(&output));
    assert!(output.stdout.is_empty(), "forebay {line}\n{}", stdout(&output));
    stderr(&output)
}

/// Runs it into a pipe whose reader takes `lines` lines and leaves; returns the exit code and what it said.
fn pipe_closed_after(lines: usize, args: &[&str]) -> (Option<i32>, String) {
    let mut child = forebay().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..lines {
        assert!(reader.read_line(&mut String::new()).unwrap() > 0, "no line came");
    }
    drop(reader);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
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
