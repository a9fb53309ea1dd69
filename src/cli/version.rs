//! What `--version` and every report say about the build.

/// forebay's version.
pub(crate) const FOREBAY: &str = env!("CARGO_PKG_VERSION");

/// Returns the line after the program's name: versions of forebay and of the JPEG decoder.
pub(crate) fn line() -> String {
    format!("{FOREBAY} ({})", forebay::decode::codec_version())
}
