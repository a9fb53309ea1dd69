//! The builder: stores what is asked for, then checks all of it once and starts the loader.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::Fingerprint;
use super::config::{self, Config};
use super::link::{Door, Shared};
use super::shell::{KeyedDataset, Shell, Work};
use super::supervisor::{Settings, Supervisor};
use super::{HOLD_TIMEOUT, Loader, MaxErrors, OnError, Plans};
use crate::dataset::Dataset;
use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::plan::Budget;
use crate::sampler::{Ranks, Sampler, Sequential, Shuffle};
use crate::slab::{FieldSpec, Pool, SlabLayout, Transport};
use crate::sync::prim::AtomicU64;
use crate::sys::doorbell::Doorbell;
use crate::sys::limits;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::segment::{Backing, Segment};
use crate::tensor::{DType, Layout};
use crate::transform::{Compiled, Pipeline, Shape, Transform};
use crate::worker::{Common, Control, Packed, Processes, Setup, SlabTable, WorkerPage, launch};

/// How long a worker may take to start, before it is killed and another one is tried.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a sample may take by default. Long, since storage that stands still for a minute is not rare.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Configures a [`Loader`]. Setters store; [`build`](LoaderBuilder::build) checks.
#[derive(Debug)]
pub struct LoaderBuilder {
    dataset: Box<dyn Dataset>,
    pipeline: Pipeline,
    sampler: Option<Arc<dyn Sampler>>,
    batch_size: usize,
    num_workers: Option<usize>,
    prefetch: Option<usize>,
    hold: usize,
    shuffle: bool,
    seed: u64,
    drop_last: bool,
    ranks: Ranks,
    transport: Transport,
    strict: bool,
    file_dir: Option<PathBuf>,
    unordered: bool,
    persistent_workers: bool,
    on_error: OnError,
    max_errors: MaxErrors,
    timeout: Duration,
    hold_timeout: Duration,
    max_restarts: Option<u32>,
    worker_program: Option<PathBuf>,
    events: Sink,
}

impl LoaderBuilder {
    pub(super) fn new(dataset: Box<dyn Dataset>) -> Self {
        LoaderBuilder {
            dataset,
            pipeline: Pipeline::default(),
            sampler: None,
            batch_size: 32,
            num_workers: None,
            prefetch: None,
            hold: 1,
            shuffle: false,
            seed: 0,
            drop_last: false,
            ranks: Ranks::default(),
            transport: Transport::Auto,
            strict: false,
            file_dir: None,
            unordered: false,
            persistent_workers: true,
            on_error: OnError::Fail,
            max_errors: MaxErrors::Unlimited,
            timeout: TIMEOUT,
            hold_timeout: HOLD_TIMEOUT,
            max_restarts: None,
            worker_program: None,
            events: Sink::default(),
        }
    }

    /// Adds a step to the pipeline.
    #[must_use]
    pub fn transform(mut self, step: impl Transform + 'static) -> Self {
        self.pipeline = self.pipeline.then(step);
        self
    }

