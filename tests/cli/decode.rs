//! `forebay decode`.

use std::fs;
use std::process::Command;

use crate::{run, stderr, stdout, text};

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
fn orientation_is_applied_unless_turned_off() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("turned.jpg"), dir.path().join("out"));
    // A picture of 6 x 2 with an EXIF orientation of 6: to be turned by a quarter.
    let mut jpeg = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new(&mut jpeg);
    encoder.encode(&[128; 36], 6, 2, image::ExtendedColorType::Rgb8).unwrap();
    let exif = b"\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    jpeg.splice(2..2, exif.iter().copied());
    fs::write(&file, &jpeg).unwrap();
    for (flag, size) in [(None, "2x6"), (Some("--no-orientation"), "6x2")] {
        let args = ["decode", text(&file), "--out", text(&out)];
        let output = run(&args.into_iter().chain(flag).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).trim_end().ends_with(size), "{flag:?}: {}", stdout(&output));
    }
}
