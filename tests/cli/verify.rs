//! `forebay verify`.

use crate::{run, stderr, stdout, text};

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
fn verify_lists_every_file_that_no_decoder_may_accept() {
    let output = run(&["verify", "datasets/broken"]);
    let text = stdout(&output);
    let is_broken = |file: &str| text.lines().any(|line| line.contains(&format!("{file}: ")));
    for file in [
        "bomb/header-60000.png",
        "bomb/header-65500.jpg",
        "bomb/zeros-4000.png",
        "cut/after-start.jpg",
        "cut/in-data.png",
        "cut/in-header.jpg",
        "cut/in-scan.jpg",
        "damaged/checksum.png",
        "damaged/zero-width.jpg",
        "wrong/empty.jpg",
        "wrong/noise.jpg",
        "wrong/text.jpg",
        "wrong/zeros.jpg",
    ] {
        assert!(is_broken(file), "{file} is not in:\n{text}");
    }
    for file in ["good/plain.jpg", "good/png-named.jpg", "good/trailing-bytes.jpg"] {
        assert!(!is_broken(file), "{file} is in:\n{text}");
    }
}