    /// Sets the element type and axis order of the images. The default is `F32`, `Nchw`.
    #[must_use]
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.pipeline = self.pipeline.output(dtype, layout);
        self
    }

    /// Sets the whole pipeline: steps, output and decoding.
    #[must_use]
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = pipeline;
        self
    }

    /// Sets the number of samples in a batch. The default is 32.
    #[must_use]
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = samples;
        self
    }

    /// Sets the number of workers; 0 means one worker thread and no process. The default is the number of processors
    /// that this process may use, divided by `LOCAL_WORLD_SIZE` where that is set.
    #[must_use]
    pub fn num_workers(mut self, workers: usize) -> Self {
        self.num_workers = Some(workers);
        self
    }

    /// Sets how many batches are made ahead, by all workers together. The default is `max(2, 2 x workers / batch_size)`.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    /// Sets how many batches the consumer keeps at a time. The default is 1. Memory is `prefetch + hold` batches.
    #[must_use]
    pub fn hold(mut self, batches: usize) -> Self {
        self.hold = batches;
        self
    }

    /// Sets whether each epoch has an order of its own. The default is the data set's order.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Sets the order to that of a sampler of yours; [`shuffle`](LoaderBuilder::shuffle) then has no effect.
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Some(Arc::new(sampler));
        self
    }

    /// Sets the seed of order and augmentation. The default is 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets whether a last batch that is not full is left out. The default is false.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets which part of each epoch is this process's. The default is all of it.
    #[must_use]
    pub fn ranks(mut self, ranks: Ranks) -> Self {
        self.ranks = ranks;
        self
    }

    /// Sets the kind of memory batches travel in. The default is [`Transport::Auto`].
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets whether memory other than asked for is an error instead of an event. The default is false.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets the directory of [`Transport::File`]. The default is the system's temporary directory.
    #[must_use]
    pub fn file_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.file_dir = Some(directory.as_ref().to_path_buf());
        self
    }

    /// Sets whether batches come as they are complete rather than in order. The default is false. Which samples make a
    /// batch, and their bytes, stay the same.
    #[must_use]
    pub fn unordered(mut self, unordered: bool) -> Self {
        self.unordered = unordered;
        self
    }

    /// Sets whether workers stay when an epoch (or the last of [`Loader::epochs`]) was made. The default is true. Without,
    /// each epoch starts its workers anew, which costs their start and gives back their memory in between.
    #[must_use]
    pub fn persistent_workers(mut self, persistent: bool) -> Self {
        self.persistent_workers = persistent;
        self
    }

    /// Sets what a sample that cannot be made does to its batch. The default is [`OnError::Fail`].
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets how many samples of an epoch may fail before the loader gives up. The default is any number.
    #[must_use]
    pub fn max_errors(mut self, max_errors: MaxErrors) -> Self {
        self.max_errors = max_errors;
        self
    }

    /// Sets how long one sample may take before its worker is killed and replaced. The default is 120 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long the consumer may keep every slab and ask for another before that is an error. The default is 30 s.
    #[must_use]
    pub fn hold_timeout(mut self, timeout: Duration) -> Self {
        self.hold_timeout = timeout;
        self
    }

    /// Sets how many workers may die in a row without one finished chunk between them. The default is 10, or twice the
    /// number of workers if that is more.
    #[must_use]
    pub fn max_restarts(mut self, restarts: u32) -> Self {
        self.max_restarts = Some(restarts);
        self
    }

    /// Sets another program to run as worker processes. Its `main` begins with `forebay::init()`, and it links the data
    /// set and steps in use. The default is this program itself.
    #[must_use]
    pub fn worker_program(mut self, program: impl AsRef<Path>) -> Self {
        self.worker_program = Some(program.as_ref().to_path_buf());
        self
    }

    /// Sends events to `handler`, on the loader's own thread, instead of printing them.
    #[must_use]
    pub fn on_event(mut self, handler: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.events = Sink::new(handler);
        self
    }

    /// Checks everything and starts the workers.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the setting, what it got and what it may be; [`ErrorKind::Limit`] or
    /// [`ErrorKind::SharedMemory`] when the machine does not have what it takes.
    pub fn build(self) -> Result<Loader> {
        let config = self.check()?;
        let size = self.picture_size()?;
        let layout = slab_layout(&self.pipeline, size, config.batch_size)?;
        let sampler = self.sampler.clone().unwrap_or_else(|| self.default_sampler());
        let fingerprint = Fingerprint {
            samples: self.dataset.len(),
            dataset: self.dataset.fingerprint(),
            order: sampler.fingerprint(),
            pipeline: self.pipeline.fingerprint(),
        };
        let plans = Arc::new(Plans {
            sampler: Arc::clone(&sampler),
            seed: self.seed,
            batch_size: config.batch_size,
            ranks: self.ranks,
            drop_last: self.drop_last,
        });
        let launch = match config.transport {
            Transport::InProcess => None,
            _ => Some(launch(self.worker_program.as_deref())?),
        };
        let explained = explain(&self.pipeline, self.dataset.image_size())?;
        let slab_bytes = layout.bytes;
        let len = self.dataset.len();
        let slabs = config.slabs() as usize;
        let setup = Setup::new(layout.clone(), slabs, self.seed, self.pipeline, self.dataset);
        let packed = setup.pack()?;
        config.check_descriptors(packed.tables.len())?;
        let budget = Budget {
            slabs: u64::from(config.slabs()),
            slab_bytes: layout.bytes as u64,
            sample_bytes: layout.fields.iter().map(|field| field.slot_bytes as u64).sum(),
            workers: u64::from(config.num_workers),
            processes: config.transport != Transport::InProcess,
        };
        let (common, control_bytes) = common(&config, launch, packed, slabs)?;
        let shared = Arc::new(Shared::default());
        shared.stats(|stats| {
            stats.control_bytes = control_bytes;
            stats.num_workers = config.num_workers;
            stats.cpus = limits::cpus() as u32;
        });
        let (sender, commands) = crossbeam_channel::unbounded();
        let door = Door::new(sender, common.control.clone(), Arc::clone(&common.host_bell));
        let dataset = setup.dataset;
        let shell = Shell {
            supervisor: Supervisor::new(settings(&config)),
            common,
            pool: Pool::new(Arc::new(layout), config.transport, config.strict, config.file_dir.clone()),
            wanted_slabs: config.slabs(),
            budget,
            sampler,
            dataset: KeyedDataset { len, key: Box::new(move |index| dataset.key(index)) },
            seed: self.seed,
            events: self.events,
            door: door.clone(),
            shared: Arc::clone(&shared),
            commands,
            work: Work::default(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-host".into())
            .spawn(move || shell.run())
            .map_err(|error| Error::io("start the loader's thread", error))?;
        Ok(Loader {
            config,
            plans,
            fingerprint,
            pipeline: explained,
            slab_bytes,
            door,
            shared,
            runs: AtomicU64::new(0),
            thread: Some(thread),
        })
    }

    fn check(&self) -> Result<Config> {
        self.ranks.check()?;
        self.max_errors.check()?;
        let batch_size = config::batch_size(self.batch_size)?;
        let asked = config::num_workers(self.num_workers)?;
        let transport = if asked == 0 { Transport::InProcess } else { self.transport };
        if asked == 0 && !matches!(self.transport, Transport::Auto | Transport::InProcess) {
            let text = format!("num_workers is 0, but transport {} needs worker processes", self.transport);
            return Err(Error::new(ErrorKind::Config, text)
                .with_remedy("set num_workers to 1 or more, or leave the transport at auto"));
        }
        if let (Some(directory), true) = (&self.file_dir, transport == Transport::File)
            && !directory.is_dir()
        {
            return Err(Error::new(ErrorKind::Config, "file_dir is no directory")
                .with_path(directory)
                .with_remedy("create it, or name another"));
        }
        let num_workers = asked.max(1);
        let (prefetch, hold) = config::prefetch(self.prefetch, self.hold, num_workers, batch_size)?;
        for (name, limit) in [("timeout", self.timeout), ("hold_timeout", self.hold_timeout)] {
            if limit.is_zero() {
                return Err(Error::new(ErrorKind::Config, format!("{name} is 0"))
                    .with_remedy(format!("set {name} to the longest time that is still normal")));
            }
        }
        Ok(Config {
            batch_size,
            num_workers,
            prefetch,
            hold,
            transport,
            strict: self.strict,
            file_dir: self.file_dir.clone(),
            unordered: self.unordered,
            persistent_workers: self.persistent_workers,
            on_error: self.on_error,
            max_errors: self.max_errors,
            timeout: self.timeout,
            hold_timeout: self.hold_timeout,
            max_restarts: self.max_restarts.unwrap_or_else(|| num_workers.saturating_mul(2).max(10)),
        })
    }

    /// Returns the size of every output picture.
    fn picture_size(&self) -> Result<Size> {
        self.pipeline.check(Shape::of(self.dataset.image_size()))
    }

    fn default_sampler(&self) -> Arc<dyn Sampler> {
        let len = self.dataset.len();
        if self.shuffle { Arc::new(Shuffle::new(len, self.seed)) } else { Arc::new(Sequential::new(len)) }
    }
}

/// Returns how a pipeline will run, in words.
fn explain(pipeline: &Pipeline, size: Option<(u32, u32)>) -> Result<String> {
    let copy = Pipeline::from_json(&pipeline.to_json()?)?;
    Ok(Compiled::new(copy, Shape::of(size))?.explain())
}

fn slab_layout(pipeline: &Pipeline, size: Size, batch_size: u32) -> Result<SlabLayout> {
    let (height, width) = (size.height as usize, size.width as usize);
    let shape = match pipeline.layout {
        Layout::Nchw => vec![3, height, width],
        Layout::Nhwc => vec![height, width, 3],
    };
    let image = FieldSpec { name: "image".into(), dtype: pipeline.dtype, shape };
    let label = FieldSpec { name: "label".into(), dtype: DType::I64, shape: Vec::new() };
    SlabLayout::new(batch_size as usize, vec![image, label])
}

fn settings(config: &Config) -> Settings {
    Settings {
        workers: config.num_workers,
        slabs: config.slabs(),
        ordered: !config.unordered,
        timeout: config.timeout,
        start_timeout: START_TIMEOUT,
        max_restarts: config.max_restarts,
        on_error: config.on_error,
        max_errors: config.max_errors,
        persistent: config.persistent_workers,
        replaceable: config.transport != Transport::InProcess,
        fall_back: config.transport == Transport::Auto && !config.strict,
    }
}

/// Creates what all workers share; returns it with the bytes of all control segments.
fn common(
    config: &Config,
    launch: Option<crate::worker::Launch>,
    packed: Packed,
    slabs: usize,
) -> Result<(Common, usize)> {
    let batch = config.batch_size as usize;
    let bytes = Control::bytes(slabs, batch)?;
    let host_bell = Arc::new(Doorbell::new()?);
    let workers = config.num_workers as usize;
    let num_workers = config.num_workers;
    let table = Arc::new(SlabTable::default());
    let Some(launch) = launch else {
        let control = Control::new(Arc::new(Mapping::private(bytes)?), slabs, batch)?;
        let processes = None;
        return Ok((
            Common { num_workers, packed, control, host_bell, table, processes },
            bytes + workers * size_of::<WorkerPage>(),
        ));
    };
    let (backing, segment) = control_segment(bytes)?;
    let mapping = Arc::new(segment.map(Access::ReadWrite, true)?);
    // The host's own map was made before the seal, so it alone can write. Files cannot be sealed.
    segment.seal_future_write()?;
    let setup = packed.segment(&backing)?;
    let pages = workers * size_of::<WorkerPage>().next_multiple_of(crate::slab::PAGE);
    let control_bytes = segment.bytes() + setup.bytes() + pages;
    let control = Control::new(mapping, slabs, batch)?;
    let processes = Some(Processes { launch, setup, control: segment, backing });
    Ok((Common { num_workers, packed, control, host_bell, table, processes }, control_bytes))
}

/// Finds memory for control segments, whatever the slabs are made of: it is small, so anything that can be mapped will do.
fn control_segment(bytes: usize) -> Result<(Backing, Segment)> {
    let mut refused: Option<Error> = None;
    for backing in [Backing::Memfd, Backing::Shm, Backing::File(std::env::temp_dir())] {
        match Segment::create(&backing, "control", bytes, &mut |_| Ok(())) {
            Ok(segment) => return Ok((backing, segment)),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused
        .unwrap_or_else(|| Error::new(ErrorKind::SharedMemory, "no shared memory at all"))
        .with_remedy("use --transport in-process: worker threads need no shared memory"))
}
