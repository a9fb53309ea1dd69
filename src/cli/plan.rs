//! What `run`'s flags mean together: checked once, then plain data.

use std::path::PathBuf;
use std::time::Duration;

use forebay::sampler::Ranks;
use forebay::{DType, Error, ErrorKind, Layout, MaxErrors, OnError, Transport};

use super::args::{DigestPer, Preset, RunArgs};

/// A run that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunPlan {
    pub(crate) data: PathBuf,
    pub(crate) epochs: u64,
    pub(crate) batch_size: usize,
    /// Nothing: as many as suit the machine.
    pub(crate) num_workers: Option<usize>,
    /// Nothing: enough for the workers.
    pub(crate) prefetch: Option<usize>,
    pub(crate) transport: Transport,
    pub(crate) file_dir: Option<PathBuf>,
    pub(crate) strict: bool,
    pub(crate) on_error: OnError,
    pub(crate) max_errors: MaxErrors,
    pub(crate) error_report: Option<PathBuf>,
    /// Nothing: the loader's default.
    pub(crate) timeout: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) shuffle: bool,
    pub(crate) drop_last: bool,
    pub(crate) pipeline: PipelineChoice,
    pub(crate) dtype: Option<DType>,
    pub(crate) layout: Option<Layout>,
    pub(crate) ranks: Option<Ranks>,
    /// Batch of the first epoch to start at; later epochs start at 0.
    pub(crate) start_batch: u64,
    pub(crate) unordered: bool,
    pub(crate) digest: Option<DigestPer>,
    pub(crate) explain: bool,
    pub(crate) json: bool,
}

/// Where the pipeline comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PipelineChoice {
    /// A named one that gives squares of `size` pixels a side.
    Preset { preset: Preset, size: u32 },
    /// A TOML file.
    File(PathBuf),
}

impl RunPlan {
    /// Checks what flags mean together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a rank outside the world, for a file directory without its transport, and for an error
    /// budget where each failed sample is an error anyway.
    pub(crate) fn new(args: RunArgs) -> forebay::Result<Self> {
        let ranks = args.rank.zip(args.world_size);
        let ranks = ranks.map(|(rank, world_size)| Ranks { rank, world_size, tail: args.rank_tail });
        if let Some(Ranks { rank, world_size, .. }) = ranks
            && rank >= world_size
        {
            let message =
                format!("--rank is {rank}, but --world-size {world_size} has ranks 0 to {}", world_size - 1);
            return Err(Error::new(ErrorKind::Config, message).with_remedy("count ranks from 0"));
        }
        if args.file_dir.is_some() && args.transport != Transport::File {
            let message = format!("--file-dir is set, but --transport is {}", args.transport);
            return Err(Error::new(ErrorKind::Config, message).with_remedy("add --transport file"));
        }
        if args.max_errors.is_some() && args.on_error == OnError::Fail {
            let message = "--max-errors is set, but with --on-error fail each failed sample is an error";
            return Err(Error::new(ErrorKind::Config, message)
                .with_remedy("add --on-error skip or --on-error substitute"));
        }
        let in_order = args.pipeline.is_none() && args.preset == Preset::Eval;
        Ok(RunPlan {
            shuffle: if in_order { args.shuffle } else { !args.no_shuffle },
            pipeline: match args.pipeline {
                Some(file) => PipelineChoice::File(file),
                None => PipelineChoice::Preset { preset: args.preset, size: args.size },
            },
            num_workers: args.num_workers.count(),
            ranks,
            data: args.data,
            epochs: args.epochs,
            batch_size: args.batch_size,
            prefetch: args.prefetch,
            transport: args.transport,
            file_dir: args.file_dir,
            strict: args.strict,
            on_error: args.on_error,
            max_errors: args.max_errors.unwrap_or_default(),
            error_report: args.error_report,
            timeout: args.timeout,
            seed: args.seed,
            drop_last: args.drop_last,
            dtype: args.dtype,
            layout: args.layout,
            start_batch: args.start_batch,
            unordered: args.unordered,
            digest: args.digest,
            explain: args.explain,
            json: args.json,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use forebay::sampler::RankTail;

    use super::super::args::{Args, Command};
    use super::*;

    fn plan(flags: &str) -> Result<RunPlan, String> {
        let words = ["forebay", "run", "data"].into_iter().chain(flags.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Run(args) = args.command else { panic!("not run") };
        RunPlan::new(*args).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_the_train_preset_shuffled() {
        let plan = plan("--num-workers auto --transport auto").unwrap();
        assert_eq!(plan.pipeline, PipelineChoice::Preset { preset: Preset::Train, size: 224 });
        assert!(plan.shuffle && !plan.drop_last && plan.digest.is_none());
        assert_eq!((plan.epochs, plan.num_workers, plan.transport), (1, None, Transport::Auto));
    }

    #[test]
    fn the_last_shuffle_flag_wins_over_the_preset() {
        assert!(!plan("--preset eval").unwrap().shuffle);
        assert!(plan("--preset eval --shuffle").unwrap().shuffle);
        assert!(!plan("--no-shuffle").unwrap().shuffle);
        assert!(plan("--no-shuffle --shuffle").unwrap().shuffle);
        assert!(plan("--pipeline p.toml").unwrap().shuffle);
    }

    #[test]
    fn a_digest_is_a_line_an_epoch_unless_asked() {
        assert_eq!(plan("--digest --epochs 2").unwrap().digest, Some(DigestPer::Epoch));
        assert_eq!(plan("--digest batch").unwrap().digest, Some(DigestPer::Batch));
    }

    #[test]
    fn a_rank_lies_within_the_world() {
        let ranks = plan("--rank 2 --world-size 3 --rank-tail exact").unwrap().ranks;
        assert_eq!(ranks, Some(Ranks { rank: 2, world_size: 3, tail: RankTail::Exact }));
        assert!(plan("--rank 3 --world-size 3").unwrap_err().contains("has ranks 0 to 2"));
        assert!(plan("--rank 0").is_err());
        assert!(plan("--world-size 2").is_err());
    }

    #[test]
    fn settings_that_would_be_ignored_are_refused() {
        assert!(plan("--file-dir /x --transport memfd").unwrap_err().contains("add --transport file"));
        assert!(plan("--file-dir /x --transport file").is_ok());
        assert!(plan("--pipeline p.toml --preset eval").is_err());
        assert!(plan("--pipeline p.toml --size 100").is_err());
        assert!(plan("--rank-tail drop").is_err());
        assert!(plan("--max-errors 3").unwrap_err().contains("add --on-error skip"));
    }

    #[test]
    fn an_error_budget_is_a_count_or_a_share() {
        let budget = |text: &str| plan(&format!("--on-error skip --max-errors {text}"));
        assert_eq!(budget("3").unwrap().max_errors, MaxErrors::Count(3));
        assert_eq!(budget("2.5%").unwrap().max_errors, MaxErrors::Share(0.025));
        assert!(budget("101%").unwrap_err().contains("neither a count nor a share"));
        assert_eq!(plan("--on-error substitute").unwrap().max_errors, MaxErrors::Unlimited);
        assert_eq!(plan("--timeout 0.5").unwrap().timeout, Some(Duration::from_millis(500)));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for flags in ["--batch-size 0", "--prefetch 0", "--size 0", "--num-workers x", "--dtype i64"] {
            assert!(plan(flags).is_err(), "{flags}");
        }
    }
}
