//! This process's environment and its end.
#![allow(unsafe_code)]

/// Removes a variable from this process's environment, so that programs it starts do not inherit it.
///
/// Call it where no other thread reads or changes the environment: at the start of `main`, or of a test program that
/// runs a single test.
pub fn remove_variable(name: &str) {
    // SAFETY: the caller is at the start of the process, where no other thread uses the environment.
    unsafe { std::env::remove_var(name) }
}

/// Ends this process.
#[allow(clippy::exit)]
pub fn exit(code: i32) -> ! {
    std::process::exit(code)
}
