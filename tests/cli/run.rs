//! `forebay run`: what it reports, what it refuses, and what a broken data set does to it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{forebay, printed, refused, run, stderr, stdout, text};

const QUICK: &str = "run datasets/tiny --size 32 --batch-size 16 --progress never";

#[test]
fn the_summary_is_for_people() {
    let text = printed(&format!("{QUICK} --num-workers 2"));
    assert!(text.starts_with("loaded       62 images in 4 batches, 1 epoch, "), "{text}");
    for row in
        ["speed ", "first batch ", "memory ", "transport ", "workers ", "waits ", "verdict ", "versions "]
    {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}:\n{text}");
    }
    assert!(
        text.contains("2 workers") && text.contains("images/s") && text.contains(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn results_and_messages_keep_to_their_streams() {
    let digest = run(&["run", "datasets/tiny", "--size", "32", "--digest"]);
    assert_eq!(stdout(&digest).lines().count(), 1, "standard output holds the digests alone");
    assert!(stderr(&digest).contains("images/s"), "{}", stderr(&digest));
    let quiet = run(&["run", "datasets/tiny", "--size", "32", "--digest", "-q"]);
    assert_eq!((stdout(&quiet), stderr(&quiet)), (stdout(&digest), String::new()));
}

#[test]
fn what_a_person_may_not_have_meant_is_said() {
    let root = tempfile::tempdir().unwrap();
    let class = root.path().join("cat");
    fs::create_dir(&class).unwrap();
    for (number, file) in fs::read_dir("datasets/broken/good").unwrap().enumerate() {
        let file = file.unwrap().path();
        let name = format!("{number}.{}", file.extension().unwrap().to_string_lossy());
        fs::copy(&file, class.join(&name)).unwrap();
        fs::copy(&file, root.path().join(&name)).unwrap();
    }
    let more = ["--size", "32", "--num-workers", "0", "--progress", "never"];
    let said = |path: &Path, last: &str| {
        let mut args = vec!["run", path.to_str().unwrap()];
        args.extend(more.iter().copied().chain([last]));
        stderr(&run(&args))
    };
    assert!(said(root.path(), "--shuffle").contains("3 pictures lie beside the class directories"));
    assert!(said(&class, "--shuffle").contains("no class directories: all its pictures are of one class"));
    let none = said(Path::new("datasets/tiny"), "--drop-last");
    assert!(none.contains("epoch 0 has no batches of 64"), "{none}");
    assert!(!said(Path::new("datasets/tiny"), "--shuffle").contains("warning"));
}

/// Checks a value against the parts of JSON Schema that the report's schema uses.
fn conforms(schema: &Value, value: &Value, at: &str) {
    if let Some(fixed) = schema.get("const") {
        assert_eq!(value, fixed, "{at}");
    }
    match schema["type"].as_str() {
        Some("object") => {
            let fields = value.as_object().unwrap_or_else(|| panic!("{at} is no object: {value}"));
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(fields.contains_key(name.as_str().unwrap()), "{at}.{name} is missing");
            }
            for (name, field) in fields {
                let known = schema["properties"].get(name);
                conforms(known.unwrap_or_else(|| panic!("{at}.{name} is not in the schema")), field, name);
            }
        }
        Some("array") => {
            let items = value.as_array().unwrap_or_else(|| panic!("{at} is no array: {value}"));
            items.iter().for_each(|item| conforms(&schema["items"], item, at));
        }
        Some("string") => assert!(value.is_string(), "{at} is no string: {value}"),
        Some("integer") => assert!(value.is_u64() || value.is_i64(), "{at} is no integer: {value}"),
        Some("number") => assert!(value.is_number(), "{at} is no number: {value}"),
        other => assert!(schema.get("const").is_some(), "{at}: the schema says {other:?}"),
    }
    if let Some(minimum) = schema.get("minimum").and_then(Value::as_f64) {
        assert!(value.as_f64().unwrap() >= minimum, "{at} is {value}");
    }
}

#[test]
fn the_json_report_is_one_object_that_conforms_to_its_schema() {
    let schema: Value = serde_json::from_str(include_str!("../../src/cli/report/schema.json")).unwrap();
    for flags in ["", "--digest", "--digest batch --epochs 2 --unordered"] {
        let report: Value = serde_json::from_str(&printed(&format!("{QUICK} --json {flags}"))).unwrap();
        conforms(&schema, &report, "report");
        assert_eq!((&report["failed_samples"], &report["failed_batches"]), (&0.into(), &0.into()));
        assert_eq!(report["samples"].as_u64().unwrap() % 62, 0);
    }
}

#[test]
fn the_json_report_holds_the_printed_digests() {
    let lines = printed(&format!("{QUICK} --digest batch --num-workers 1"));
    let report: Value =
        serde_json::from_str(&printed(&format!("{QUICK} --digest batch --json --num-workers 2"))).unwrap();
    let epoch = &report["epochs"][0];
    let digests = epoch["batch_digests"].as_array().unwrap();
    let again: Vec<String> = digests
        .iter()
        .map(|digest| {
            let sha256 = digest["sha256"].as_str().unwrap();
            format!("epoch 0 batch {} samples {} sha256 {sha256}", digest["batch"], digest["samples"])
        })
        .collect();
    assert_eq!(again, lines.lines().collect::<Vec<_>>());
}

#[test]
fn memory_is_that_of_prefetch_and_one_batch_whatever_the_workers() {
    let report = |workers: u32| -> Value {
        let line = format!("run datasets/tiny --batch-size 16 --prefetch 2 --num-workers {workers} --json");
        serde_json::from_str(&printed(&line)).unwrap()
    };
    let (two, five) = (report(2), report(5));
    assert_eq!(two["slab_bytes"], five["slab_bytes"]);
    assert_eq!(two["transports"].as_array().unwrap().len(), 3);
    let batch = 16 * (3 * 224 * 224 * 4 + 8);
    let slab = two["slab_bytes"].as_u64().unwrap() / 3;
    assert!((batch..batch + 2 * 4096).contains(&slab), "{slab} bytes a slab for {batch} of content");
    assert!(five["control_bytes"].as_u64().unwrap() <= 5 * 65_536, "{five}");
}

#[test]
fn a_pipeline_file_is_followed_and_flags_outweigh_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    let steps = "[[step]]\ntype = \"Resize\"\nsize = [20, 24]\n";
    fs::write(&file, format!("dtype = \"u8\"\nlayout = \"nhwc\"\n{steps}")).unwrap();
    let bytes = |flags: &str| {
        let line = format!("run datasets/tiny --pipeline {} --batch-size 62 --json {flags}", text(&file));
        let report: Value = serde_json::from_str(&printed(&line)).unwrap();
        report["slab_bytes"].as_u64().unwrap() / report["transports"].as_array().unwrap().len() as u64
    };
    let (u8_bytes, f32_bytes) = (bytes(""), bytes("--dtype f32"));
    let content = 62 * 20 * 24 * 3;
    assert!((content..content + 8192).contains(&u8_bytes), "{u8_bytes}");
    assert!((4 * content..4 * content + 8192).contains(&f32_bytes), "{f32_bytes}");
}

