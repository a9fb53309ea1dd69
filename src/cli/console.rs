//! Standard error, where messages and progress go: its colours, and one writer at a time.

use std::fmt;
use std::io::{IsTerminal, Write};

use clap::ColorChoice;
use indicatif::MultiProgress;

use super::args::{GlobalArgs, ProgressChoice};

/// Where messages go; clones share the terminal, so that a message never tears a progress bar.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    bars: MultiProgress,
    color: bool,
    progress: ProgressChoice,
    quiet: bool,
    verbose: bool,
}

impl Console {
    /// Creates the console that the flags ask for.
    pub(crate) fn new(args: &GlobalArgs) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let progress = match args.progress {
            _ if args.quiet => ProgressChoice::Never,
            ProgressChoice::Auto if !terminal => ProgressChoice::Plain,
            choice => choice,
        };
        let color = colored(args.color, no_color, terminal);
        Console { bars: MultiProgress::new(), color, progress, quiet: args.quiet, verbose: args.verbose > 0 }
    }

    /// Returns how progress is shown: a bar (`auto`), lines (`plain`), or not.
    pub(crate) fn progress(&self) -> ProgressChoice {
        self.progress
    }

    /// Returns whether more should be said than is needed.
    pub(crate) fn verbose(&self) -> bool {
        self.verbose
    }

    /// Returns the set that a progress bar joins.
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Writes what ended the run.
    pub(crate) fn error(&self, message: &dyn fmt::Display) {
        self.labelled("error", "31", message);
    }

    /// Writes something that the user should know. An event brings its own label: `warning[code]: `.
    pub(crate) fn warning(&self, message: &dyn fmt::Display) {
        let text = message.to_string();
        match text.split_once("]: ").filter(|(label, _)| label.starts_with("warning[")) {
            Some((label, rest)) => self.labelled(&format!("{label}]"), "33", &rest),
            None => self.labelled("warning", "33", &text),
        }
    }

    /// Writes something that is good to know, unless only what went wrong is wanted.
    pub(crate) fn note(&self, text: &dyn fmt::Display) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// Writes a line as it is. A standard error that cannot be written is nobody's to tell.
    pub(crate) fn line(&self, text: &dyn fmt::Display) {
        let _ = self.bars.suspend(|| writeln!(std::io::stderr(), "{text}"));
    }

    fn labelled(&self, label: &str, color: &str, message: &dyn fmt::Display) {
        if self.color {
            self.line(&format_args!("\x1b[1;{color}m{label}:\x1b[0m {message}"));
        } else {
            self.line(&format_args!("{label}: {message}"));
        }
    }
}

/// A flag outweighs `NO_COLOR` (<https://no-color.org>), which outweighs the terminal.
fn colored(choice: ColorChoice, no_color: bool, terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => terminal && !no_color,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_outweighs_no_color_and_that_the_terminal() {
        assert!(colored(ColorChoice::Always, true, false));
        assert!(!colored(ColorChoice::Never, false, true));
        assert!(!colored(ColorChoice::Auto, true, true));
        assert!(colored(ColorChoice::Auto, false, true));
        assert!(!colored(ColorChoice::Auto, false, false));
    }
}
