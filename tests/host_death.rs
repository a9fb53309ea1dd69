//! The host dies: its workers end with it, and nothing of them remains, neither process nor file.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // helpers of tests

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, thread};

use common::{Dice, alone, children_of, count, marked, this_program, wait_until, watchdog};
use forebay::Transport;
use forebay::prelude::*;

forebay::test_support!();

/// In the environment of a host and, through it, of its workers.
const MARK: &str = "FOREBAY_TEST_MARK";
const TRANSPORT: &str = "FOREBAY_TEST_TRANSPORT";
const FILE_DIR: &str = "FOREBAY_TEST_FILE_DIR";

#[test]
#[ignore = "the host that the other tests end"]
fn endless_host() {
    let (Ok(transport), Some(directory)) = (env::var(TRANSPORT), env::var_os(FILE_DIR)) else { return };
    watchdog("endless_host", 120);
    let loader = Loader::builder(Synthetic::new(4096, 64, 64))
        .batch_size(16)
        .num_workers(3)
        .shuffle(true)
        .transport(transport.parse().unwrap())
        .file_dir(Path::new(&directory))
        .build()
        .unwrap();
    for epoch in 0.. {
        for batch in loader.epoch(epoch) {
            batch.unwrap();
        }
    }
}

/// Names in `/dev/shm` that could be ours.
fn shared_files() -> Vec<String> {
    let names =
        fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.contains("forebay")).collect();
    names.sort();
    names
}

fn killed_hosts_leave_nothing(test: &str, transport: Transport) {
    alone(test, 240, || {
        let mut dice = Dice::new();
        let (mut seen, mut worst) = (0, Duration::ZERO);
        let rounds = count("FOREBAY_TEST_HOST_DEATHS", 5);
        for round in 0..rounds {
            let (directory, files) = (tempfile::tempdir().unwrap(), shared_files());
            let mark = format!("{test}-{}-{round}", std::process::id());
            let mut host = this_program("endless_host")
                .env(MARK, &mark)
                .env(TRANSPORT, transport.name())
                .env(FILE_DIR, directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // From before its first line to well within its epochs.
            thread::sleep(dice.millis_below(1500));
            let workers = children_of(host.id());
            seen += workers.len();
            host.kill().unwrap();
            host.wait().unwrap();
            let gone = || !workers.iter().any(|worker| worker.is_alive()) && marked(MARK, &mark).is_empty();
            worst = worst.max(wait_until(gone));
            assert_eq!(shared_files(), files, "round {round}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "round {round}");
        }
        assert!(seen > 0, "no host was killed while it had workers");
        println!("{transport}: {rounds} hosts killed, {seen} workers, gone after {worst:?} at most");
    });
}

#[test]
fn a_killed_host_leaves_nothing_with_memfd() {
    killed_hosts_leave_nothing("a_killed_host_leaves_nothing_with_memfd", Transport::Memfd);
}

#[test]
fn a_killed_host_leaves_nothing_with_shm() {
    killed_hosts_leave_nothing("a_killed_host_leaves_nothing_with_shm", Transport::Shm);
}

#[test]
fn a_killed_host_leaves_nothing_with_file() {
    killed_hosts_leave_nothing("a_killed_host_leaves_nothing_with_file", Transport::File);
}

#[test]
fn a_killed_host_leaves_nothing_with_heap() {
    killed_hosts_leave_nothing("a_killed_host_leaves_nothing_with_heap", Transport::Heap);
}

/// The real program, ended as a terminal ends it: the signal goes to the whole process group.
#[cfg(feature = "cli")]
#[test]
fn a_signal_to_the_group_ends_host_and_workers_in_silence() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use rustix::process::{Pid, Signal, kill_process_group};

    alone("a_signal_to_the_group_ends_host_and_workers_in_silence", 120, || {
        let mut dice = Dice::new();
        for round in 0..count("FOREBAY_TEST_SIGNALS", 6) {
            let signal = [Signal::INT, Signal::TERM, Signal::HUP][round % 3];
            let mark = format!("group-{}-{round}", std::process::id());
            let host = Command::new(env!("CARGO_BIN_EXE_forebay"))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["run", "datasets/tiny", "--epochs", "1000000", "--num-workers", "3", "--size", "64"])
                .args(["--progress", "never"])
                .env(MARK, &mark)
                .process_group(0)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // All have started; some of them may not have come to their first line.
            let mut workers = Vec::new();
            wait_until(|| {
                workers = children_of(host.id());
                workers.len() == 3
            });
            thread::sleep(dice.millis_below(800));
            kill_process_group(Pid::from_child(&host), signal).unwrap();
            let output = host.wait_with_output().unwrap();
            assert_eq!(output.status.signal(), Some(signal.as_raw()));
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
            assert_eq!(said, ["", ""]);
            wait_until(|| !workers.iter().any(|worker| worker.is_alive()) && marked(MARK, &mark).is_empty());
        }
    });
}
