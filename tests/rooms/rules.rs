//! The rules as data: what each room may import, which files may do what is denied elsewhere.

/// A room and the rooms, or parts of rooms (`slab::layout`), that it may name.
pub(crate) struct Room {
    pub(crate) name: &'static str,
    pub(crate) may_import: &'static [&'static str],
}

/// The arrows. A room names only rooms that stand above it in this list.
pub(crate) const ROOMS: &[Room] = &[
    Room { name: "error", may_import: &[] },
    Room { name: "tensor", may_import: &["error"] },
    Room { name: "hash", may_import: &[] },
    Room { name: "event", may_import: &["error"] },
    Room { name: "sync", may_import: &[] },
    // sync: the types of the ring are among those that may lie in a mapping, and sys says which may.
    Room { name: "sys", may_import: &["error", "sync"] },
    Room { name: "stats", may_import: &["error"] },
    Room { name: "synth", may_import: &["error", "hash"] },
    Room { name: "sampler", may_import: &["error", "hash"] },
    Room { name: "dataset", may_import: &["error", "hash", "sys::Shared", "sys::shared", "synth"] },
    Room { name: "decode", may_import: &["error", "tensor"] },
    Room { name: "transform", may_import: &["error", "tensor", "hash", "decode"] },
    Room { name: "slab", may_import: &["error", "tensor", "sys", "sync"] },
    Room { name: "plan", may_import: &["error", "tensor", "slab::layout", "slab::Rung", "sys::limits"] },
    Room { name: "worker", may_import: ALL_ABOVE },
    Room { name: "loader", may_import: ALL_ABOVE },
];

/// Every room that stands above in [`ROOMS`].
pub(crate) const ALL_ABOVE: &[&str] = &["*"];

/// The files that may contain `unsafe`, and do. Paths are below `src/`.
pub(crate) const UNSAFE_FILES: &[&str] = &[
    "decode/turbo.rs",
    "slab/lease.rs",
    "slab/view.rs",
    "sync/explore.rs",
    "sys/environment.rs",
    "sys/mapped.rs",
    "sys/own.rs",
    "sys/process.rs",
    "sys/shared.rs",
    "sys/signals.rs",
];

/// The name at the root through which public macros reach what they need in a user's crate.
pub(crate) const MACRO_DOOR: &str = "__private";

/// The files that may name `std::sync::atomic`: elsewhere atomics come from here, so that loom can stand in for them.
pub(crate) const ATOMIC_FILES: &[&str] = &["sync/prim.rs"];

/// The files that may end the process: the binary's `main`, and a worker process, which never returns to `main`.
pub(crate) const EXIT_FILES: &[&str] = &["main.rs", "sys/environment.rs"];

/// Code lines that a file may have: lines that hold more than comment and blank.
pub(crate) const MAX_CODE_LINES: usize = 500;

/// The modules that only the binary has. They see the library as its users do, through `forebay::`.
pub(crate) const BINARY: &[&str] = &["main", "cli"];
