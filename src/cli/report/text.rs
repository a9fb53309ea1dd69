//! The report as a person reads it.

use std::fmt::Write;

use super::RunReport;

/// Returns the closing summary, a few lines without a last line break.
pub(crate) fn text(report: &RunReport) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: std::fmt::Arguments<'_>| {
        let lead = if text.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = write!(text, "{lead}{name:<12} {value}");
    };
    let failed = match report.failed_samples {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let epochs = plural(report.epochs.len() as u64, "epoch");
    let batches = plural_es(report.batches);
    row(
        "loaded",
        format_args!("{} images in {batches}, {epochs}, {:.2} s{failed}", report.samples, report.seconds),
    );
    let (images, megabytes) = (report.images_per_second, report.megabytes_per_second);
    row("speed", format_args!("{images:.1} images/s, {megabytes:.1} MB/s"));
    row("first batch", format_args!("after {:.3} s", report.seconds_to_first_batch));
    let slabs = plural(report.transports.len() as u64, "slab");
    let control = bytes(report.control_bytes);
    row("memory", format_args!("{slabs}, {}; control {control}", bytes(report.slab_bytes)));
    let transports: Vec<String> =
        report.transport_counts().iter().map(|(name, count)| format!("{name} x {count}")).collect();
    row("transport", format_args!("{}; {}", transports.join(", "), plural(report.num_workers, "worker")));
    row("versions", format_args!("forebay {}, {}", report.versions.forebay, report.versions.codec));
    text
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
memory       3 slabs, 103.4 MiB; control 64.0 KiB
transport    shm x 1, heap x 2; 2 workers
versions     forebay 0.1.0, libjpeg-turbo 3.1.0 (AVX2)";
        assert_eq!(text(&example()), expected);
    }

    #[test]
    fn failed_samples_are_named() {
        let mut report = example();
        report.failed_samples = 2;
        assert!(text(&report).starts_with("loaded       60 images in 1 batch, 1 epoch, 0.50 s, 2 failed\n"));
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1024), bytes(1 << 40)],
            ["0 B", "1023 B", "1.0 KiB", "1024.0 GiB"]
        );
    }
}
