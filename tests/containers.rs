//! The binary in real limits: a private `/dev/shm` of some size, a memory group of some size. Needs root and `unshare`;
//! elsewhere each test says that it is skipped.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forebay::synth::{self, SynthOptions};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A few pictures, enough for three batches of 64.
fn pictures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = SynthOptions { images: 150, classes: 3, width: 96, height: 80, seed: 1 };
    synth::write(folder.path().join("data"), &options, |_| {}).unwrap();
    folder
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// `forebay run` on the pictures: batches of 64 pictures of 224 x 224 in f32, 36.8 MiB each.
fn arguments(data: &Path, more: &str) -> String {
    let data = data.join("data");
    format!("{FOREBAY} run {} --batch-size 64 --digest --progress never {more}", data.display())
}

/// Runs a shell line with a `/dev/shm` of its own; `None` where that cannot be had.
fn with_shm(size: &str, line: &str) -> Option<(Option<i32>, String, String)> {
    let script = format!("mount -t tmpfs -o size={size} forebay-test /dev/shm || exit 99\n{line}");
    let result = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    (result.0 != Some(99) && !result.2.starts_with("unshare:")).then_some(result)
}

/// The line that prints a digest.
fn digest(stdout: &str) -> &str {
    stdout
        .lines()
        .find(|line| line.starts_with("epoch 0 "))
        .unwrap_or_else(|| panic!("no digest in {stdout:?}"))
}

#[test]
fn every_size_of_dev_shm_gives_the_same_digest_on_every_transport() {
    let pictures = pictures();
    let (code, reference, stderr) =
        run(Command::new("sh").args(["-c", &arguments(pictures.path(), "--num-workers 0")]));
    assert_eq!(code, Some(0), "{stderr}");
    for size in ["4k", "64k", "1m", "32m", "64m", "111m", "128m"] {
        for transport in ["auto", "memfd", "shm", "heap"] {
            let line = arguments(pictures.path(), &format!("--transport {transport} --num-workers 2"));
            let Some((code, stdout, stderr)) = with_shm(size, &line) else {
                println!(
                    "skipped: every_size_of_dev_shm_gives_the_same_digest: no private mount can be made here"
                );
                return;
            };
            assert_eq!(code, Some(0), "{transport} in {size}: {stderr}");
            assert_eq!(digest(&stdout), digest(&reference), "{transport} in {size}");
            assert!(!stderr.contains("worker-died"), "{transport} in {size}: {stderr}");
            // 3 slabs of 36.8 MiB are 110.3 MiB: only then is there nothing to say.
            let degrades = transport == "shm" && !["111m", "128m"].contains(&size);
            assert_eq!(stderr.contains("warning[degraded]"), degrades, "{transport} in {size}: {stderr}");
        }
    }
}

#[test]
fn strict_refuses_with_need_have_and_a_size_that_does() {
    let pictures = pictures();
    let line = arguments(pictures.path(), "--transport shm --strict --num-workers 2");
    let Some((code, _, stderr)) = with_shm("64m", &line) else {
        println!(
            "skipped: strict_refuses_with_need_have_and_a_size_that_does: no private mount can be made here"
        );
        return;
    };
    assert_eq!(code, Some(2), "{stderr}");
    for part in ["3 slabs x 36.8 MiB need 110.3 MiB", "of 64.0 MiB are left", "--shm-size="] {
        assert!(stderr.contains(part), "{part:?} in {stderr}");
    }
    let size = stderr.split_once("--shm-size=").unwrap().1.split(' ').next().unwrap();
    let (code, _, stderr) = with_shm(size, &line).unwrap();
    assert_eq!(code, Some(0), "{size}: {stderr}");
}

#[test]
fn memory_that_others_take_meanwhile_changes_nothing() {
    let pictures = pictures();
    let line = arguments(pictures.path(), "--transport shm --epochs 20 --num-workers 2");
    let greedy =
        format!("{line} & pid=$!; sleep 0.3; dd if=/dev/zero of=/dev/shm/full bs=1M 2>/dev/null; wait $pid");
    let Some((code, stdout, stderr)) = with_shm("112m", &greedy) else {
        println!(
            "skipped: memory_that_others_take_meanwhile_changes_nothing: no private mount can be made here"
        );
        return;
    };
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stdout.lines().count(), 20, "{stdout}");
    assert!(!stderr.contains("warning"), "{stderr}");
}

#[test]
fn slabs_leave_the_heap_when_there_is_room_again() {
    let pictures = pictures();
    let line = arguments(pictures.path(), "--transport shm --epochs 400 --num-workers 2 --json");
    let script = format!(
        "dd if=/dev/zero of=/dev/shm/full bs=1M count=60 2>/dev/null; (sleep 0.5; rm /dev/shm/full) & {line}"
    );
    let Some((code, stdout, stderr)) = with_shm("112m", &script) else {
        println!("skipped: slabs_leave_the_heap_when_there_is_room_again: no private mount can be made here");
        return;
    };
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("1 shm, 2 heap"), "{stderr}");
    assert!(!stderr.contains("worker-died"), "{stderr}");
    assert_eq!(stdout.matches("\"shm\"").count(), 3, "{stdout}");
}

/// A memory group of this test's own, version 1 or 2.
struct Group {
    directory: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new(name: &str) -> Option<Group> {
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(root, limit)| {
            let directory = Path::new(root).join(format!("forebay-test-{name}-{}", std::process::id()));
            fs::create_dir(&directory).ok()?;
            let group = Group { directory, limit };
            group.directory.join(limit).exists().then_some(group)
        })
    }

    /// Runs a line within that many MiB, and returns how many processes the kernel killed for it.
    fn run(&self, mib: u64, line: &str) -> ((Option<i32>, String, String), u64) {
        fs::write(self.directory.join(self.limit), (mib << 20).to_string()).unwrap();
        let before = self.kills();
        let script = format!("echo $$ > {}/cgroup.procs || exit 99\nexec {line}", self.directory.display());
        let result = run(Command::new("sh").args(["-c", &script]));
        (result, self.kills() - before)
    }

    fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let text: String =
            files.iter().filter_map(|file| fs::read_to_string(self.directory.join(file)).ok()).collect();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

#[test]
fn no_memory_limit_kills_and_every_refusal_names_settings_that_run() {
    let Some(group) = Group::new("limits") else {
        println!(
            "skipped: no_memory_limit_kills_and_every_refusal_names_settings_that_run: no memory group can be made"
        );
        return;
    };
    let pictures = pictures();
    for mib in [48, 64, 96, 128, 192, 256, 512] {
        let line = arguments(pictures.path(), "--num-workers 2");
        let ((code, _, stderr), kills) = group.run(mib, &line);
        assert_eq!(kills, 0, "{mib} MiB: {stderr}");
        match code {
            Some(0) => continue,
            Some(2) => assert!(mib < 256, "{mib} MiB: {stderr}"),
            other => panic!("{mib} MiB: {other:?}: {stderr}"),
        }
        let fix = stderr.split_once("fix: ").unwrap().1;
        let settings = fix.split_once(" (.batch_size").unwrap().0;
        let data = pictures.path().join("data");
        let line = format!("{FOREBAY} run {} --digest --progress never {settings}", data.display());
        let ((code, _, stderr), kills) = group.run(mib, &line);
        assert_eq!((code, kills), (Some(0), 0), "{mib} MiB with {settings}: {stderr}");
    }
}
