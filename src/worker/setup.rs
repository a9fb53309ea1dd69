//! What every worker of a loader is told before its first task, and how it checks that it understood.

use std::os::fd::AsFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::protocol::LAYOUT_VERSION;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use crate::slab::SlabLayout;
use crate::sys::segment::{Backing, Segment};
use crate::sys::shared;
use crate::transform::Pipeline;

/// Tells one build of the library from another as far as shared memory and randomness are concerned.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// The plain data of a loader that its workers need.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    build: String,
    layout_version: u32,
    /// Size and fields of a slab.
    pub layout: SlabLayout,
    /// How many slabs there are.
    pub slabs: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// How samples become slots.
    pub pipeline: Pipeline,
    /// Where samples come from.
    pub dataset: Box<dyn Dataset>,
}

/// A [`Setup`] as text, with the segments that its tables lie in.
#[derive(Debug)]
pub(crate) struct Packed {
    /// JSON.
    pub text: String,
    /// What `Shared` tables refer to by number.
    pub tables: Vec<Arc<Segment>>,
}

impl Setup {
    /// Creates the setup of this build.
    pub(crate) fn new(
        layout: SlabLayout,
        slabs: usize,
        seed: u64,
        pipeline: Pipeline,
        dataset: Box<dyn Dataset>,
    ) -> Self {
        Setup { build: BUILD.into(), layout_version: LAYOUT_VERSION, layout, slabs, seed, pipeline, dataset }
    }

    /// Packs it for workers, and checks that it comes out of the package unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a data set or a step does not survive serialisation.
    pub(crate) fn pack(&self) -> Result<Packed> {
        let (text, tables) = shared::exporting(|| serde_json::to_string(self));
        let text = text.map_err(|error| {
            Error::new(ErrorKind::Config, format!("the data set or a step cannot be serialised: {error}"))
                .with_remedy("give it #[derive(Serialize, Deserialize)] and #[typetag::serde]")
                .with_source(error)
        })?;
        let packed = Packed { text, tables };
        packed.unpack(&packed.tables)?;
        Ok(packed)
    }

    /// Returns whether it is of this build.
    fn check(&self) -> Result<()> {
        if self.build == BUILD && self.layout_version == LAYOUT_VERSION {
            return Ok(());
        }
        let theirs = format!("{} (layout {})", self.build, self.layout_version);
        Err(Error::new(
            ErrorKind::Config,
            format!("the worker is {BUILD} (layout {LAYOUT_VERSION}), the host {theirs}"),
        )
        .with_remedy("rebuild the worker program with the host's version of forebay"))
    }
}

impl Packed {
    /// Unpacks a setup and compares what came out with what went in.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is of another build, names a type this program does not know, or changes on the way.
    pub(crate) fn unpack(&self, tables: &[Arc<Segment>]) -> Result<Setup> {
        let setup: Setup =
            shared::importing(tables.to_vec(), || serde_json::from_str(&self.text)).map_err(|error| {
                Error::new(
                    ErrorKind::Config,
                    format!("a worker cannot rebuild the data set or pipeline: {error}"),
                )
                .with_remedy(
                    "give each data set and step #[typetag::serde], in a crate that the worker program links",
                )
                .with_source(error)
            })?;
        setup.check()?;
        let (again, _) = shared::exporting(|| serde_json::to_string(&setup));
        if again.as_deref().ok() != Some(self.text.as_str()) {
            let (sent, got) = difference(&self.text, again.as_deref().unwrap_or(""));
            return Err(Error::new(
                ErrorKind::Config,
                format!("the data set or a step changes in serialisation: {sent:?} came back as {got:?}"),
            )
            .with_remedy(
                "serialise every field that matters (no #[serde(skip)] on state that read or apply needs)",
            ));
        }
        Ok(setup)
    }

    /// Writes the text to a read-only segment.
    ///
    /// # Errors
    /// When no segment can be had.
    pub(crate) fn segment(&self, backing: &Backing) -> Result<Segment> {
        let segment = Segment::create(backing, "setup", self.text.len().max(1), &mut |_| Ok(()))?;
        segment.write_at(self.text.as_bytes(), 0)?;
        segment.seal_all()?;
        let _ = segment.as_fd();
        Ok(segment)
    }
}

/// Returns the two texts from where they differ, cut to a few words.
fn difference<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let cut = |text: &'a str| {
        let from = text.floor_char_boundary(same.saturating_sub(20).min(text.len()));
        let to = text.floor_char_boundary((same + 40).min(text.len()));
        &text[from..to]
    };
    (cut(a), cut(b))
}
