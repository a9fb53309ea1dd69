//! Where an epoch stands, in a few bytes: enough to go on from there with any number of workers and ranks.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The version of [`State`]'s meaning.
const VERSION: u32 = 1;

/// What an epoch has handed out so far. Plain data: store it with serde, beside the model.
///
/// All ranks that have taken the same number of batches have equal states, so one of them is enough; and the rest of the
/// epoch can be divided among another number of ranks. An unordered epoch's state is its own rank's, as long as `ahead` names
/// batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// The seed of order and augmentation.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The global position from which everything is still to come, but for `ahead`.
    pub position: u64,
    /// With unordered delivery: batches already handed out behind `position`, counted from it. Empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<u64>,
    /// What the batches in `ahead` were cut to: batch size, number of ranks, rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<(u32, u32, u32)>,
    /// What the data set, the order and the pipeline were.
    pub fingerprint: Fingerprint,
}

/// What a checkpoint belongs to. A mismatch names the part that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Samples in the data set.
    pub samples: u64,
    /// Its content, as far as the data set knows it.
    pub dataset: u64,
    /// The order of samples.
    pub order: u64,
    /// The pipeline, and the version of what it computes.
    pub pipeline: u64,
}

impl State {
    pub(super) fn new(seed: u64, epoch: u64, position: u64, fingerprint: Fingerprint) -> Self {
        State { version: VERSION, seed, epoch, position, ahead: Vec::new(), cut: None, fingerprint }
    }

    /// Checks that it belongs to a loader of that seed, batch cut and fingerprint.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming what differs, and both values.
    pub(super) fn check(&self, seed: u64, cut: (u32, u32, u32), fingerprint: &Fingerprint) -> Result<()> {
        let theirs = &self.fingerprint;
        let parts = [
            ("format version", u64::from(self.version), u64::from(VERSION)),
            ("seed", self.seed, seed),
            ("number of samples", theirs.samples, fingerprint.samples),
            ("data set", theirs.dataset, fingerprint.dataset),
            ("order", theirs.order, fingerprint.order),
            ("pipeline", theirs.pipeline, fingerprint.pipeline),
        ];
        for (what, theirs, ours) in parts {
            if theirs != ours {
                let show = |value: u64| match what {
                    "data set" | "order" | "pipeline" => format!("{value:016x}"),
                    _ => value.to_string(),
                };
                let (theirs, ours) = (show(theirs), show(ours));
                return Err(Error::new(
                    ErrorKind::Config,
                    format!("the checkpoint's {what} is {theirs}, this loader's is {ours}"),
                )
                .with_remedy(format!(
                    "build the loader with the {what} of the run that wrote the checkpoint"
                )));
            }
        }
        match self.cut {
            Some(theirs) if !self.ahead.is_empty() && theirs != cut => {
                let show = |(batch, ranks, rank): (u32, u32, u32)| {
                    format!("batches of {batch}, rank {rank} of {ranks}")
                };
                let (theirs, ours) = (show(theirs), show(cut));
                Err(Error::new(
                    ErrorKind::Config,
                    format!("the checkpoint of an unordered epoch is of {theirs}, this loader's are {ours}"),
                )
                .with_remedy("resume it with the same batch_size and ranks, or checkpoint ordered epochs"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: Fingerprint = Fingerprint { samples: 10, dataset: 1, order: 2, pipeline: 3 };

    #[test]
    fn a_mismatch_names_the_part_and_both_values() {
        let state = State::new(7, 1, 64, FINGERPRINT);
        state.check(7, (8, 1, 0), &FINGERPRINT).unwrap();
        let error = state.check(8, (8, 1, 0), &FINGERPRINT).unwrap_err();
        assert!(error.message().contains("seed is 7, this loader's is 8"), "{error}");
        let other = Fingerprint { pipeline: 255, ..FINGERPRINT };
        let error = state.check(7, (8, 1, 0), &other).unwrap_err();
        assert!(error.message().contains("pipeline is 0000000000000003"), "{error}");
        assert!(error.message().contains("00000000000000ff"), "{error}");
    }

    #[test]
    fn an_unordered_window_is_bound_to_its_cut() {
        let mut state = State::new(7, 1, 64, FINGERPRINT);
        state.cut = Some((8, 2, 1));
        state.check(7, (8, 3, 1), &FINGERPRINT).unwrap();
        state.ahead = vec![2];
        assert_eq!(state.check(7, (8, 3, 1), &FINGERPRINT).unwrap_err().kind(), ErrorKind::Config);
        state.check(7, (8, 2, 1), &FINGERPRINT).unwrap();
        assert!(state.check(7, (8, 2, 0), &FINGERPRINT).is_err(), "it is another rank's");
    }

    #[test]
    fn it_is_a_few_bytes_and_survives_json() {
        let state = State::new(u64::MAX, 90, 1 << 40, FINGERPRINT);
        let text = serde_json::to_string(&state).unwrap();
        assert!(text.len() < 200, "{text}");
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }
}
