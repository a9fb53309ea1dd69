//! The `log` facade's backend: one line a record on standard error.

use log::{LevelFilter, Log, Metadata, Record};

use super::args::GlobalArgs;
use super::console::Console;

/// The variable that sets the level where no flag does.
const VARIABLE: &str = "FOREBAY_LOG";

struct Logger {
    console: Console,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match record.level() {
            log::Level::Error => self.console.error(record.args()),
            log::Level::Warn => self.console.warning(record.args()),
            level => {
                let name = level.as_str().to_ascii_lowercase();
                self.console.line(&format_args!("{name}: {}", record.args()));
            }
        }
    }

    fn flush(&self) {}
}

/// Sends log records to the console, from the level that flags or `FOREBAY_LOG` ask for.
pub(crate) fn start(args: &GlobalArgs, console: Console) {
    let variable = std::env::var(VARIABLE).ok();
    let asked = level(args.verbose, args.quiet, variable.as_deref());
    log::set_max_level(asked.unwrap_or(LevelFilter::Warn));
    if asked.is_none() {
        let got = variable.unwrap_or_default();
        console.warning(&format_args!(
            "{VARIABLE} is {got:?}; it may be off, error, warn, info, debug or trace. Going on with warn"
        ));
    }
    // Fails only when a logger is set already, and this is the process's first and only call.
    let _ = log::set_logger(Box::leak(Box::new(Logger { console })));
}

/// The level of the flags, else of the variable, else warnings; nothing for a variable that names no level.
fn level(verbose: u8, quiet: bool, variable: Option<&str>) -> Option<LevelFilter> {
    match (quiet, verbose, variable) {
        (true, ..) => Some(LevelFilter::Error),
        (_, 1, _) => Some(LevelFilter::Info),
        (_, 2, _) => Some(LevelFilter::Debug),
        (_, 3.., _) => Some(LevelFilter::Trace),
        (_, 0, None | Some("")) => Some(LevelFilter::Warn),
        (_, 0, Some(name)) => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_outweigh_the_variable() {
        assert_eq!(level(0, false, None), Some(LevelFilter::Warn));
        assert_eq!(level(0, false, Some("trace")), Some(LevelFilter::Trace));
        assert_eq!(level(1, false, Some("trace")), Some(LevelFilter::Info));
        assert_eq!(level(0, true, Some("trace")), Some(LevelFilter::Error));
        assert_eq!(level(0, false, Some("loud")), None);
    }
}
