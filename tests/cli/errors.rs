//! `forebay run` on a data set with one broken file: policies, error budget, error report.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::spoiled::{self, BROKEN, SAMPLES};
use crate::{forebay, stderr, stdout, text};

const QUICK: &str = "--size 32 --batch-size 8 --progress never --epochs 2";

fn load(folder: &tempfile::TempDir, flags: &str) -> Output {
    let mut command = forebay();
    command.args(["run", text(folder.path())]).args(QUICK.split(' ')).args(flags.split_whitespace());
    command.output().unwrap()
}

/// The lines of a report.
fn report(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn fail_names_the_file_and_loads_the_rest() {
    let folder = spoiled::folder();
    let output = load(&folder, "--num-workers 2");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let errors = stderr(&output).lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(
        (errors, stderr(&output).matches(BROKEN).count()),
        (2, 2),
        "once an epoch: {}",
        stderr(&output)
    );
    let summary = stdout(&output);
    let first = summary.lines().next().unwrap();
    assert!(
        first.contains("in 6 batches, 2 epochs") && first.ends_with("; 2 samples failed, 2 batches lost"),
        "{first}"
    );
}

#[test]
fn skip_and_substitute_give_the_same_bytes_whoever_makes_them() {
    let folder = spoiled::folder();
    let mut digests = Vec::new();
    for policy in ["skip", "substitute"] {
        let mut reference: Option<String> = None;
        for flags in [
            "--num-workers 0",
            "--num-workers 1 --transport memfd",
            "--num-workers 5 --transport memfd",
            "--num-workers 1 --transport heap",
            "--num-workers 5 --transport heap --unordered",
        ] {
            let output = load(&folder, &format!("--on-error {policy} --digest {flags}"));
            assert_eq!(output.status.code(), Some(1), "{flags}\n{}", stderr(&output));
            let lines = stdout(&output);
            assert_eq!(lines.lines().count(), 2);
            assert!(lines.lines().all(|line| line.contains(&format!(" samples {SAMPLES} "))), "{lines}");
            assert!(stderr(&output).contains("2 samples failed"), "{}", stderr(&output));
            assert_eq!(*reference.get_or_insert_with(|| lines.clone()), lines, "{policy} {flags}");
        }
        digests.push(reference);
    }
    assert_ne!(digests[0], digests[1]);
}

#[test]
fn the_report_has_a_line_for_each_failed_sample() {
    let folder = spoiled::folder();
    let file = folder.path().join("report.jsonl");
    for policy in ["fail", "skip", "substitute"] {
        let output = load(
            &folder,
            &format!("--num-workers 2 --on-error {policy} --error-report {} --json", text(&file)),
        );
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let lines = report(&file);
        let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(json["failed_samples"], lines.len());
        assert_eq!(json["failed_batches"], if policy == "fail" { 2 } else { 0 });
        let epochs: Vec<_> = lines.iter().map(|line| line["epoch"].as_u64().unwrap()).collect();
        assert_eq!(epochs, [0, 1], "{policy}");
        for line in &lines {
            assert!(line["key"].as_str().unwrap().ends_with(BROKEN), "{line}");
            assert_eq!(line["kind"], "decode");
            assert!(line["position"].as_u64().unwrap() < SAMPLES as u64, "{line}");
            assert_eq!(line["index"], lines[0]["index"]);
            assert!(!line["message"].as_str().unwrap().is_empty());
            assert_eq!(line["substitute"].is_u64(), policy == "substitute", "{line}");
            assert_eq!(line.as_object().unwrap().len(), 7);
        }
    }
}

#[test]
fn an_exhausted_error_budget_ends_the_run_and_the_report_says_why() {
    let folder = spoiled::folder();
    let file = folder.path().join("report.jsonl");
    for budget in ["0", "3%"] {
        let output = load(
            &folder,
            &format!("--num-workers 2 --on-error skip --max-errors {budget} --error-report {}", text(&file)),
        );
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("1 of 31 samples of epoch 0 failed, 0 may") && said.contains("fix: "),
            "{said}"
        );
        let lines = report(&file);
        assert_eq!(lines.len(), 1);
        assert!(lines[0]["key"].as_str().unwrap().ends_with(BROKEN), "{}", lines[0]);
    }
    for budget in ["1", "4%"] {
        let output = load(&folder, &format!("--on-error skip --max-errors {budget}"));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    }
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_loaded() {
    let folder = spoiled::folder();
    let output = load(&folder, "--error-report /nowhere/report.jsonl --digest batch");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(stderr(&output).contains("/nowhere/report.jsonl"), "{}", stderr(&output));
    // A full disk, as far as this file goes.
    let full = load(&folder, "--error-report /dev/full");
    assert_eq!(full.status.code(), Some(2));
    assert!(stderr(&full).contains("cannot write the error report"), "{}", stderr(&full));
}

#[cfg(feature = "turbo")] // another decoder cannot ignore damage
#[test]
fn damage_is_an_error_unless_the_pipeline_ignores_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cut")).unwrap();
    let cut = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/broken/cut/in-scan.jpg");
    fs::copy(cut, folder.path().join("cut/in-scan.jpg")).unwrap();
    let pipeline = folder.path().join("p.toml");
    let code = |damage: &str| {
        let steps = "[[step]]\ntype = \"Resize\"\nsize = [20, 24]\n";
        fs::write(&pipeline, format!("decode.damage = \"{damage}\"\n{steps}")).unwrap();
        let mut command = forebay();
        command.args(["run", text(folder.path()), "--pipeline", text(&pipeline)]);
        command.output().unwrap().status.code()
    };
    assert_eq!((code("error"), code("ignore"), code("perhaps")), (Some(1), Some(0), Some(2)));
}

#[test]
fn explain_says_how_the_run_will_go() {
    let folder = spoiled::folder();
    for flags in ["--explain", "-v"] {
        let said = stderr(&load(&folder, &format!("--num-workers 2 --on-error skip {flags}")));
        assert!(said.contains("workers: 2 (process each)") && said.contains("slabs: 3 x "), "{said}");
    }
    assert!(!stderr(&load(&folder, "--on-error skip")).contains("slabs: "));
}
