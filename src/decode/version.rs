//! Which JPEG decoder is in use, for reports.

/// Returns the JPEG decoder's name, version and SIMD level, such as `libjpeg-turbo 3.1.0 (avx2)`.
///
/// The version is the one in the headers of the library that was linked. The level follows libjpeg-turbo's own choice: none
/// if it was built without SIMD, else what the CPU offers, less what the variables `JSIMD_FORCENONE` and `JSIMD_FORCESSE2`
/// take away.
pub fn codec_version() -> String {
    if !cfg!(feature = "turbo") {
        return "image crate (no libjpeg-turbo)".to_owned();
    }
    let version = option_env!("FOREBAY_LIBJPEG_TURBO_VERSION").unwrap_or("of unknown version");
    let built = option_env!("FOREBAY_LIBJPEG_TURBO_SIMD").is_some();
    format!("libjpeg-turbo {version} ({})", if built { simd_level() } else { "no simd" })
}

fn simd_level() -> &'static str {
    let set = |name| std::env::var_os(name).is_some_and(|value| value == "1");
    if set("JSIMD_FORCENONE") {
        return "no simd";
    }
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = std::arch::is_x86_feature_detected!("avx2") && !set("JSIMD_FORCESSE2");
        if avx2 { "avx2" } else { "sse2" }
    }
    #[cfg(target_arch = "aarch64")]
    {
        "neon"
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "simd"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_level_are_known() {
        let version = codec_version();
        if cfg!(feature = "turbo") {
            let number = version.strip_prefix("libjpeg-turbo ").unwrap();
            assert!(number.starts_with(|c: char| c.is_ascii_digit()), "{version}");
            assert!(number.ends_with(')') && number.contains(" ("), "{version}");
        } else {
            assert!(version.contains("image"), "{version}");
        }
    }
}
