//! Holds the shape of the source: which room may import which, where `unsafe`, atomics and process ends may stand,
//! how long a file may be. The rules are data in `rules.rs`.

#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does

mod rules;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rules::{
    ALL_ABOVE, ATOMIC_FILES, BINARY, EXIT_FILES, MACRO_DOOR, MAX_CODE_LINES, ROOMS, Room, UNSAFE_FILES,
};
use source::{Source, SourcePath};

/// What the tree is held against: the project's rules, or a test's.
struct Rules {
    rooms: &'static [Room],
    unsafe_files: &'static [&'static str],
}

const RULES: Rules = Rules { rooms: ROOMS, unsafe_files: UNSAFE_FILES };

impl Rules {
    fn room(&self, name: &str) -> Option<&Room> {
        self.rooms.iter().find(|room| room.name == name)
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.rooms.iter().position(|room| room.name == name)
    }

    fn may_import(&self, home: &str, target: &[String]) -> bool {
        match self.room(home).map(|room| room.may_import) {
            Some(ALL_ABOVE) => self.place(&target[0]) < self.place(home),
            Some(rooms) => rooms.iter().any(|allowed| within(target, allowed)),
            None => false,
        }
    }

    /// Every rule over every file.
    fn violations(&self, sources: &[Source]) -> Vec<String> {
        let exports = exports(sources);
        let mut found = Vec::new();
        for source in sources {
            self.arrows(source, &exports, &mut found);
            doors(source, &mut found);
            shape(source, &mut found);
        }
        self.unsafe_list(sources, &mut found);
        found
    }

    /// The arrows between rooms, and the wall between library and binary.
    fn arrows(&self, source: &Source, exports: &BTreeMap<String, String>, found: &mut Vec<String>) {
        let module = source.module();
        let Some(home) = module.first() else { return }; // lib.rs sees every room
        let binary = BINARY.contains(&home.as_str());
        if !binary && self.room(home).is_none() {
            found.push(format!("src/{}: room `{home}` has no entry in tests/rooms/rules.rs", source.path));
            return;
        }
        for path in source.paths() {
            let Some(target) = absolute(&path, &module) else { continue };
            let place = format!("src/{}:{}", source.path, path.line);
            let target = match target.first() {
                Some(first) => match exports.get(first) {
                    Some(room) if self.room(first).is_none() => {
                        [std::slice::from_ref(room), &target].concat()
                    }
                    _ => target,
                },
                None => continue,
            };
            if target[0] == *home
                || target[0] == MACRO_DOOR
                || (binary && BINARY.contains(&target[0].as_str()))
            {
                continue;
            }
            let name = target.join("::");
            if binary {
                found.push(format!(
                    "{place}: the binary names `crate::{name}`; allowed: the public interface, `forebay::...`"
                ));
                continue;
            }
            if self.place(&target[0]).is_none() {
                found.push(format!("{place}: `crate::{name}` leads to no room in tests/rooms/rules.rs"));
            } else if !self.may_import(home, &target) {
                let allowed = match self.room(home).map_or(&[][..], |room| room.may_import) {
                    [] => "no room".into(),
                    ALL_ABOVE => "the rooms above it in tests/rooms/rules.rs".into(),
                    rooms => rooms.join(", "),
                };
                found.push(format!("{place}: room `{home}` names `crate::{name}`; it may import {allowed}"));
            }
        }
    }

    /// The list of files with `unsafe` is exact: none too few, none too many.
    fn unsafe_list(&self, sources: &[Source], found: &mut Vec<String>) {
        for source in sources {
            let path = source.path.as_str();
            let listed = self.unsafe_files.contains(&path);
            let allows = source.text.lines().any(|line| {
                line.trim_start().starts_with("#![allow(unsafe_code)]")
                    || line.trim_start().starts_with("#[allow(unsafe_code)]")
            });
            match (source.lines_with("unsafe").first(), source.lines_with("unsafe_code").first()) {
                (None, None) if listed => found.push(format!(
                    "src/{path}: listed in UNSAFE_FILES of tests/rooms/rules.rs, but has no `unsafe`; take it off the list"
                )),
                (None, Some(line)) => {
                    found.push(format!("src/{path}:{line}: allows unsafe_code, but has no `unsafe`"));
                }
                (Some(line), _) if !listed => found.push(format!(
                    "src/{path}:{line}: `unsafe`; allowed only in the files of UNSAFE_FILES in tests/rooms/rules.rs"
                )),
                (Some(line), _) if !allows => {
                    found.push(format!("src/{path}:{line}: `unsafe` without #![allow(unsafe_code)] at the top of its file or item"));
                }
                _ => {}
            }
        }
        for listed in self.unsafe_files {
            if !sources.iter().any(|source| source.path == *listed) {
                found
                    .push(format!("tests/rooms/rules.rs: UNSAFE_FILES lists src/{listed}, which is no file"));
            }
        }
    }
}

