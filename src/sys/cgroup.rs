//! The memory limits of the control groups that this process is in, versions 1 and 2, at every level that it can see.

use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as the largest page-rounded number.
const UNLIMITED: u64 = 1 << 62;

/// What one control group allows and what it uses, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Above it the kernel kills.
    pub limit: Option<u64>,
    /// Above it the kernel slows to a stop; to be treated as a limit.
    pub high: Option<u64>,
    /// What is charged now.
    pub usage: u64,
    /// What of it the kernel drops when it must: file pages not used lately.
    pub reclaimable: u64,
    /// How many processes in it were killed for want of memory, where the kernel counts them.
    pub oom_kills: Option<u64>,
    /// The directory that was read.
    pub source: PathBuf,
}

impl MemoryLimit {
    /// Returns how much more fits below `bound`, one of its two.
    pub fn free_below(&self, bound: u64) -> u64 {
        bound.saturating_sub(self.usage.saturating_sub(self.reclaimable))
    }
}

/// Returns the levels from this process's own group up to the topmost visible one; none where there are no groups.
///
/// Levels above a container's view, such as a pod's, cannot be seen.
pub fn memory_levels() -> Vec<MemoryLimit> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let text = |path: &str| read(Path::new(path)).unwrap_or_default();
    levels(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"), &read)
}

/// Reads the files of a group by path, or says that there is none.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn levels(groups: &str, mounts: &str, read: Read<'_>) -> Vec<MemoryLimit> {
    let mut found = Vec::new();
    for (controllers, group) in groups.lines().filter_map(parse_group) {
        let version_2 = controllers.is_empty();
        if !version_2 && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some(mount) = mounts.lines().filter_map(parse_mount).find(|mount| mount.holds_memory(version_2))
        else {
            continue;
        };
        let mut directory = mount.directory_of(group);
        loop {
            let level =
                if version_2 { version_2_level(&directory, read) } else { version_1_level(&directory, read) };
            found.extend(level);
            if directory == mount.point || !directory.pop() {
                break;
            }
        }
    }
    found
}

/// Splits a line of `/proc/self/cgroup` into controllers (none for version 2) and path.
fn parse_group(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_once(':')
}

/// A mounted hierarchy of control groups.
struct Mount<'a> {
    /// The group that the mount shows at its top.
    root: &'a str,
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    fn holds_memory(&self, version_2: bool) -> bool {
        match version_2 {
            true => self.kind == "cgroup2",
            false => self.kind == "cgroup" && self.options.split(',').any(|option| option == "memory"),
        }
    }

    /// Returns where the group lies; the top of the mount when the group lies outside of what it shows.
    fn directory_of(&self, group: &str) -> PathBuf {
        let below = Path::new(group).strip_prefix(self.root).unwrap_or(Path::new(""));
        let clean = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if clean && below != Path::new("") { self.point.join(below) } else { self.point.clone() }
    }
}

/// Parses a line of `/proc/self/mountinfo`, documented in proc(5).
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let mut right = right.split(' ');
    Some(Mount {
        root: left.next()?,
        point: PathBuf::from(left.next()?.replace("\\040", " ")),
        kind: right.next()?,
        options: right.nth(1)?,
    })
}

fn version_2_level(directory: &Path, read: Read<'_>) -> Option<MemoryLimit> {
    let number = |file: &str| read(&directory.join(file))?.trim().parse().ok();
    let usage = number("memory.current")?; // the root group has none, and no limit either
    let stat = read(&directory.join("memory.stat")).unwrap_or_default();
    let events = read(&directory.join("memory.events")).unwrap_or_default();
    Some(MemoryLimit {
        limit: number("memory.max"), // "max" is no number
        high: number("memory.high"),
        usage,
        reclaimable: value_of(&stat, "inactive_file").unwrap_or(0),
        oom_kills: value_of(&events, "oom_kill"),
        source: directory.to_path_buf(),
    })
}

