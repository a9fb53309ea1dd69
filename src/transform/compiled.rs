//! A pipeline in the form that runs.

use std::time::Instant;

use crate::decode::{Decoded, Decoder, Rect, Request, Size, Source};
use crate::error::{Error, ErrorKind, Result};

use super::apply::occurrence;
use super::finish::Finisher;
use super::{Pipeline, Sample, SampleKey, SampleRng, Shape};

/// A pipeline that runs: one for each worker, with its buffers.
#[derive(Debug)]
pub struct Compiled {
    pipeline: Pipeline,
    size: Size,
    /// For each step, how many of the same type stand before it.
    occurrences: Vec<usize>,
    decoder: Decoder,
    sample: Sample,
    finisher: Finisher,
}

/// What [`Compiled::run`] tells about a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processed {
    /// The label, as the steps left it.
    pub label: i64,
    /// Nanoseconds that header and pixels took to decode.
    pub decode_ns: u64,
    /// Nanoseconds that the steps and the last pass took.
    pub transform_ns: u64,
}

impl Compiled {
    /// Checks a pipeline and prepares it to run.
    ///
    /// # Errors
    /// As [`Pipeline::check`] and [`Decoder::new`].
    pub fn new(pipeline: Pipeline, input: Shape) -> Result<Self> {
        let size = pipeline.check(input)?;
        let occurrences = (0..pipeline.steps.len()).map(|n| occurrence(&pipeline.steps, n)).collect();
        let finisher = Finisher::new(pipeline.dtype, pipeline.layout);
        let decoder = Decoder::new(&pipeline.decode)?;
        Ok(Compiled { decoder, pipeline, size, occurrences, sample: Sample::default(), finisher })
    }

    /// Returns the pipeline it was made from.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the size of every output picture.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the bytes of one output picture.
    pub fn sample_bytes(&self) -> usize {
        self.pipeline.sample_bytes(self.size)
    }

    /// Returns in a few lines how it runs: which part of a picture is decoded and why, and the steps.
    pub fn explain(&self) -> String {
        let names: Vec<_> = self.pipeline.steps.iter().map(|step| step.typetag_name()).collect();
        let root = SampleRng::root(SampleKey::new(0, 0, 0));
        // Any size will do that is larger than what crops leave of it.
        let full = Size::new(1 << 14, 1 << 14);
        let asks = |from: usize| {
            self.request_from(from, full, &root).is_some_and(|request| request.region != Rect::whole(full))
        };
        let decode = match (0..names.len()).find(|from| asks(*from)) {
            Some(0) => "only the part that the crop needs".to_owned(),
            Some(from) => format!("full image, because {} precedes {}", names[from - 1], names[from]),
            None => "full image, since no step crops it".to_owned(),
        };
        let Pipeline { dtype, layout, .. } = &self.pipeline;
        format!("decode: {decode}\nsteps: {}\noutput: {dtype} {layout}, in one last pass", names.join(", "))
    }

    /// Returns what the steps will use of a picture of size `full`, if they can tell before it is decoded.
    pub fn request(&self, full: Size, key: SampleKey) -> Option<Request> {
        self.request_from(0, full, &SampleRng::root(key))
    }

    /// As [`request`](Compiled::request), for the steps from `number` on: what a later step asks for, seen through this
    /// step, or else what this one asks for.
    fn request_from(&self, number: usize, input: Size, root: &SampleRng) -> Option<Request> {
        let step = self.pipeline.steps.get(number)?;
        if let Ok(Shape::Fixed(output)) = step.shape(Shape::Fixed(input))
            && step.source_region(input, Rect::whole(output)).is_some()
            && let Some(later) = self.request_from(number + 1, output, root)
            && let Some(region) = step.source_region(input, later.region)
        {
            return Some(Request { region, target: region.size() });
        }
        step.request(input, &mut self.rng(number, root))
    }

    fn rng(&self, number: usize, root: &SampleRng) -> SampleRng {
        root.child(self.pipeline.steps[number].typetag_name(), self.occurrences[number])
    }

    /// Decodes a sample, runs the steps and writes the result to `out`.
    ///
    /// The bytes depend on the pipeline, `source`, `label` and `key` only. On an error `out` is unspecified.
    ///
    /// # Errors
    /// As [`Decoder::header`], [`Decoder::decode`] and the steps; [`ErrorKind::Transform`] if `out` does not have
    /// [`sample_bytes`](Compiled::sample_bytes) bytes.
    pub fn run(
        &mut self,
        source: Source<'_>,
        label: i64,
        key: SampleKey,
        out: &mut [u8],
    ) -> Result<Processed> {
        let start = Instant::now();
        let decoded = self.decode(source, label, key)?;
        let between = Instant::now();
        let label = self.finish(decoded, key, out)?;
        let nanos = |from: Instant, to: Instant| to.duration_since(from).as_nanos() as u64;
        Ok(Processed {
            label,
            decode_ns: nanos(start, between),
            transform_ns: nanos(between, Instant::now()),
        })
    }

    fn decode(&mut self, source: Source<'_>, label: i64, key: SampleKey) -> Result<Decoded> {
        match source {
            Source::Encoded(bytes) => {
                let header = self.decoder.header(bytes)?;
                let request = self.request(header.full, key);
                self.decoder.decode(bytes, &header, request.as_ref(), self.sample.begin(label))
            }
            Source::Rgb8 { width, height, pixels } => {
                let full = Size::new(width, height);
                if full.pixels() == 0 || pixels.len() as u64 != full.pixels() * 3 {
                    let text = format!("{} bytes for an RGB picture of {width}x{height}", pixels.len());
                    return Err(Error::new(ErrorKind::Decode, text));
                }
                let image = self.sample.begin(label);
                (image.width, image.height) = (width, height);
                image.pixels.clear();
                image.pixels.extend_from_slice(pixels);
                Ok(Decoded { full, covers: Rect::whole(full) })
            }
        }
    }

    /// Runs the steps on what was decoded into the sample's image, and writes the result to `out`. Returns the label.
    fn finish(&mut self, decoded: Decoded, key: SampleKey, out: &mut [u8]) -> Result<i64> {
        if out.len() != self.sample_bytes() {
            let text = format!("a slot of {} bytes for a sample of {}", out.len(), self.sample_bytes());
            return Err(Error::new(ErrorKind::Transform, text));
        }
        self.sample.decoded(decoded);
        let root = SampleRng::root(key);
        for number in 0..self.pipeline.steps.len() {
            let mut rng = self.rng(number, &root);
            self.pipeline.steps[number].apply(&mut self.sample, &mut rng)?;
        }
        self.finisher.write(&mut self.sample, self.size, out)?;
        Ok(self.sample.label())
    }
}