/// The names that `lib.rs` gives at the crate's root, and the room each comes from.
fn exports(sources: &[Source]) -> BTreeMap<String, String> {
    let Some(root) = sources.iter().find(|source| source.path == "lib.rs") else { return BTreeMap::new() };
    let own = |path: &SourcePath| {
        let skip = usize::from(path.segments[0] == "crate");
        path.segments[skip..].to_vec()
    };
    let pairs = root.paths().into_iter().map(|path| own(&path)).filter(|path| path.len() > 1);
    pairs.map(|path| (path[path.len() - 1].clone(), path[0].clone())).collect()
}

/// Where a path leads below the crate root; nothing for other crates and for local names.
fn absolute(path: &SourcePath, module: &[String]) -> Option<Vec<String>> {
    match path.segments[0].as_str() {
        "crate" => Some(path.segments[1..].to_vec()),
        "super" => {
            let ups = path.segments.iter().take_while(|segment| *segment == "super").count();
            let ups_of_file = ups.saturating_sub(path.depth);
            if ups_of_file == 0 {
                return None;
            }
            let stem = &module[..module.len().saturating_sub(ups_of_file)];
            Some([stem, &path.segments[ups..]].concat())
        }
        _ => None,
    }
}

/// Whether `target` lies in `allowed`, a room (`sys`) or a part of one (`sys::limits`). A glob of the parent does not.
fn within(target: &[String], allowed: &str) -> bool {
    let allowed: Vec<&str> = allowed.split("::").collect();
    target.len() >= allowed.len() && allowed.iter().zip(target).all(|(a, b)| a == b)
}

/// What has one door: atomics, fork, the end of the process.
fn doors(source: &Source, found: &mut Vec<String>) {
    for path in source.paths() {
        let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
        let mut ban = |what: &str, allowed: &str| {
            found.push(format!("src/{}:{}: names `{what}`; allowed {allowed}", source.path, path.line));
        };
        if let ["std" | "core", "sync", "atomic", ..] = segments[..]
            && !ATOMIC_FILES.contains(&source.path.as_str())
        {
            ban("std::sync::atomic", &format!("only in src/{}", ATOMIC_FILES.join(", src/")));
        }
        if segments.windows(2).any(|pair| matches!(pair, ["process", "exit" | "abort"]))
            && !EXIT_FILES.contains(&source.path.as_str())
        {
            ban("std::process::exit", &format!("only in src/{}", EXIT_FILES.join(", src/")));
        }
        if segments.iter().any(|segment| matches!(*segment, "fork" | "vfork")) {
            ban("fork", "nowhere: a child starts as the program's own executable, by posix_spawn");
        }
    }
}

/// The length of a file, and the first line of a room.
fn shape(source: &Source, found: &mut Vec<String>) {
    let lines = source.code_lines();
    if lines > MAX_CODE_LINES {
        found.push(format!("src/{}: {lines} code lines; allowed: {MAX_CODE_LINES}", source.path));
    }
    if source.path.ends_with("mod.rs") && !source.text.starts_with("//! ") {
        found.push(format!("src/{}:1: starts without a `//! ` line that says the room's job", source.path));
    }
}

