//! The messages on the rings: plain words. What a worker sends is checked word by word before it means anything.

use crate::error::{Error, ErrorKind};

/// Changes with any change of what lies in shared memory or travels on rings and sockets.
pub(crate) const LAYOUT_VERSION: u32 = 1;

/// Words of a task message.
pub(crate) const TASK_WORDS: usize = 2;

/// Words of a done message: eight of fixed meaning, the rest is text.
pub(crate) const DONE_WORDS: usize = 64;

const TEXT_WORD: usize = 8;
const TEXT_BYTES: usize = (DONE_WORDS - TEXT_WORD) * 8;

/// Between a message and its remedy in a failure's text.
const REMEDY_MARK: char = '\u{1f}';

/// A chunk: the run of slots of one slab that one worker owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Which slab.
    pub slab: u32,
    /// Which use of the slab.
    pub generation: u32,
    /// First slot.
    pub first: u32,
    /// How many slots.
    pub count: u32,
}

impl Chunk {
    /// Packs it into words.
    pub(crate) fn encode(&self) -> [u64; TASK_WORDS] {
        [pair(self.slab, self.generation), pair(self.first, self.count)]
    }

    /// Unpacks it. Any words make a chunk; whether it is one that was issued is for the receiver to check.
    pub(crate) fn decode(words: &[u64]) -> Self {
        let ((slab, generation), (first, count)) = (split(words[0]), split(words[1]));
        Chunk { slab, generation, first, count }
    }
}

/// Why a sample failed, as it crosses the border.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What kind of error it was in the worker.
    pub kind: ErrorKind,
    /// Its message, cut to what fits.
    pub message: String,
    /// Its remedy, where it had one and it fitted.
    pub remedy: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Failure {
            kind: error.kind(),
            message: error.message().to_owned(),
            remedy: error.remedy().map(str::to_owned),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let error = Error::new(failure.kind, failure.message);
        match failure.remedy {
            Some(remedy) => error.with_remedy(remedy),
            None => error,
        }
    }
}

/// How the slots of a done message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All are filled.
    Filled,
    /// None is filled: the slab was cancelled.
    Cancelled,
    /// The last one failed; those before it are filled.
    Failed(Failure),
}

/// A worker's report on the next slots of its oldest chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The slots it covers.
    pub chunk: Chunk,
    /// How they ended.
    pub outcome: Outcome,
    /// Where the time went.
    pub times: StageTimes,
}

/// What a worker spent on the slots of one done message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageTimes {
    /// Nanoseconds in `Dataset::read`.
    pub read_ns: u64,
    /// Nanoseconds of decoding.
    pub decode_ns: u64,
    /// Nanoseconds of transforming and writing the slots.
    pub transform_ns: u64,
    /// Nanoseconds without a task before this one.
    pub wait_ns: u64,
    /// Bytes that `Dataset::read` delivered.
    pub bytes: u64,
}

impl StageTimes {
    /// Returns the working time in nanoseconds.
    pub(crate) fn work_ns(&self) -> u64 {
        self.read_ns.saturating_add(self.decode_ns).saturating_add(self.transform_ns)
    }
}

impl Done {
    /// Packs it into words. A text that does not fit is cut at a character.
    pub(crate) fn encode(&self) -> [u64; DONE_WORDS] {
        let mut words = [0; DONE_WORDS];
        [words[0], words[1]] = self.chunk.encode();
        let StageTimes { read_ns, decode_ns, transform_ns, wait_ns, bytes } = self.times;
        words[3..TEXT_WORD].copy_from_slice(&[read_ns, decode_ns, transform_ns, wait_ns, bytes]);
        words[2] = match &self.outcome {
            Outcome::Filled => 0,
            Outcome::Cancelled => 1,
            Outcome::Failed(failure) => {
                let text = match &failure.remedy {
                    Some(remedy) => format!("{}{REMEDY_MARK}{remedy}", failure.message),
                    None => failure.message.clone(),
                };
                let length = text.floor_char_boundary(TEXT_BYTES);
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[TEXT_WORD..]);
                bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
                2 | (failure.kind as u64) << 16 | (length as u64) << 32
            }
        };
        words
    }

    /// Unpacks it; `None` for words that no worker of ours writes.
    pub(crate) fn decode(words: &[u64; DONE_WORDS]) -> Option<Self> {
        let (low, length) = split(words[2]);
        let (tag, kind) = (low & 0xffff, (low >> 16) as u16);
        let outcome = match tag {
            0 if kind == 0 && length == 0 => Outcome::Filled,
            1 if kind == 0 && length == 0 => Outcome::Cancelled,
            2 => {
                let bytes: &[u8] = bytemuck::cast_slice(&words[TEXT_WORD..]);
                let text = String::from_utf8_lossy(bytes.get(..length as usize)?);
                let (message, remedy) = match text.split_once(REMEDY_MARK) {
                    Some((message, remedy)) => (message.to_owned(), Some(remedy.to_owned())),
                    None => (text.into_owned(), None),
                };
                Outcome::Failed(Failure { kind: ErrorKind::from_wire(kind)?, message, remedy })
            }
            _ => return None,
        };
        let [read_ns, decode_ns, transform_ns, wait_ns, bytes] = words[3..TEXT_WORD] else { return None };
        let times = StageTimes { read_ns, decode_ns, transform_ns, wait_ns, bytes };
        Some(Done { chunk: Chunk::decode(words), outcome, times })
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn done(outcome: Outcome) -> Done {
        let chunk = Chunk { slab: 3, generation: u32::MAX, first: 7, count: 2 };
        let times = StageTimes { read_ns: 1, decode_ns: 2, transform_ns: 3, wait_ns: 4, bytes: 5 };
        Done { chunk, outcome, times }
    }

    #[test]
    fn every_outcome_survives_the_border() {
        let failure =
            Failure { kind: ErrorKind::Decode, message: "not a JPEG: é".into(), remedy: Some("x".into()) };
        for outcome in [Outcome::Filled, Outcome::Cancelled, Outcome::Failed(failure)] {
            let sent = done(outcome);
            assert_eq!(Done::decode(&sent.encode()), Some(sent));
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let failure = Failure { kind: ErrorKind::Dataset, message: "é".repeat(1000), remedy: None };
        let received = Done::decode(&done(Outcome::Failed(failure)).encode()).unwrap();
        let Outcome::Failed(failure) = received.outcome else { panic!("{received:?}") };
        assert_eq!(failure.message, "é".repeat(TEXT_BYTES / 2));
    }

    proptest! {
        #[test]
        fn hostile_words_never_panic(mut words in prop::collection::vec(any::<u64>(), DONE_WORDS), tag in 0u64..4) {
            let _ = Done::decode(words.as_slice().try_into().unwrap());
            words[2] = words[2] & !0xffff | tag;
            let _ = Done::decode(words.as_slice().try_into().unwrap());
        }
    }
}
