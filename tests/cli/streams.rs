//! What every sub-command has in common: exit codes, which stream says what, colours, levels.

use crate::{forebay, pipe_closed_after, run, stderr, stdout};

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

#[test]
fn a_closed_pipe_is_no_error() {
    let run =
        ["run", "datasets/tiny", "--batch-size", "4", "--size", "32", "--digest", "batch", "--epochs", "3"];
    for (lines, args) in [(0, &["verify", "datasets/broken"][..]), (0, &run), (1, &run)] {
        let (code, said) = pipe_closed_after(lines, args);
        assert_eq!(code, Some(0), "{args:?}: {said}");
        assert!(!said.contains("error") && !said.contains("panicked"), "{args:?}: {said}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = forebay().args(["verify", "datasets/tiny"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
}

#[test]
fn help_names_every_sub_command_and_the_exit_codes() {
    let help = stdout(&run(&["--help"]));
    for word in ["run", "decode", "verify", "synth", "completions", "Exit code: 0", "FOREBAY_NUM_WORKERS"] {
        assert!(help.contains(word), "{word} is missing:\n{help}");
    }
}

#[test]
fn no_color_turns_colours_off_unless_asked_for() {
    let said = |flag: &str| {
        let output =
            forebay().args(["verify", "/nowhere", "--color", flag]).env("NO_COLOR", "1").output().unwrap();
        stderr(&output)
    };
    assert!(!said("auto").contains("\x1b["));
    assert!(said("always").contains("\x1b["));
}
