//! The flags of `run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use forebay::sampler::RankTail;
use forebay::{DType, Layout, MaxErrors, OnError, Transport};

use super::{DigestPer, Preset, Workers};

/// Flags of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Directory with one sub-directory a class
    pub(crate) data: PathBuf,

    /// Epochs to load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) epochs: u64,
    /// Samples a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub(crate) batch_size: usize,
    /// Worker processes; auto: one a core. 0: no processes
    #[arg(long, value_name = "N|auto", default_value = "auto", env = "FOREBAY_NUM_WORKERS")]
    pub(crate) num_workers: Workers,
    /// Batches made ahead in all, not by each worker
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) prefetch: Option<usize>,
    /// How batches travel from the workers
    #[arg(long, value_name = "T", default_value = "auto", env = "FOREBAY_TRANSPORT", value_parser = transport())]
    pub(crate) transport: Transport,
    /// Directory of the files of the transport `file`
    #[arg(long, value_name = "PATH")]
    pub(crate) file_dir: Option<PathBuf>,
    /// Refuse to run rather than step down to a slower transport
    #[arg(long)]
    pub(crate) strict: bool,

    /// What a sample that cannot be made does: fail its batch, leave its slot empty, or have another in its place
    #[arg(long, value_name = "WHAT", default_value = "fail", value_parser = on_error())]
    pub(crate) on_error: OnError,
    /// Stop after more failed samples in an epoch than this number or share [default: never]
    #[arg(long, value_name = "N|P%")]
    pub(crate) max_errors: Option<MaxErrors>,
    /// Write each failed sample to this file, a JSON object a line
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) error_report: Option<PathBuf>,
    /// Kill and replace a worker that takes longer over one sample [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Seed of order and augmentation
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Shuffle; the default, but for the preset `eval`
    #[arg(long, overrides_with = "no_shuffle")]
    pub(crate) shuffle: bool,
    /// Keep the data set's order; the default of the preset `eval`
    #[arg(long, overrides_with = "shuffle")]
    pub(crate) no_shuffle: bool,
    /// Leave out the last batch where it is not full
    #[arg(long)]
    pub(crate) drop_last: bool,

    /// Side of the square that the preset gives, in pixels
    #[arg(long, value_name = "N", default_value_t = 224, conflicts_with = "pipeline",
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) size: u32,
    /// Pipeline by name
    #[arg(long, default_value = "train", conflicts_with = "pipeline")]
    pub(crate) preset: Preset,
    /// Pipeline from a file
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) pipeline: Option<PathBuf>,
    /// Type of a batch's elements: u8, f16, bf16, f32 [default: f32, or what the pipeline file says]
    #[arg(long, value_name = "D", value_parser = dtype())]
    pub(crate) dtype: Option<DType>,
    /// Order of a batch's axes: nchw, nhwc [default: nchw, or what the pipeline file says]
    #[arg(long, value_name = "L", value_parser = layout())]
    pub(crate) layout: Option<Layout>,

    /// Which training process this is, from 0
    #[arg(long, value_name = "R", requires = "world_size")]
    pub(crate) rank: Option<u32>,
    /// Training processes in all
    #[arg(long, value_name = "W", requires = "rank", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) world_size: Option<u32>,
    /// What becomes of samples that do not divide among the ranks
    #[arg(long, value_name = "TAIL", default_value = "pad", requires = "rank", value_parser = rank_tail())]
    pub(crate) rank_tail: RankTail,
    /// Batch of the first epoch to start at, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) start_batch: u64,
    /// Take batches as they come, not in their order
    #[arg(long)]
    pub(crate) unordered: bool,

    /// Print a SHA-256 of what was loaded, a line an epoch or a batch
    #[arg(long, value_name = "PER", num_args = 0..=1, default_missing_value = "epoch")]
    pub(crate) digest: Option<DigestPer>,
    /// Say first what is decoded, which steps run, and with how many workers and slabs; -v does so too
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it may be a number from 1".into()),
        Ok(number) => Ok(number),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|limit| !limit.is_zero()).ok_or_else(|| "it may be a number of seconds above 0".into())
}

fn on_error() -> impl TypedValueParser<Value = OnError> {
    PossibleValuesParser::new(OnError::ALL.map(OnError::name)).try_map(|name| name.parse())
}

fn transport() -> impl TypedValueParser<Value = Transport> {
    PossibleValuesParser::new(Transport::ALL.map(Transport::name)).try_map(|name| name.parse())
}

fn rank_tail() -> impl TypedValueParser<Value = RankTail> {
    let names = [RankTail::Pad, RankTail::Drop, RankTail::Exact].map(RankTail::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

fn dtype() -> impl TypedValueParser<Value = DType> {
    let names = [DType::U8, DType::F16, DType::BF16, DType::F32].map(DType::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

fn layout() -> impl TypedValueParser<Value = Layout> {
    PossibleValuesParser::new([Layout::Nchw, Layout::Nhwc].map(Layout::name)).try_map(|name| name.parse())
}