/// Reads every `.rs` file below `directory`, sorted by path.
fn read_tree(directory: &Path) -> Vec<Source> {
    fn walk(directory: &Path, root: &Path, found: &mut Vec<Source>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                found.push(Source::new(name, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(directory, directory, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

#[test]
fn source_keeps_the_rules() {
    let sources = read_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let code_lines: usize = sources.iter().map(Source::code_lines).sum();
    println!("{} files, {code_lines} code lines", sources.len());
    assert!(sources.iter().any(|source| source.path == "lib.rs"), "src/lib.rs was not read");
    let violations = RULES.violations(&sources);
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn arrows_go_down_only() {
    for (place, room) in ROOMS.iter().enumerate() {
        for import in room.may_import.iter().filter(|import| !ALL_ABOVE.contains(import)) {
            let target = import.split("::").next().unwrap();
            let at = ROOMS.iter().position(|room| room.name == target);
            assert!(
                at.is_some_and(|at| at < place),
                "{} may import {import}, which is not above it",
                room.name
            );
        }
    }
}

/// The checker itself, on planted violations.
mod planted {
    use super::*;

    const LIB: &str = "pub use error::{Error, Result};\npub use slab::Batch;";

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let mut sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        sources.push(Source::new("lib.rs", LIB));
        Rules { rooms: ROOMS, unsafe_files: &[] }.violations(&sources)
    }

    #[track_caller]
    fn holds(path: &str, text: &str) {
        assert_eq!(check(&[(path, text)]), Vec::<String>::new());
    }

    #[track_caller]
    fn breaks(path: &str, text: &str, message: &str) {
        let found = check(&[(path, text)]);
        assert!(matches!(&found[..], [only] if only.contains(message)), "{found:#?}");
    }

    #[test]
    fn allowed_arrows_hold() {
        holds(
            "decode/jpeg.rs",
            "use crate::error::Error;\nuse super::request::Rect;\nuse crate::tensor::DType;",
        );
        holds("decode/jpeg.rs", "fn f() -> crate::Result<()> { Err(crate::Error::new()) }");
        holds("plan/budget.rs", "use crate::{slab::layout::Layout, sys::limits::{self, Room}};");
        holds("loader/epoch.rs", "use crate::worker::protocol::Done;\nuse crate::stats;");
        holds("decode/jpeg.rs", "mod tests { use super::super::request::Rect; use super::*; }");
    }

    #[test]
    fn an_arrow_upwards_breaks() {
        breaks(
            "decode/jpeg.rs",
            "\nuse crate::slab::Pool;",
            "src/decode/jpeg.rs:2: room `decode` names `crate::slab::Pool`; it may import error, tensor",
        );
        breaks(
            "dataset/folder.rs",
            "use crate::{error::Error, decode::{self}};",
            "names `crate::decode::self`",
        );
        breaks("sync/ring.rs", "use crate::error::Error;", "may import no room");
        breaks("worker/run.rs", "use crate::loader::Epoch;", "the rooms above it");
    }

    #[test]
    fn a_path_without_use_breaks() {
        breaks(
            "sampler/batch.rs",
            "fn f(x: &crate::loader::Epoch) {}",
            "src/sampler/batch.rs:1: room `sampler`",
        );
    }

    #[test]
    fn super_across_rooms_breaks() {
        breaks("decode/jpeg.rs", "use super::super::slab::Pool;", "names `crate::slab::Pool`");
        breaks("decode/mod.rs", "//! Job.\nuse super::slab::Pool;", "src/decode/mod.rs:2");
        breaks("decode/mod.rs", "//! Job.\nmod tests { use super::super::sys::x; }", "names `crate::sys::x`");
    }

    #[test]
    fn a_name_at_the_root_counts_as_its_room() {
        breaks("decode/mod.rs", "//! Job.\nuse crate::Batch;", "names `crate::slab::Batch`");
        breaks("decode/mod.rs", "//! Job.\nuse crate::Unheard;", "leads to no room");
    }

    #[test]
    fn a_part_of_a_room_is_no_more_than_that_part() {
        breaks("plan/geometry.rs", "use crate::sys::process::spawn;", "slab::Rung, sys::limits");
        breaks("plan/geometry.rs", "use crate::sys::*;", "names `crate::sys::*`");
        breaks("plan/geometry.rs", "use crate::sys;", "names `crate::sys`;");
    }

    #[test]
    fn a_room_without_rules_breaks() {
        breaks("utils.rs", "", "room `utils` has no entry");
    }

    #[test]
    fn the_binary_sees_the_public_interface_alone() {
        holds("cli/run.rs", "use crate::cli::args::Args;\nuse super::digest;\nuse forebay::Loader;");
        holds("main.rs", "mod cli;\nfn main() { crate::cli::run() }");
        breaks("cli/run.rs", "use crate::sys::limits;", "allowed: the public interface");
    }

    #[test]
    fn unsafe_outside_the_list_breaks() {
        breaks(
            "slab/view.rs",
            "#![allow(unsafe_code)]\nfn f() { unsafe { g() } }",
            "src/slab/view.rs:2: `unsafe`",
        );
        breaks("slab/view.rs", "#![allow(unsafe_code)]", "has no `unsafe`");
        holds("slab/view.rs", "// unsafe\nfn f() { g(\"unsafe\") }");
    }

    #[test]
    fn the_unsafe_list_is_exact() {
        let rules = Rules { rooms: ROOMS, unsafe_files: &["sys/a.rs", "sys/b.rs", "sys/c.rs"] };
        let found = rules.violations(&[
            Source::new("sys/a.rs", "fn f() { unsafe { g() } }"),
            Source::new("sys/b.rs", "fn f() {}"),
        ]);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].contains("src/sys/a.rs:1: `unsafe` without"));
        assert!(found[1].contains("src/sys/b.rs: listed") && found[1].contains("take it off"));
        assert!(found[2].contains("src/sys/c.rs, which is no file"));
    }

    #[test]
    fn a_long_file_breaks() {
        let line = "const A: u8 = 1; // one\n// comment\n\n";
        holds("error.rs", &line.repeat(MAX_CODE_LINES));
        breaks("error.rs", &line.repeat(MAX_CODE_LINES + 1), "src/error.rs: 501 code lines; allowed: 500");
    }

    #[test]
    fn a_room_says_its_job_first() {
        breaks("decode/mod.rs", "mod request;", "src/decode/mod.rs:1");
    }

    #[test]
    fn atomics_come_from_one_file() {
        holds("sync/prim.rs", "pub(crate) use std::sync::atomic::AtomicU32;");
        breaks(
            "sync/ring.rs",
            "use std::sync::{Arc, atomic::AtomicU32};",
            "allowed only in src/sync/prim.rs",
        );
        breaks("stats/counters.rs", "static A: core::sync::atomic::AtomicU8 = x;", "src/stats/counters.rs:1");
    }

    #[test]
    fn process_ends_and_forks_have_their_place() {
        holds("main.rs", "fn main() { std::process::exit(1) }");
        breaks("loader/shell.rs", "use std::process;\nfn f() { process::exit(1) }", "src/loader/shell.rs:2");
        breaks("sys/process.rs", "fn f() { libc::fork() }", "allowed nowhere");
    }
}
