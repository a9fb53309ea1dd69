//! `ImageFolder` on folders as people have them: nested, linked, odd names, and things that are no pictures.

#![allow(clippy::unwrap_used)] // The exception for tests does not reach helper functions.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use forebay::dataset::{Dataset, FolderOptions, ImageFolder, Record};
use forebay::{Error, ErrorKind};
use tempfile::TempDir;

/// Makes a folder with these files, each holding its own relative path.
fn folder(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        put(folder.path(), file);
    }
    folder
}

fn put(root: &Path, file: impl AsRef<OsStr>) {
    let path = root.join(file.as_ref());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, file.as_ref().as_bytes()).unwrap();
}

fn open(folder: &TempDir) -> ImageFolder {
    ImageFolder::open(folder.path()).unwrap()
}

/// Returns each sample as (relative path, label).
fn samples(folder: &ImageFolder) -> Vec<(String, u32)> {
    (0..folder.len())
        .map(|index| {
            let path = folder.path(index).unwrap();
            let relative = path.strip_prefix(folder.root()).unwrap();
            (relative.to_string_lossy().into_owned(), folder.label(index).unwrap())
        })
        .collect()
}

fn read(folder: &mut ImageFolder, index: u64) -> Result<Record, Error> {
    let mut record = Record::default();
    folder.read(index, &mut record).map(|()| record)
}

