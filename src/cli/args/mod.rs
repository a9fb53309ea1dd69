//! Flags as they are typed. Checks each by itself; what flags mean together is `plan`'s to say.

mod choice;
mod run;

pub(crate) use choice::{DigestPer, Preset, Workers};
pub(crate) use run::RunArgs;

use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};
use forebay::synth::SynthOptions;

/// Loads image training data with worker processes that decode straight into shared memory.
#[derive(Debug, Parser)]
#[command(name = "forebay", max_term_width = 100, after_help = AFTER_HELP, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Results go to standard output, progress and warnings to standard error.
Exit code: 0 done, 1 done but samples failed, 2 could not run.
Environment: FOREBAY_NUM_WORKERS and FOREBAY_TRANSPORT stand in for the flags, FOREBAY_LOG sets the level of
messages (off, error, warn, info, debug, trace), NO_COLOR turns colours off.";

const EVERYWHERE: &str = "Options of every command";

/// Flags of every sub-command.
#[derive(Debug, clap::Args)]
pub(crate) struct GlobalArgs {
    /// When to colour messages
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// How to show progress: a bar on a terminal and lines elsewhere (auto), lines (plain), or not (never)
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "HOW", default_value = "auto")]
    pub(crate) progress: ProgressChoice,
    /// Say more: -v what was chosen, -vv why, -vvv everything
    #[arg(short, long, global = true, help_heading = EVERYWHERE, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Say only what went wrong, and show no progress
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub(crate) quiet: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressChoice {
    /// A bar on a terminal, lines elsewhere
    Auto,
    /// A line now and then
    Plain,
    /// Nothing
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load a data set epoch by epoch and report how fast it went
    Run(Box<RunArgs>),
    /// Decode pictures as the loader would and write them as PNG
    Decode(DecodeArgs),
    /// Decode every picture of a data set and list the broken ones with reasons
    Verify(VerifyArgs),
    /// Make a data set of photo-like JPEGs; the same seed gives the same bytes
    Synth(SynthArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
}

/// Flags of `decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct DecodeArgs {
    /// Pictures to decode
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Directory for the PNGs, each named as its picture; made where missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Leave the pixels as stored, whatever the EXIF orientation says
    #[arg(long)]
    pub(crate) no_orientation: bool,
}

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Directory with one sub-directory a class
    pub(crate) data: PathBuf,
}

/// Flags of `synth`.
#[derive(Debug, clap::Args)]
pub(crate) struct SynthArgs {
    /// Directory to fill; made where missing, refused where it holds something
    pub(crate) dir: PathBuf,
    /// Pictures in all
    #[arg(long, value_name = "N", default_value_t = SynthOptions::default().images)]
    pub(crate) images: u64,
    /// Classes, each a sub-directory [default: 10, or one a picture where there are fewer]
    #[arg(long, value_name = "N")]
    pub(crate) classes: Option<u64>,
    /// Width of every picture in pixels
    #[arg(long, value_name = "W", default_value_t = SynthOptions::default().width)]
    pub(crate) width: u32,
    /// Height of every picture in pixels
    #[arg(long, value_name = "H", default_value_t = SynthOptions::default().height)]
    pub(crate) height: u32,
    /// Seed of the pictures
    #[arg(long, value_name = "N", default_value_t = SynthOptions::default().seed)]
    pub(crate) seed: u64,
}

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in ["forebay -vv --color never verify d", "forebay verify d -v -v --color never"] {
            let args = parse(line).unwrap();
            assert_eq!((args.global.verbose, args.global.color), (2, ColorChoice::Never), "{line}");
        }
        assert!(parse("forebay -q -v verify d").is_err());
    }

    #[test]
    fn a_flag_that_comes_twice_has_its_last_value() {
        let Command::Run(args) = parse("forebay run d --seed 1 --epochs 2 --seed 3").unwrap().command else {
            panic!()
        };
        assert_eq!((args.seed, args.epochs), (3, 2));
    }

    #[test]
    fn decode_needs_files_and_a_place() {
        assert!(parse("forebay decode --out o").is_err());
        assert!(parse("forebay decode a.jpg").is_err());
        let Command::Decode(args) = parse("forebay decode a.jpg b.png --out o").unwrap().command else {
            panic!()
        };
        assert_eq!(args.files.len(), 2);
        assert!(!args.no_orientation);
    }

    #[test]
    fn usage_errors_have_exit_code_two() {
        assert_eq!(parse("forebay frobnicate").unwrap_err().exit_code(), 2);
        assert_eq!(parse("forebay --help").unwrap_err().exit_code(), 0);
    }
}
