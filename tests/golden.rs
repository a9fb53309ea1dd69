//! The bytes that pipelines give on `datasets/tiny`, held by digests in `golden.toml`: the same on every machine, and the
//! same tomorrow unless someone decides otherwise. They hold for libjpeg-turbo; another JPEG decoder rounds differently.
#![cfg(all(feature = "cli", feature = "turbo"))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use forebay::transform::PIPELINE_VERSION;
use serde::Deserialize;

/// Name and flags of each case.
const CASES: [(&str, &str); 9] = [
    ("train", "--preset train"),
    ("train-seed-1", "--preset train --seed 1"),
    ("train-f16", "--preset train --dtype f16"),
    ("train-bf16", "--preset train --dtype bf16"),
    ("train-nhwc", "--preset train --layout nhwc"),
    ("eval", "--preset eval"),
    ("eval-shuffled-96", "--preset eval --shuffle --size 96"),
    ("u8-nhwc", "--pipeline tests/fixtures/pipelines/u8-nhwc.toml"),
    ("every-step", "--pipeline tests/fixtures/pipelines/every-step.toml"),
];

/// Set to `write` to write the file anew.
const VARIABLE: &str = "FOREBAY_GOLDEN";

const HEAD: &str = "\
# SHA-256 of epochs 0 and 1 of datasets/tiny by pipeline; tests/golden.rs has each one's flags.
# Written by: FOREBAY_GOLDEN=write cargo test --test golden
";

const ON_PURPOSE: &str = "\
If no byte was to change, this is a bug. If the output changes on purpose:
  1. raise PIPELINE_VERSION in src/transform/pipeline.rs, so that checkpoints of the old output are refused;
  2. say what changes under the heading *Output* of CHANGELOG.md, with the new version;
  3. write the digests anew: FOREBAY_GOLDEN=write cargo test --test golden";

#[derive(Debug, Deserialize)]
struct Golden {
    pipeline_version: u32,
    digests: BTreeMap<String, [String; 2]>,
}

fn path() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.toml"))
}

fn digests(flags: &str) -> [String; 2] {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args("run datasets/tiny --epochs 2 --digest --quiet --num-workers 2 --transport auto".split(' '))
        .args(flags.split(' '))
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    let hex: Vec<String> = printed.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    hex.try_into().unwrap()
}

fn write(golden: &Golden) {
    let mut text = format!("{HEAD}pipeline_version = {}\n\n[digests]\n", golden.pipeline_version);
    for (name, _) in CASES {
        let [zero, one] = &golden.digests[name];
        writeln!(text, "{name} = [\n    \"{zero}\",\n    \"{one}\",\n]").unwrap();
    }
    std::fs::write(path(), text).unwrap();
}

#[test]
fn every_pipeline_gives_the_bytes_that_it_always_gave() {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let known: Option<Golden> = toml::from_str(&text).ok();
    let now: BTreeMap<_, _> =
        CASES.into_iter().map(|(name, flags)| (name.to_owned(), digests(flags))).collect();
    let same_version = known.as_ref().is_some_and(|known| known.pipeline_version == PIPELINE_VERSION);
    let changed: Vec<&str> = CASES
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            known.as_ref().and_then(|known| known.digests.get(*name)).is_some_and(|old| *old != now[*name])
        })
        .collect();
    if std::env::var(VARIABLE).is_ok_and(|value| value == "write") {
        assert!(changed.is_empty() || !same_version, "{changed:?} changed within one version.\n{ON_PURPOSE}");
        write(&Golden { pipeline_version: PIPELINE_VERSION, digests: now });
        return;
    }
    let known = known.expect("tests/golden.toml: FOREBAY_GOLDEN=write cargo test --test golden writes it");
    assert!(changed.is_empty(), "other bytes than before: {changed:?}.\n{ON_PURPOSE}");
    assert!(
        same_version,
        "version {PIPELINE_VERSION} gives the bytes of {}.\n{ON_PURPOSE}",
        known.pipeline_version
    );
    let names: Vec<&String> = known.digests.keys().collect();
    assert!(names.iter().copied().eq(now.keys()), "golden.toml has {names:?}; write it anew for a new case");
}
