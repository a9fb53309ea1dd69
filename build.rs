//! Reads which libjpeg-turbo was linked from the headers that `turbojpeg-sys` points to, for `forebay --version`.
#![allow(clippy::print_stdout)] // how a build script speaks to cargo

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by cargo from the `include` metadata of the package that links `turbojpeg`; absent without it.
    println!("cargo:rerun-if-env-changed=DEP_TURBOJPEG_INCLUDE");
    let Some(header) = jconfig() else { return };
    if let Some(version) = defined(&header, "LIBJPEG_TURBO_VERSION") {
        println!("cargo:rustc-env=FOREBAY_LIBJPEG_TURBO_VERSION={version}");
    }
    if defined(&header, "WITH_SIMD").is_some() {
        println!("cargo:rustc-env=FOREBAY_LIBJPEG_TURBO_SIMD=1");
    }
}

/// Returns the text of `jconfig.h`, which lies beside `turbojpeg.h` or, on Debian, in the architecture's own folder.
fn jconfig() -> Option<String> {
    let include = env::var("DEP_TURBOJPEG_INCLUDE").ok()?;
    let multiarch = format!("{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
    include.split(',').map(PathBuf::from).find_map(|folder| {
        [folder.join("jconfig.h"), folder.join(&multiarch).join("jconfig.h")].into_iter().find_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            println!("cargo:rerun-if-changed={}", path.display());
            Some(text)
        })
    })
}

/// Returns the value of a macro. One that is set to nothing or to 0 counts as not defined.
fn defined<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = words.next() == Some("#define") && words.next() == Some(name);
        found.then(|| words.next()).flatten().filter(|value| *value != "0")
    })
}
