//! Many relative paths at the price of their bytes.

use serde::{Deserialize, Serialize};

use crate::Shared;
use crate::error::Result;

/// Paths one after another in one block, with the place where each ends: a table in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct PathList {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl PathList {
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
    pub(super) fn append(&mut self, other: &PathList) {
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| path(&self.bytes, &self.ends, index))
    }

    /// Moves the paths to where all workers see them.
    pub(super) fn share(self) -> Result<PathTable> {
        Ok(PathTable { bytes: Shared::from_vec(self.bytes)?, ends: Shared::from_vec(self.ends)? })
    }
}

/// A finished list of paths, which worker processes map instead of receiving a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PathTable {
    bytes: Shared<[u8]>,
    ends: Shared<[u64]>,
}

impl PathTable {
    pub(super) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns path `index`, or nothing beyond the end.
    pub(super) fn get(&self, index: u64) -> Option<&[u8]> {
        path(&self.bytes, &self.ends, index)
    }
}

fn path<'a>(bytes: &'a [u8], ends: &[u64], index: u64) -> Option<&'a [u8]> {
    let index = usize::try_from(index).ok()?;
    let end = *ends.get(index)?;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    bytes.get(start as usize..end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared::{exporting, importing};

    #[test]
    fn paths_come_back_as_they_went_in() {
        let (mut first, mut second) = (PathList::default(), PathList::default());
        first.push(&[b"a/", b"b.jpg"]);
        second.push(&[b"\xff"]);
        second.push(&[b""]);
        first.append(&second);
        assert_eq!(first.iter().collect::<Vec<_>>(), [&b"a/b.jpg"[..], b"\xff", b""]);
        let table = first.share().unwrap();
        assert_eq!((table.len(), table.get(0), table.get(2)), (3, Some(&b"a/b.jpg"[..]), Some(&b""[..])));
        assert_eq!(table.get(3), None);
        assert_eq!(table.get(u64::MAX), None);
    }

    #[test]
    fn a_large_table_goes_to_workers_as_references() {
        let mut list = PathList::default();
        for number in 0..20_000 {
            list.push(&[b"class/", format!("{number:08}.jpg").as_bytes()]);
        }
        let table = list.share().unwrap();
        let (text, segments) = exporting(|| serde_json::to_string(&table).unwrap());
        assert!(text.len() < 300 && segments.len() == 2, "{} segments, {} bytes", segments.len(), text.len());
        let back: PathTable = importing(segments, || serde_json::from_str(&text).unwrap());
        assert_eq!(back.len(), 20_000);
        assert_eq!(back.get(19_999), Some(&b"class/00019999.jpg"[..]));
    }
}
