//! `forebay completions`: a shell's completion script.

use clap::CommandFactory;

use super::args::{Args, CompletionsArgs};
use super::outcome::{Failure, Outcome};
use super::output::Output;

/// Writes the script for the shell asked for.
pub(crate) fn run(args: &CompletionsArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "forebay", &mut script);
    output.bytes(&script)?;
    Ok(Outcome::Done)
}
