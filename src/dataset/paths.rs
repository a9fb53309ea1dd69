//! Many relative paths at the price of their bytes.

use serde::{Deserialize, Serialize};

/// Paths one after another in one block, with the place where each ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PathTable {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl PathTable {
    pub(super) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Appends the path made of these parts.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len() as u64);
    }

    /// Appends all paths of `other`.
    pub(super) fn append(&mut self, other: &PathTable) {
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns path `index`, or nothing beyond the end (or of a table that was damaged on its way).
    pub(super) fn get(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start as usize..end as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_as_they_went_in() {
        let (mut first, mut second) = (PathTable::default(), PathTable::default());
        first.push(&[b"a/", b"b.jpg"]);
        second.push(&[b"\xff"]);
        second.push(&[b""]);
        first.append(&second);
        assert_eq!(first.iter().collect::<Vec<_>>(), [&b"a/b.jpg"[..], b"\xff", b""]);
        assert_eq!(first.get(3), None);
        assert_eq!(first.get(u64::MAX), None);
    }
}