fn pipe(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn classes_and_names_are_sorted_by_bytes() {
    let folder = folder(&["b/2.jpg", "b/10.JPG", "a/x.jpeg", "B/y.Png", "a/deep/er/z.jpg", "a/zz.jpg"]);
    let folder = open(&folder);
    assert_eq!(folder.classes(), ["B", "a", "b"]);
    let expected = [
        ("B/y.Png", 0),
        ("a/x.jpeg", 1),
        ("a/zz.jpg", 1),
        ("a/deep/er/z.jpg", 1),
        ("b/10.JPG", 2),
        ("b/2.jpg", 2),
    ];
    assert_eq!(samples(&folder), expected.map(|(path, label)| (path.to_string(), label)));
    assert_eq!(folder.skipped().total(), 0);
}

#[test]
fn reading_fills_bytes_and_label_and_reuses_the_record() {
    let folder = folder(&["a/1.jpg", "b/a-longer-name.jpg", "b/z.jpg"]);
    let mut folder = open(&folder);
    let mut record = Record::default();
    for (index, (path, label)) in samples(&folder).into_iter().enumerate() {
        record.clear();
        folder.read(index as u64, &mut record).unwrap();
        assert_eq!(record.bytes, path.as_bytes());
        assert_eq!(record.label, i64::from(label));
        assert!(folder.key(index as u64).ends_with(&path));
    }
    assert_eq!(read(&mut folder, 3).unwrap_err().kind(), ErrorKind::Dataset);
}

#[test]
fn what_is_no_picture_is_passed_over_and_counted() {
    let folder = folder(&[
        "a/1.jpg",
        "a/.hidden.jpg",
        "a/._1.jpg",
        ".cache/2.jpg",
        "a/notes.txt",
        "a/jpg",
        "loose.png",
        "LICENSE",
    ]);
    pipe(&folder.path().join("a/pipe.jpg"));
    symlink("nowhere.jpg", folder.path().join("a/dangling.jpg")).unwrap();
    symlink("round.jpg", folder.path().join("a/round.jpg")).unwrap();
    let skipped = open(&folder).skipped();
    assert_eq!(open(&folder).len(), 1);
    assert_eq!((skipped.hidden, skipped.other, skipped.special), (3, 3, 1));
    assert_eq!((skipped.dangling, skipped.loops, skipped.loose), (2, 0, 1));
    assert_eq!(skipped.total(), 10);
}

#[test]
fn links_are_followed_and_loops_end() {
    let elsewhere = folder(&["more/3.jpg", "one.jpg"]);
    let folder = folder(&["a/1.jpg", "b/2.jpg"]);
    let root = folder.path();
    symlink(elsewhere.path().join("more"), root.join("c")).unwrap();
    symlink(elsewhere.path().join("one.jpg"), root.join("a/linked.jpg")).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    symlink("../a", root.join("b/other")).unwrap();
    symlink(".", root.join("b/self")).unwrap();
    let mut folder = open(&folder);
    let expected = [
        ("a/1.jpg", 0),
        ("a/linked.jpg", 0),
        ("b/2.jpg", 1),
        ("b/other/1.jpg", 1),
        ("b/other/linked.jpg", 1),
        ("c/3.jpg", 2),
    ];
    assert_eq!(samples(&folder), expected.map(|(path, label)| (path.to_string(), label)));
    // a/up and b/other/up lead to the root, b/self to b.
    assert_eq!(folder.skipped().loops, 3);
    assert_eq!(read(&mut folder, 5).unwrap().bytes, b"more/3.jpg");
}

#[test]
fn odd_names_are_fine_and_survive_serialisation() {
    let folder = folder(&["a/with space and \u{e4}.jpg"]);
    let long = format!("{}.jpg", "n".repeat(251));
    put(folder.path(), OsStr::from_bytes(b"a/\xff\xfe.jpg"));
    put(folder.path(), OsStr::from_bytes(b"cl\xffss/1.jpg"));
    put(folder.path(), format!("a/{long}"));
    put(folder.path(), "a/new\nline.jpg");
    let folder = open(&folder);
    assert_eq!(folder.classes(), ["a", "cl\u{fffd}ss"]);
    let text = serde_json::to_string(&(Box::new(folder.clone()) as Box<dyn Dataset>)).unwrap();
    assert!(text.starts_with(r#"{"type":"ImageFolder""#));
    let mut back: Box<dyn Dataset> = serde_json::from_str(&text).unwrap();
    assert_eq!((back.len(), back.fingerprint()), (5, folder.fingerprint()));
    for index in 0..5 {
        let mut record = Record::default();
        back.read(index, &mut record).unwrap();
        let path = folder.path(index).unwrap();
        assert_eq!(record.bytes, path.strip_prefix(folder.root()).unwrap().as_os_str().as_bytes());
    }
}

#[test]
fn a_folder_without_class_directories_is_one_class() {
    let folder = folder(&["1.jpg", "2.png", "readme.md"]);
    fs::create_dir(folder.path().join("empty")).unwrap();
    let mut folder = open(&folder);
    assert_eq!(folder.classes(), ["."]);
    assert_eq!(samples(&folder), [("1.jpg".to_string(), 0), ("2.png".to_string(), 0)]);
    assert_eq!(read(&mut folder, 1).unwrap().bytes, b"2.png");
    assert_eq!(folder.skipped().loose, 0);
}

#[test]
fn a_class_without_pictures_keeps_its_number() {
    let folder = folder(&["a/notes.txt", "b/1.jpg"]);
    let folder = open(&folder);
    assert_eq!(folder.classes(), ["a", "b"]);
    assert_eq!(folder.label(0), Some(1));
}

#[test]
fn nothing_found_says_what_was_found() {
    let folder = folder(&["a/1.txt", "a/2.TXT", "b/data.csv", "b/none", "b/.hidden.jpg"]);
    let error = ImageFolder::open(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dataset);
    assert_eq!(error.path(), Some(folder.path()));
    assert_eq!(
        error.message(),
        "no pictures found: 2 directories below, 4 other files, endings .txt (2), .csv (1), none (1); 1 hidden"
    );
    assert!(error.remedy().unwrap().contains("cat/1.jpg"));

    let empty = tempfile::tempdir().unwrap();
    let error = ImageFolder::open(empty.path()).unwrap_err();
    assert_eq!(error.message(), "no pictures found: 0 directories below, 0 other files");
}

#[test]
fn a_path_that_is_no_folder_is_named() {
    let folder = folder(&["a/1.jpg"]);
    for path in [folder.path().join("missing"), folder.path().join("a/1.jpg")] {
        let error = ImageFolder::open(&path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Dataset, Some(path.as_path())));
    }
}

#[test]
fn endings_can_be_chosen() {
    let folder = folder(&["a/1.jpg", "a/2.raw", "a/3.RAW"]);
    let folder = ImageFolder::open_with(folder.path(), FolderOptions::default().endings(["raw"])).unwrap();
    assert_eq!((folder.len(), folder.skipped().other), (2, 1));
}

#[test]
fn a_file_that_changed_its_nature_is_a_sample_error() {
    let folder =
        folder(&["a/1-gone.jpg", "a/2-pipe.jpg", "a/3-directory.jpg", "a/4-dangling.jpg", "a/5-fine.jpg"]);
    let mut opened = open(&folder);
    let path = |index: u64| opened.path(index).unwrap();
    for index in 0..4 {
        fs::remove_file(path(index)).unwrap();
    }
    pipe(&path(1));
    fs::create_dir(path(2)).unwrap();
    symlink("nowhere", path(3)).unwrap();
    for index in 0..4 {
        let error = read(&mut opened, index).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dataset);
        assert_eq!((error.path(), error.index()), (opened.path(index).as_deref(), Some(index)));
    }
    assert_eq!(read(&mut opened, 1).unwrap_err().message(), "not a regular file");
    assert_eq!(read(&mut opened, 4).unwrap().bytes, b"a/5-fine.jpg");
}

#[test]
fn an_unreadable_file_is_a_sample_error() {
    let folder = folder(&["a/1.jpg", "a/2.jpg"]);
    let mut opened = open(&folder);
    let path = opened.path(0).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        println!("skipped: this user may read every file");
        return;
    }
    let error = read(&mut opened, 0).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Dataset, Some(path.as_path())));
    assert!(read(&mut opened, 1).is_ok());
}

