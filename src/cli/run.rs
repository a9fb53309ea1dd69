//! `forebay run`: loads a data set epoch by epoch, and reports what came and how fast.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay::transform::Pipeline;
use forebay::{Batch, Epoch, Error, ErrorKind, Loader, Result};

use super::args::{DigestPer, Preset, RunArgs};
use super::console::Console;
use super::digest::{Digest, batch_line, epoch_line};
use super::failed::FailedSamples;
use super::folder;
use super::outcome::{Failure, Outcome};
use super::output::Output;
use super::plan::{PipelineChoice, RunPlan};
use super::progress::Progress;
use super::report::{self, BatchDigest, EpochReport, Totals};

/// Runs the plan. A sample that fails is reported, and the run goes on; other errors end it.
pub(crate) fn run(
    args: RunArgs,
    console: &Console,
    output: &mut Output,
) -> std::result::Result<Outcome, Failure> {
    let plan = RunPlan::new(args)?;
    let failed = FailedSamples::new(plan.error_report.as_deref(), plan.on_error, console)?;
    let began = Instant::now();
    let loader = build(&plan, console)?;
    check_start(&loader, plan.start_batch)?;
    if plan.explain || console.verbose() {
        console.line(&loader.explain());
    }
    let totals = Totals::default();
    let mut meter = Meter { plan: &plan, console, output, began, failed, totals, first: None };
    let started = Instant::now();
    let mut epochs = Vec::new();
    for epoch in iterate(&loader, &plan) {
        epochs.push(meter.epoch(epoch)?);
    }
    let (mut totals, first) = (meter.totals, meter.first);
    totals.failed_samples = meter.failed.count();
    totals.seconds = started.elapsed().as_secs_f64();
    totals.seconds_to_first_batch = first.unwrap_or_default().as_secs_f64();
    let data = plan.data.display().to_string();
    let report = report::build(data, epochs, &totals, &loader);
    if plan.json {
        output.line(report::json(&report))?;
    } else if plan.digest.is_some() {
        // Standard output holds the digests alone, so that two runs can be compared by it.
        console.note(&report::text(&report));
    } else {
        output.line(report::text(&report))?;
    }
    Ok(Outcome::from_failed(report.failed_samples + report.failed_batches))
}

fn build(plan: &RunPlan, console: &Console) -> Result<Loader> {
    let mut builder = Loader::builder(folder::open(&plan.data, console)?)
        .pipeline(pipeline(plan)?)
        .batch_size(plan.batch_size)
        .transport(plan.transport)
        .strict(plan.strict)
        .on_error(plan.on_error)
        .max_errors(plan.max_errors)
        .seed(plan.seed)
        .shuffle(plan.shuffle)
        .drop_last(plan.drop_last)
        .unordered(plan.unordered);
    if let Some(workers) = plan.num_workers {
        builder = builder.num_workers(workers);
    }
    if let Some(limit) = plan.timeout {
        builder = builder.timeout(limit);
    }
    if let Some(batches) = plan.prefetch {
        builder = builder.prefetch(batches);
    }
    if let Some(directory) = &plan.file_dir {
        builder = builder.file_dir(directory);
    }
    if let Some(ranks) = plan.ranks {
        builder = builder.ranks(ranks);
    }
    builder.build()
}

/// Checks that the first epoch has a batch to start at; right behind its last one there is nothing left, which is fine.
fn check_start(loader: &Loader, start: u64) -> Result<()> {
    let steps = loader.steps(0);
    if start <= steps {
        return Ok(());
    }
    let message = format!("--start-batch is {start}, but an epoch has {steps} batches");
    Err(Error::new(ErrorKind::Config, message).with_remedy(format!("start at 0 to {steps}")))
}

fn pipeline(plan: &RunPlan) -> Result<Pipeline> {
    let mut pipeline = match &plan.pipeline {
        PipelineChoice::Preset { preset: Preset::Train, size } => Pipeline::train(*size),
        PipelineChoice::Preset { preset: Preset::Eval, size } => Pipeline::eval(*size),
        PipelineChoice::File(file) => read_pipeline(file)?,
    };
    pipeline.dtype = plan.dtype.unwrap_or(pipeline.dtype);
    pipeline.layout = plan.layout.unwrap_or(pipeline.layout);
    Ok(pipeline)
}