#[test]
fn a_pipeline_file_that_is_wrong_is_named_with_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    let said = |content: &str| {
        fs::write(&file, content).unwrap();
        let said = refused(&format!("run datasets/tiny --pipeline {}", text(&file)));
        assert!(said.contains("p.toml"), "{said}");
        said
    };
    let unknown = said("[[step]]\ntype = \"RandomResizedCorp\"\nsize = 32\n");
    assert!(unknown.contains("line 2") && unknown.contains("RandomResizedCorp"), "{unknown}");
    assert!(unknown.contains("`RandomResizedCrop`"), "it lists what may stand there: {unknown}");
    let misspelt = said("[[step]]\ntype = \"CenterCrop\"\nsiz = 32\n");
    assert!(misspelt.contains("siz") && misspelt.contains("size"), "{misspelt}");
    let absent = refused("run datasets/tiny --pipeline /nowhere/p.toml");
    assert!(absent.contains("/nowhere/p.toml"), "{absent}");
}

#[test]
fn pictures_that_vary_in_size_are_refused_with_the_step_to_add() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    fs::write(&file, "[[step]]\ntype = \"RandomHorizontalFlip\"\n").unwrap();
    let said = refused(&format!("run datasets/tiny --pipeline {}", text(&file)));
    assert!(said.contains("vary in size") && said.contains("CenterCrop"), "{said}");
}