#[test]
fn a_huge_file_is_refused_before_it_is_read() {
    let folder = folder(&["a/1.jpg", "a/2.jpg"]);
    let file = File::create(folder.path().join("a/1.jpg")).unwrap();
    file.set_len(5 << 30).unwrap();
    let mut opened = open(&folder);
    let mut record = Record::default();
    let error = opened.read(0, &mut record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert_eq!(error.message(), "the file has 5368709120 bytes, at most 268435456 are read");
    assert_eq!(record.bytes.capacity(), 0);

    let options = FolderOptions::default().max_file_bytes(6);
    let mut opened = ImageFolder::open_with(folder.path(), options).unwrap();
    assert_eq!(read(&mut opened, 1).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn an_empty_file_is_an_empty_sample() {
    let folder = folder(&["a/1.jpg"]);
    File::create(folder.path().join("a/1.jpg")).unwrap();
    assert_eq!(read(&mut open(&folder), 0).unwrap().bytes, b"");
}

#[test]
fn fingerprint_follows_paths_and_classes_but_not_the_place() {
    let print = |files: &[&str]| open(&folder(files)).fingerprint();
    let base = print(&["a/1.jpg", "b/2.jpg"]);
    assert_eq!(base, print(&["b/2.jpg", "a/1.jpg", "b/notes.txt"]));
    assert_ne!(base, print(&["a/1.jpg", "b/3.jpg"]));
    assert_ne!(base, print(&["a/1.jpg", "b/2.jpg", "b/3.jpg"]));
    assert_ne!(base, print(&["a/1.jpg", "b/2.jpg", "c/notes.txt"]));
}

#[test]
fn many_directories_give_the_same_order_each_time() {
    let files: Vec<String> = (0..400).map(|i| format!("c{}/d{}/{i}.jpg", i % 20, i % 7)).collect();
    let folder = folder(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let first = samples(&open(&folder));
    assert_eq!(first.len(), 400);
    for _ in 0..5 {
        assert_eq!(samples(&open(&folder)), first);
    }
}

#[test]
fn too_deep_a_folder_is_an_error() {
    let deep = format!("a/{}1.jpg", "d/".repeat(120));
    let error = ImageFolder::open(folder(&[&deep]).path()).unwrap_err();
    assert_eq!(error.message(), "directories lie more than 100 deep");
}
