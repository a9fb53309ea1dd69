//! A data set of your own: all pictures in one file, with an index that worker processes share.
//!
//! `cargo run --release --example custom_dataset [DATA]` (default: `datasets/tiny`)
//!
//! Packs the folder into a temporary file first, so that there is something to read. Your package needs `serde` (with
//! `derive`) and `typetag` beside `forebay`.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use forebay::dataset::WorkerInfo;
use forebay::prelude::*;
use forebay::{Error, ErrorKind, Result, Shared};
use serde::{Deserialize, Serialize};

/// Encoded pictures, one behind the other in one file.
#[derive(Debug, Serialize, Deserialize)]
struct PackFile {
    path: PathBuf,
    /// Where sample *i* begins, and behind the last one the end. `Shared`: ten million offsets cost 80 MB once, not once
    /// a worker.
    offsets: Shared<[u64]>,
    labels: Shared<[i64]>,
    /// Opened by each worker for itself.
    #[serde(skip)]
    file: Option<File>,
}

impl PackFile {
    /// Writes every picture of a folder to `path`.
    fn pack(folder: &mut ImageFolder, path: &Path) -> Result<Self> {
        let mut file = File::create(path)?;
        let mut record = Record::default();
        let (mut offsets, mut labels) = (vec![0], Vec::new());
        for index in 0..folder.len() {
            record.clear();
            folder.read(index, &mut record)?;
            file.write_all(&record.bytes)?;
            offsets.push(offsets[index as usize] + record.bytes.len() as u64);
            labels.push(record.label);
        }
        let (offsets, labels) = (Shared::from_vec(offsets)?, Shared::from_vec(labels)?);
        Ok(PackFile { path: path.to_owned(), offsets, labels, file: None })
    }
}

#[typetag::serde] // makes the type known to this program, and so to its worker processes
impl Dataset for PackFile {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    /// Runs once in each worker: the place for file handles and connections, which do not travel.
    fn start(&mut self, _: &WorkerInfo) -> Result<()> {
        let file = File::open(&self.path).map_err(|error| Error::io("cannot open the pack", error))?;
        self.file = Some(file);
        Ok(())
    }

    /// Hands over encoded bytes; decoding is not its job. What fails here is an error of this one sample.
    fn read(&mut self, index: u64, record: &mut Record) -> Result<()> {
        let at = index as usize;
        let (Some(file), Some(&[begin, end])) =
            (&self.file, self.offsets.get(at..at + 2).and_then(|two| two.as_array()))
        else {
            return Err(Error::new(ErrorKind::Dataset, format!("there is no sample {index}")));
        };
        record.bytes.resize((end - begin) as usize, 0); // the allocation is kept from sample to sample
        file.read_exact_at(&mut record.bytes, begin)?;
        record.label = self.labels[at];
        Ok(())
    }

    /// What messages call the sample.
    fn key(&self, index: u64) -> String {
        format!("{}#{index}", self.path.display())
    }
}

fn main() -> Result<()> {
    forebay::init();
    let data = std::env::args().nth(1).unwrap_or_else(|| "datasets/tiny".into());
    let path = std::env::temp_dir().join(format!("forebay-example-{}.pack", std::process::id()));
    let result = ImageFolder::open(data).and_then(|mut folder| load(PackFile::pack(&mut folder, &path)?));
    std::fs::remove_file(&path)?;
    result
}

fn load(pack: PackFile) -> Result<()> {
    let bytes = pack.offsets.last().copied().unwrap_or_default();
    println!("packed {} pictures, {:.1} MB", pack.len(), bytes as f64 / 1e6);
    let loader = Loader::builder(pack)
        .pipeline(Pipeline::eval(224))
        .batch_size(16)
        .num_workers(2)
        .shuffle(true)
        .build()?;
    for batch in loader.epoch(0) {
        let batch = batch?;
        println!("batch {}: {:?}, labels {:?}", batch.step(), batch.shape(), batch.labels());
    }
    println!("{}", loader.stats());
    Ok(())
}
