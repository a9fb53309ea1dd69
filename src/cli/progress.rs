//! How far the work is: a bar on a terminal, a line now and then elsewhere, or nothing.

use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::args::ProgressChoice;
use super::console::Console;

/// How often plain progress speaks.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Progress through a known number of samples or files. It leaves the screen when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    console: Console,
    bar: ProgressBar,
    total: u64,
    spoke: std::sync::Mutex<Instant>,
}

impl Progress {
    /// Creates progress from 0 to `total`; `unit` is the word after the count, such as `images`.
    pub(crate) fn new(console: &Console, total: u64, unit: &str) -> Self {
        let bar = match console.progress() {
            ProgressChoice::Auto => console.bars().add(ProgressBar::new(total)),
            _ => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden()),
        };
        let template = format!("{{msg:8}} {{wide_bar}} {{pos}}/{{len}} {unit}, {{rate}}/s, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.with_key("rate", rate));
        }
        Progress { console: console.clone(), bar, total, spoke: std::sync::Mutex::new(Instant::now()) }
    }

    /// Sets the word before the bar, such as `epoch 2`.
    pub(crate) fn label(&self, text: impl fmt::Display) {
        self.bar.set_message(text.to_string());
    }

    /// Says that `count` more are done. May be called from any thread.
    pub(crate) fn advance(&self, count: u64) {
        self.bar.inc(count);
        if self.console.progress() == ProgressChoice::Plain {
            self.speak_if_due();
        }
    }

    fn speak_if_due(&self) {
        let Ok(mut spoke) = self.spoke.try_lock() else { return };
        if spoke.elapsed() >= PLAIN_INTERVAL {
            *spoke = Instant::now();
            let label = self.bar.message();
            let space = if label.is_empty() { "" } else { " " };
            self.console.line(&format_args!("{label}{space}{}/{}", self.bar.position(), self.total));
        }
    }
}

/// Writes the rate with as many digits as anyone reads.
fn rate(state: &ProgressState, text: &mut dyn fmt::Write) {
    let rate = state.per_sec();
    // Writing to the bar's own line does not fail.
    let _ = if rate < 10.0 { write!(text, "{rate:.1}") } else { write!(text, "{rate:.0}") };
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