fn version_1_level(directory: &Path, read: Read<'_>) -> Option<MemoryLimit> {
    let number = |file: &str| read(&directory.join(file))?.trim().parse::<u64>().ok();
    let usage = number("memory.usage_in_bytes")?;
    let stat = read(&directory.join("memory.stat")).unwrap_or_default();
    let control = read(&directory.join("memory.oom_control")).unwrap_or_default();
    // The hierarchical limit knows ancestors that cannot be seen.
    let limits = [number("memory.limit_in_bytes"), value_of(&stat, "hierarchical_memory_limit")];
    Some(MemoryLimit {
        limit: limits.into_iter().flatten().filter(|&limit| limit < UNLIMITED).min(),
        high: None,
        usage,
        reclaimable: value_of(&stat, "total_inactive_file").unwrap_or(0),
        oom_kills: value_of(&control, "oom_kill"),
        source: directory.to_path_buf(),
    })
}

/// Returns the number behind a key in lines of `key number`.
fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        move |path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.to_string())
    }

    #[test]
    fn version_2_is_read_at_every_level_below_the_mount() {
        let read = files(&[
            ("/sys/fs/cgroup/a/b/memory.current", "1000\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.high", "4000\n"),
            ("/sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 300\n"),
            ("/sys/fs/cgroup/a/b/memory.events", "low 0\noom 4\noom_kill 2\noom_group_kill 0\n"),
            ("/sys/fs/cgroup/a/memory.current", "5000\n"),
            ("/sys/fs/cgroup/a/memory.max", "8000\n"),
            ("/sys/fs/cgroup/a/memory.high", "max\n"),
        ]);
        let mounts = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = levels("0::/a/b\n", mounts, &read);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].limit, found[0].high, found[0].oom_kills), (None, Some(4000), Some(2)));
        assert_eq!(found[0].free_below(4000), 3300);
        assert_eq!((found[1].limit, found[1].high, found[1].oom_kills), (Some(8000), None, None));
        assert_eq!(found[1].free_below(8000), 3000);
        assert_eq!(found[1].source, Path::new("/sys/fs/cgroup/a"));
    }

    #[test]
    fn a_group_that_is_over_its_limit_has_no_room() {
        let level = MemoryLimit {
            limit: Some(10),
            high: None,
            usage: 30,
            reclaimable: 5,
            oom_kills: None,
            source: PathBuf::new(),
        };
        assert_eq!(level.free_below(10), 0);
    }

    #[test]
    fn version_1_in_a_container_is_read_at_the_mount() {
        let read = files(&[
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "70000000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "cache 1\ninactive_file 9\nhierarchical_memory_limit 100000000\ntotal_inactive_file 4096\n",
            ),
            ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
        ]);
        let mounts = "40 39 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
                      41 39 0:31 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:5 - cgroup cgroup rw,memory\n";
        let found =
            levels("9:memory:/docker/abc\n8:cpu,cpuacct:/docker/abc\n0::/docker/abc\n", mounts, &read);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].limit, Some(100_000_000));
        assert_eq!(found[0].oom_kills, Some(3));
        assert_eq!(found[0].free_below(100_000_000), 30_004_096);
    }

    #[test]
    fn version_1_without_limits_has_none() {
        let read = files(&[
            ("/m y/memory.usage_in_bytes", "5\n"),
            ("/m y/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/m y/memory.stat", "hierarchical_memory_limit 9223372036854771712\n"),
        ]);
        let mounts = "41 39 0:31 / /m\\040y rw - cgroup none rw,hugetlb,memory\n";
        let found = levels("4:hugetlb,memory:/\n", mounts, &read);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].limit, found[0].usage), (None, 5));
    }

    #[test]
    fn a_group_outside_the_view_falls_back_to_the_top() {
        let read = files(&[("/c/memory.current", "5\n"), ("/c/memory.max", "6\n")]);
        for (group, root) in [("0::/../other\n", "/"), ("0::/far/away\n", "/near")] {
            let mounts = format!("29 23 0:26 {root} /c rw - cgroup2 cgroup2 rw\n");
            assert_eq!(levels(group, &mounts, &read)[0].limit, Some(6), "{group}");
        }
    }

    #[test]
    fn nonsense_is_no_level() {
        let read = files(&[("/c/memory.current", "lots\n")]);
        assert_eq!(levels("0::/\nx\n:\n", "29 23 0:26 / /c rw - cgroup2 cgroup2 rw\n-\n - \n", &read), []);
        assert_eq!(levels("", "", &read), []);
    }
}
