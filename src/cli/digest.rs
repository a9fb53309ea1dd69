//! A SHA-256 of what was loaded. It depends on positions and not on arrival, so runs in any order agree.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The digest of one epoch or one batch, in the making.
///
/// It is SHA-256 over the samples' hashes by ascending position; a sample's hash is SHA-256 over its index (u64,
/// little endian), label (i64, little endian), validity (one byte, 0 or 1) and pixels as they lie in the batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    samples: Vec<(u64, [u8; 32])>,
}

impl Digest {
    /// Adds one sample, in any order.
    pub(crate) fn add(&mut self, position: u64, index: u64, label: i64, valid: bool, pixels: &[u8]) {
        let hash = Sha256::new()
            .chain_update(index.to_le_bytes())
            .chain_update(label.to_le_bytes())
            .chain_update([u8::from(valid)])
            .chain_update(pixels)
            .finalize();
        self.samples.push((position, hash.into()));
    }

    /// Adds the samples of another digest.
    pub(crate) fn merge(&mut self, other: &Digest) {
        self.samples.extend_from_slice(&other.samples);
    }

    /// Returns the digest of what was added.
    pub(crate) fn finish(mut self) -> Sealed {
        self.samples.sort_unstable_by_key(|&(position, _)| position);
        let mut whole = Sha256::new();
        for (_, hash) in &self.samples {
            whole.update(hash);
        }
        Sealed { samples: self.samples.len() as u64, sha256: whole.finalize().into() }
    }
}

/// A finished digest; prints as `samples N sha256 HEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) samples: u64,
    sha256: [u8; 32],
}

impl Sealed {
    /// Returns the digest as 64 lower-case hexadecimal digits.
    pub(crate) fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "samples {} sha256 {}", self.samples, self.hex())
    }
}

/// Returns the line of an epoch.
pub(crate) fn epoch_line(epoch: u64, digest: &Sealed) -> String {
    format!("epoch {epoch} {digest}")
}

/// Returns the line of a batch.
pub(crate) fn batch_line(epoch: u64, batch: u64, digest: &Sealed) -> String {
    format!("epoch {epoch} batch {batch} {digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(samples: &[(u64, u64, i64, bool, &[u8])]) -> Sealed {
        let mut digest = Digest::default();
        for &(position, index, label, valid, pixels) in samples {
            digest.add(position, index, label, valid, pixels);
        }
        digest.finish()
    }

    #[test]
    fn arrival_does_not_matter_and_position_does() {
        let (a, b) = ((0, 7, 1, true, &b"ab"[..]), (1, 3, 2, true, &b"cd"[..]));
        assert_eq!(digest(&[a, b]), digest(&[b, a]));
        assert_ne!(digest(&[a, b]), digest(&[(1, a.1, a.2, a.3, a.4), (0, b.1, b.2, b.3, b.4)]));
    }

    #[test]
    fn each_part_of_a_sample_matters() {
        let base = digest(&[(0, 1, 2, true, b"x")]);
        for other in
            [(0, 9, 2, true, b"x"), (0, 1, 9, true, b"x"), (0, 1, 2, false, b"x"), (0, 1, 2, true, b"y")]
        {
            assert_ne!(base, digest(&[(other.0, other.1, other.2, other.3, other.4)]));
        }
    }

    /// By Python's hashlib: sha256(sha256(pack("<qqB", 5, -1, 1) + b"abc")), and sha256(b"").
    #[test]
    fn the_bytes_are_as_documented() {
        assert_eq!(
            epoch_line(3, &digest(&[(9, 5, -1, true, b"abc")])),
            "epoch 3 samples 1 sha256 cd31a7b22ecdfa4ec5ac891d36689651a614366f38b98f30e97580a5d67c1d46"
        );
        let none = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(batch_line(0, 2, &digest(&[])), format!("epoch 0 batch 2 samples 0 sha256 {none}"));
    }

    #[test]
    fn batches_merge_into_their_epoch() {
        let mut one = Digest::default();
        one.add(4, 1, 0, true, b"x");
        let mut epoch = Digest::default();
        epoch.add(2, 8, 0, true, b"y");
        epoch.merge(&one);
        assert_eq!(epoch.finish(), digest(&[(2, 8, 0, true, b"y"), (4, 1, 0, true, b"x")]));
    }
}