fn read_pipeline(file: &Path) -> Result<Pipeline> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::io("cannot read the pipeline", error).with_path(file).with_kind(ErrorKind::Config)
    })?;
    toml::from_str(&text).map_err(|error| Error::new(ErrorKind::Config, error.to_string()).with_path(file))
}

/// The epochs asked for, each warm when its turn comes where they all start at batch 0.
fn iterate<'a>(loader: &'a Loader, plan: &RunPlan) -> Box<dyn Iterator<Item = Epoch> + 'a> {
    let (start, count) = (plan.start_batch, plan.epochs);
    if start == 0 {
        return Box::new(loader.epochs(count));
    }
    Box::new((0..count).map(move |epoch| loader.epoch_from(epoch, if epoch == 0 { start } else { 0 })))
}

/// Whether the error stands for one sample, so that the run can go on behind it; those that end the loader have no place.
fn is_sample_error(error: &Error) -> bool {
    error.position().is_some()
}

/// Takes batches and keeps count.
struct Meter<'a> {
    plan: &'a RunPlan,
    console: &'a Console,
    output: &'a mut Output,
    began: Instant,
    failed: FailedSamples<'a>,
    totals: Totals,
    first: Option<Duration>,
}

impl Meter<'_> {
    fn epoch(&mut self, mut epoch: Epoch) -> std::result::Result<EpochReport, Failure> {
        let number = epoch.epoch();
        let started = Instant::now();
        if epoch.len() == 0 {
            self.console.warning(&format_args!(
                "epoch {number} has no batches of {} for this rank\n  \
                 fix: a smaller --batch-size, no --drop-last, or an earlier --start-batch",
                self.plan.batch_size
            ));
        }
        let progress = Progress::new(self.console, epoch.len() as u64, "batches");
        progress.label(format_args!("epoch {number}"));
        let mut report = EpochReport { epoch: number, ..EpochReport::default() };
        let mut digest = Digest::default();
        let mut known = 0;
        while let Some(batch) = epoch.next() {
            progress.advance(1);
            self.failed.add(&epoch.errors()[known..])?;
            known = epoch.errors().len();
            match batch {
                Ok(batch) => self.batch(&batch, &mut report, &mut digest)?,
                Err(error) if is_sample_error(&error) => {
                    self.console.error(&error);
                    self.totals.failed_batches += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(progress);
        report.seconds = started.elapsed().as_secs_f64();
        if self.plan.digest.is_some() {
            let sealed = digest.finish();
            report.sha256 = Some(sealed.hex());
            self.print(DigestPer::Epoch, || epoch_line(number, &sealed))?;
        }
        Ok(report)
    }

    fn batch(
        &mut self,
        batch: &Batch,
        report: &mut EpochReport,
        whole: &mut Digest,
    ) -> std::result::Result<(), Failure> {
        self.first.get_or_insert_with(|| self.began.elapsed());
        report.batches += 1;
        report.samples += batch.len() as u64;
        self.totals.count(batch.len() as u64, batch.image_bytes().len() as u64);
        let Some(per) = self.plan.digest else { return Ok(()) };
        let mut digest = Digest::default();
        for slot in 0..batch.len() {
            let (index, label, valid) = (batch.indices()[slot], batch.labels()[slot], batch.valid()[slot]);
            digest.add(batch.position() + slot as u64, index, label, valid, batch.sample_bytes(slot));
        }
        whole.merge(&digest);
        if per == DigestPer::Batch {
            let (epoch, step, sealed) = (batch.epoch(), batch.step(), digest.finish());
            let (samples, sha256) = (sealed.samples, sealed.hex());
            report.batch_digests.push(BatchDigest { batch: step, samples, sha256 });
            self.print(DigestPer::Batch, || batch_line(epoch, step, &sealed))?;
        }
        Ok(())
    }

    /// Prints a digest line where lines of that kind were asked for, and not within a JSON object.
    fn print(&mut self, per: DigestPer, line: impl Fn() -> String) -> std::result::Result<(), Failure> {
        if self.plan.digest == Some(per) && !self.plan.json {
            self.output.line(line())?;
        }
        Ok(())
    }
}
