//! The report as a person reads it.

use std::fmt::Write;

use super::{RunReport, WaitSeconds, WorkerSeconds};

/// Returns the closing summary, a few lines without a last line break.
pub(crate) fn text(report: &RunReport) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: std::fmt::Arguments<'_>| {
        let lead = if text.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = write!(text, "{lead}{name:<12} {value}");
    };
    let epochs = plural(report.epochs.len() as u64, "epoch");
    let batches = plural_es(report.batches);
    let (images, seconds, failed) = (report.samples, report.seconds, failed(report));
    row("loaded", format_args!("{images} images in {batches}, {epochs}, {seconds:.2} s{failed}"));
    let (images, megabytes) = (report.images_per_second, report.megabytes_per_second);
    row("speed", format_args!("{images:.1} images/s, {megabytes:.1} MB/s"));
    row("first batch", format_args!("after {:.3} s", report.seconds_to_first_batch));
    let slabs = plural(report.transports.len() as u64, "slab");
    let huge = report.huge_page_bytes.map(|huge| format!(" ({} on huge pages)", bytes(huge)));
    let (all, control) = (bytes(report.slab_bytes), bytes(report.control_bytes));
    row("memory", format_args!("{slabs}, {all}{}; control {control}", huge.unwrap_or_default()));
    let transports: Vec<String> =
        report.transport_counts().iter().map(|(name, count)| format!("{name} x {count}")).collect();
    let transports = if transports.is_empty() { "none used".into() } else { transports.join(", ") };
    let degraded = match report.degradations {
        0 => "",
        _ => "; less than asked for, see the warnings",
    };
    row("transport", format_args!("{transports}{degraded}"));
    row("workers", format_args!("{}", workers(report)));
    row("waits", format_args!("{}", waits(&report.wait_seconds)));
    row("verdict", format_args!("{}", report.verdict));
    row("versions", format_args!("forebay {}, {}", report.versions.forebay, report.versions.codec));
    text
}

/// What the workers did: `2 workers: read 5 %, decode 50 %, transform 25 %, idle 20 %`.
fn workers(report: &RunReport) -> String {
    let WorkerSeconds { read, decode, transform, idle } = report.worker_seconds;
    let whole = read + decode + transform + idle;
    let mut text = plural(report.num_workers, "worker");
    if whole > 0.0 {
        let parts = [("read", read), ("decode", decode), ("transform", transform), ("idle", idle)];
        let parts = parts.map(|(name, part)| format!("{name} {:.0} %", 100.0 * part / whole));
        let _ = write!(text, ": {}", parts.join(", "));
    }
    if report.worker_restarts > 0 {
        let _ = write!(text, "; {} died and were replaced", report.worker_restarts);
    }
    text
}

/// What failed: `; 3 samples failed, 2 batches lost`.
fn failed(report: &RunReport) -> String {
    let samples = match report.failed_samples {
        0 => return String::new(),
        failed => plural(failed, "sample"),
    };
    match report.failed_batches {
        0 => format!("; {samples} failed"),
        lost => format!("; {samples} failed, {} lost", plural_es(lost)),
    }
}

/// How long batches were waited for: `p50 1.2 ms, p95 250.0 ms, p99 1500.0 ms a batch`.
fn waits(waits: &WaitSeconds) -> String {
    let [p50, p95, p99] = [waits.p50, waits.p95, waits.p99].map(|seconds| 1e3 * seconds);
    format!("p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms a batch")
}

fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn plural_es(count: u64) -> String {
    format!("{count} batch{}", if count == 1 { "" } else { "es" })
}

/// Returns a number of bytes in binary units with one digit after the point.
fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.1} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::example;
    use super::*;

    #[test]
    fn the_summary_reads_like_this() {
        let expected = "\
loaded       60 images in 1 batch, 1 epoch, 0.50 s
speed        120.0 images/s, 72.2 MB/s
first batch  after 0.250 s
memory       3 slabs, 103.4 MiB (0 B on huge pages); control 64.0 KiB
transport    shm x 1, heap x 2
workers      2 workers: read 5 %, decode 50 %, transform 25 %, idle 20 %
waits        p50 1.2 ms, p95 250.0 ms, p99 1500.0 ms a batch
verdict      decode-bound: 1 more worker would help
versions     forebay 0.1.0, libjpeg-turbo 3.1.0 (AVX2)";
        assert_eq!(text(&example()), expected);
    }

    #[test]
    fn failures_and_deaths_are_named() {
        let mut report = example();
        (report.failed_samples, report.failed_batches, report.worker_restarts) = (3, 2, 3);
        report.degradations = 1;
        let text = text(&report);
        assert!(
            text.starts_with(
                "loaded       60 images in 1 batch, 1 epoch, 0.50 s; 3 samples failed, 2 batches lost\n"
            ),
            "{text}"
        );
        assert!(text.contains("idle 20 %; 3 died and were replaced\n"), "{text}");
        assert!(text.contains("heap x 2; less than asked for, see the warnings\n"), "{text}");
        (report.failed_samples, report.failed_batches) = (1, 0);
        assert!(super::text(&report).contains("0.50 s; 1 sample failed\n"));
    }

    #[test]
    fn a_run_without_batches_has_no_numbers_to_show() {
        let mut report = example();
        report.transports.clear();
        report.worker_seconds = WorkerSeconds { read: 0.0, decode: 0.0, transform: 0.0, idle: 0.0 };
        (report.huge_page_bytes, report.consumer_wait_seconds) = (None, 0.0);
        let text = text(&report);
        assert!(
            text.contains("transport    none used\n") && text.contains("workers      2 workers\n"),
            "{text}"
        );
        assert!(!text.contains("huge") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1024), bytes(1 << 40)],
            ["0 B", "1023 B", "1.0 KiB", "1024.0 GiB"]
        );
    }
}
