//! Samples that failed: counted, shown, and written to the error report where one is wanted.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use forebay::{Error, OnError, Result, SampleError};
use serde::Serialize;

use super::console::Console;

/// So many are shown; a data set with a thousand broken files would push everything else off the screen.
const SHOWN: u64 = 10;

/// Takes in the samples that failed.
pub(crate) struct FailedSamples<'a> {
    console: &'a Console,
    report: Option<(File, &'a Path)>,
    show: bool,
    count: u64,
}

impl<'a> FailedSamples<'a> {
    /// Creates the error report, so that one that cannot be written is known before anything is loaded.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](forebay::ErrorKind::Io) naming the path.
    pub(crate) fn new(path: Option<&'a Path>, on_error: OnError, console: &'a Console) -> Result<Self> {
        let create = |path: &'a Path| match File::create(path) {
            Ok(file) => Ok((file, path)),
            Err(error) => Err(Error::io("cannot create the error report", error).with_path(path)),
        };
        // Where a sample fails its batch, the error in the batch's place is shown.
        let show = on_error != OnError::Fail;
        Ok(FailedSamples { console, report: path.map(create).transpose()?, show, count: 0 })
    }

    /// Returns how many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Takes in some more. Each is in the file when this returns, however the run may end.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](forebay::ErrorKind::Io) when the report cannot be written.
    pub(crate) fn add(&mut self, errors: &[SampleError]) -> Result<()> {
        for error in errors {
            self.count += 1;
            if self.show && self.count <= SHOWN {
                self.console.warning(error);
            } else if self.show && self.count == SHOWN + 1 {
                let rest =
                    if self.report.is_some() { "the report has them all" } else { "see --error-report" };
                self.console.warning(&format_args!("more samples failed, which are not shown; {rest}"));
            }
            if let Some((file, path)) = &mut self.report {
                file.write_all(line(error).as_bytes())
                    .map_err(|error| Error::io("cannot write the error report", error).with_path(path))?;
            }
        }
        Ok(())
    }
}

/// One line of the report.
#[derive(Serialize)]
struct Line<'a> {
    epoch: u64,
    position: u64,
    index: u64,
    key: &'a str,
    kind: &'a str,
    message: &'a str,
    /// The index of the sample in its place, or null.
    substitute: Option<u64>,
}

fn line(error: &SampleError) -> String {
    let SampleError { epoch, position, index, substitute, .. } = *error;
    let (key, kind, message) = (&*error.key, error.kind.name(), &*error.message);
    let line = Line { epoch, position, index, key, kind, message, substitute };
    // Numbers and strings: there is nothing in a line that serde_json refuses.
    serde_json::to_string(&line).expect("a line is plain data") + "\n"
}
