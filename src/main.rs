//! The command-line tool: parse, run, exit code.

mod cli;

fn main() -> std::process::ExitCode {
    forebay::init(); // a worker process stays here
    cli::main()
}
