//! The command line: flags in, results on standard output, progress and warnings on standard error.
//! Uses the library as anyone would, through its public interface; decides nothing about loading itself.

mod args;
mod completions;
mod console;
mod decode;
mod digest;
mod failed;
mod folder;
mod logging;
mod outcome;
mod output;
mod plan;
mod progress;
mod report;
mod run;
mod synth;
mod verify;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Args, Command};
use console::Console;
use outcome::{Failure, Outcome};
use output::Output;

/// Parses the process's arguments, runs the sub-command, and returns the exit code: 0 done, 1 done but samples
/// failed, 2 could not run. A reader that closed standard output has had enough, which is no error.
pub(crate) fn main() -> ExitCode {
    let matches = Args::command().version(version::line()).get_matches();
    let args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let console = Console::new(&args.global);
    logging::start(&args.global, console.clone());
    let mut output = Output::stdout();
    let result = run(args.command, &console, &mut output);
    let result = result.and_then(|outcome| output.flush().map(|()| outcome));
    match result {
        Ok(Outcome::Done) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Ok(Outcome::SomeFailed) => ExitCode::from(1),
        Err(failure) => {
            console.error(&failure);
            ExitCode::from(2)
        }
    }
}

fn run(command: Command, console: &Console, output: &mut Output) -> Result<Outcome, Failure> {
    match command {
        Command::Run(args) => run::run(*args, console, output),
        Command::Verify(args) => verify::run(&args, console, output),
        Command::Synth(args) => synth::run(&args, console, output),
        Command::Decode(args) => decode::run(&args, console, output),
        Command::Completions(args) => completions::run(&args, output),
    }
}