#[test]
fn a_broken_data_set_is_loaded_as_far_as_it_goes() {
    let line = "run datasets/broken --size 16 --batch-size 1 --no-shuffle --progress never --num-workers 2";
    let output = forebay().args(line.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    for file in ["cut/in-header.jpg", "wrong/text.jpg", "bomb/header-60000.png", "damaged/zero-width.jpg"] {
        assert!(
            said.lines().any(|line| line.starts_with("error: ") && line.contains(file)),
            "{file}:\n{said}"
        );
    }
    assert!(!said.contains("good/"), "{said}");
    let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
    let summary = stdout(&output);
    let failed = format!("; {errors} samples failed, {errors} batches lost");
    assert!(summary.lines().next().unwrap().ends_with(&failed), "{summary}");
}

#[test]
fn a_data_set_that_is_not_there_is_refused_with_what_to_do() {
    let said = refused("run /nowhere/train");
    assert!(said.contains("/nowhere/train") && said.contains("fix: "), "{said}");
    let file = refused("run README.md");
    assert!(file.contains("README.md") && file.contains("fix: "), "{file}");
    let dir = tempfile::tempdir().unwrap();
    let empty = refused(&format!("run {}", text(dir.path())));
    assert!(empty.contains("no pictures found") && empty.contains("fix: "), "{empty}");
}

#[test]
fn values_out_of_range_are_refused_with_the_flag_and_what_it_may_be() {
    for (flags, parts) in [
        ("--frobnicate", &["--frobnicate"][..]),
        ("--transport rdma", &["--transport", "rdma", "memfd"]),
        ("--num-workers many", &["--num-workers", "many", "auto"]),
        ("--num-workers 5000", &["num_workers is 5000", "1024"]),
        ("--batch-size 0", &["--batch-size", "from 1"]),
        ("--prefetch 0", &["--prefetch", "from 1"]),
        ("--epochs -1", &["-1"]),
        ("--dtype i64", &["--dtype", "bf16"]),
        ("--on-error ignore", &["--on-error", "substitute"]),
        ("--on-error skip --max-errors x", &["--max-errors", "10"]),
        ("--max-errors 1", &["--on-error skip"]),
        ("--timeout 0", &["--timeout", "seconds"]),
        ("--rank 3 --world-size 3", &["--rank is 3", "0 to 2"]),
        ("--rank 1", &["--world-size"]),
        ("--file-dir /tmp", &["--file-dir", "add --transport file"]),
        ("--transport file --file-dir /nowhere", &["/nowhere"]),
        ("--num-workers 0 --transport memfd", &["memfd needs worker processes"]),
        ("--dtype u8", &["Normalize", "u8"]),
        ("--pipeline p.toml --preset eval", &["--pipeline", "--preset"]),
    ] {
        let said = refused(&format!("run datasets/tiny {flags}"));
        for part in parts {
            assert!(said.contains(part), "{flags}: {part:?} is missing:\n{said}");
        }
    }
}

#[test]
fn values_of_variables_are_checked_as_flags_are() {
    for (name, flag) in [("FOREBAY_NUM_WORKERS", "--num-workers"), ("FOREBAY_TRANSPORT", "--transport")] {
        let output = forebay().args(["run", "datasets/tiny"]).env(name, "nonsense").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains("nonsense") && said.contains(flag), "{said}");
    }
}

#[test]
fn auto_workers_are_the_processors_divided_by_the_local_ranks() {
    let workers = |ranks: Option<&str>| {
        let mut command = forebay();
        command.args(["run", "datasets/tiny", "--size", "16", "--num-workers", "auto", "--json"]);
        command.envs(ranks.map(|ranks| ("LOCAL_WORLD_SIZE", ranks)));
        let report: Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
        report["num_workers"].as_u64().unwrap()
    };
    let all = workers(None);
    assert!(all >= 1);
    assert_eq!(workers(Some("2")), (all / 2).max(1));
    let wrong = forebay().args(["run", "datasets/tiny"]).env("LOCAL_WORLD_SIZE", "none").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("LOCAL_WORLD_SIZE"), "{}", stderr(&wrong));
}

#[test]
fn strict_gives_exactly_the_transport_asked_for() {
    let line = format!("{QUICK} --strict --transport memfd --json");
    let report: Value = serde_json::from_str(&printed(&line)).unwrap();
    let transports = report["transports"].as_array().unwrap();
    assert!(!transports.is_empty() && transports.iter().all(|name| name == "memfd"), "{report}");
}

/// Runs a line under a file size limit of 64 KiB, so that no shared memory can be had for slabs.
fn without_shared_memory(line: &str) -> std::process::Output {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 128; exec \"$@\"", "sh"]);
    let inner = forebay();
    command.arg(inner.get_program()).args(line.split_whitespace());
    command.current_dir(inner.get_current_dir().unwrap());
    command.output().unwrap()
}

#[test]
fn without_shared_memory_the_bytes_are_the_same_and_strict_refuses() {
    let line = "run datasets/tiny --batch-size 16 --size 64 --num-workers 2 --progress never";
    let fell = without_shared_memory(&format!("{line} --digest --transport auto"));
    assert_eq!(fell.status.code(), Some(0), "{}", stderr(&fell));
    assert_eq!(stdout(&fell), printed(&format!("{line} --digest --num-workers 0")));
    let said = stderr(&fell);
    assert!(
        said.starts_with("warning[degraded]: no memfd for all slabs: ")
            && said.contains("fix: ulimit -f unlimited"),
        "{said}"
    );
    assert!(said.contains("heap x 3"), "{said}");
    for transport in ["auto", "memfd", "shm"] {
        let refused = without_shared_memory(&format!("{line} --transport {transport} --strict"));
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(refused.stdout.is_empty() && said.contains("fix: ulimit -f unlimited"), "{said}");
    }
}

#[test]
fn an_epoch_without_batches_is_no_error() {
    let text = printed(&format!("{QUICK} --batch-size 100 --drop-last"));
    assert!(text.starts_with("loaded       0 images in 0 batches, 1 epoch, "), "{text}");
}

#[test]
fn plain_progress_is_lines_and_never_a_bar() {
    let output = run(&["run", "datasets/tiny", "--size", "16", "--progress", "plain", "--color", "never"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!stderr(&output).contains('\r') && !stderr(&output).contains('\x1b'), "{}", stderr(&output));
}
