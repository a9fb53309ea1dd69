//! How much memory batches take: as many slabs as batches are made ahead and kept, whatever the number of workers; and
//! what the loader says of it is what the kernel says.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does

mod common;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{alone, workers};
use forebay::Stats;
use forebay::prelude::*;

forebay::test_support!();

const BATCH: usize = 64;
const SIDE: usize = 32;
const PAGE: usize = 4096;

/// Pixels as f32 and labels as i64, each from a multiple of 64 on, in whole pages.
const SLAB: usize = (BATCH * 3 * SIDE * SIDE * 4 + BATCH * 8).next_multiple_of(PAGE);

/// The segments of a loader in one process, as `/proc/PID/smaps` lists them: bytes by inode and name.
fn mapped(pid: i32, shared: &dyn Fn(&str) -> bool) -> HashMap<(u64, String), usize> {
    let mut found = HashMap::new();
    let mut current = None;
    for line in fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[0].contains('-') && !fields[0].ends_with(':') {
            let name = fields.get(5).copied().unwrap_or_default();
            current = shared(name).then(|| (fields[4].parse().unwrap(), name.to_owned()));
        } else if let (Some(segment), "Size:") = (&current, fields[0]) {
            let kib: usize = fields[1].parse().unwrap();
            *found.entry(segment.clone()).or_insert(0) += kib * 1024;
        }
    }
    found
}

/// Bytes of the segments that this process holds open under such a name without a map of them.
fn held(part: &str) -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    let ours = fds.filter(|fd| fs::read_link(fd).is_ok_and(|name| name.to_string_lossy().contains(part)));
    ours.map(|fd| fs::metadata(fd).unwrap().size() as usize).sum()
}

/// Loads an epoch with `count` workers, compares what is mapped with what is told, and returns the latter.
fn measured(transport: Transport, count: usize, directory: &Path) -> Stats {
    let loader = Loader::builder(Synthetic::new(1000, SIDE as u32, SIDE as u32))
        .batch_size(BATCH)
        .prefetch(2)
        .num_workers(count)
        .transport(transport)
        .file_dir(directory)
        .build()
        .unwrap();
    loader.epoch(0).for_each(|batch| drop(batch.unwrap()));
    let stats = loader.stats();
    let place = match transport {
        Transport::Memfd => "/memfd:forebay",
        Transport::Shm => "/dev/shm/",
        _ => directory.to_str().unwrap(),
    };
    let is_slab =
        |name: &str| name.starts_with(place) && (transport != Transport::Memfd || name.contains("slab"));
    let is_control = |name: &str| name.starts_with("/memfd:forebay") && !name.contains("slab");
    let host = std::process::id() as i32;
    let slabs = mapped(host, &is_slab);
    assert_eq!(slabs.len(), 3, "{slabs:?}");
    assert_eq!(slabs.values().sum::<usize>(), stats.slab_bytes);
    let control: usize = mapped(host, &is_control).values().sum();
    assert_eq!(control + held("setup"), stats.control_bytes);
    let workers = workers();
    assert_eq!(workers.len(), count);
    for worker in workers {
        // The same segments, and no others; its own page and the control area.
        let theirs = mapped(worker.pid, &is_slab);
        assert!(
            theirs.iter().all(|(segment, bytes)| slabs.get(segment) == Some(bytes)),
            "{theirs:?} {slabs:?}"
        );
        assert_eq!(mapped(worker.pid, &is_control).len(), 2);
    }
    stats
}

#[test]
fn memory_is_three_batches_for_any_number_of_workers() {
    alone("memory_is_three_batches_for_any_number_of_workers", 120, || {
        let directory = tempfile::tempdir().unwrap();
        for transport in [Transport::Memfd, Transport::Shm, Transport::File] {
            let [few, many] = [2, 8].map(|count| measured(transport, count, directory.path()));
            assert_eq!((few.slab_bytes, many.slab_bytes), (3 * SLAB, 3 * SLAB), "{transport}");
            for (stats, count) in [(&few, 2), (&many, 8)] {
                assert!(
                    stats.control_bytes <= count * 64 * 1024,
                    "{transport}: {} bytes",
                    stats.control_bytes
                );
                println!(
                    "{transport}, {count} workers: slabs {} bytes, control {} bytes ({} a worker)",
                    stats.slab_bytes,
                    stats.control_bytes,
                    stats.control_bytes / count
                );
            }
        }
    });
}

/// Slots are enough for everyone: 32 workers that each wait 5 ms for a sample fill batches of 32 together.
#[test]
fn thirty_two_workers_share_batches_of_thirty_two() {
    alone("thirty_two_workers_share_batches_of_thirty_two", 120, || {
        let samples = Synthetic::new(1 << 20, 24, 24).with_delay(std::time::Duration::from_millis(5));
        let loader = Loader::builder(samples).batch_size(32).num_workers(32).build().unwrap();
        let mut epoch = loader.epoch(0);
        // Until all have started.
        epoch.by_ref().take(200).for_each(|batch| drop(batch.unwrap()));
        let start = std::time::Instant::now();
        let batches = 400;
        assert_eq!(epoch.by_ref().take(batches).filter(Result::is_ok).count(), batches);
        let rate = (32 * batches) as f64 / start.elapsed().as_secs_f64();
        let ideal = 32.0 / 0.005;
        println!(
            "32 workers, 5 ms a sample, batch 32: {rate:.0} images/s, {:.2} of the ideal {ideal:.0}",
            rate / ideal
        );
    });
}
