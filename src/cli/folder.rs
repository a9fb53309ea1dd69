//! Opening a data set's folder, with a word on what a person may not have meant.

use std::path::Path;

use forebay::dataset::ImageFolder;
use forebay::{Error, Result};

use super::console::Console;

/// Opens the folder, and warns of pictures that are not loaded or have no class.
pub(crate) fn open(path: &Path, console: &Console) -> Result<ImageFolder> {
    let folder = ImageFolder::open(path)?;
    let loose = folder.skipped().loose;
    if loose > 0 {
        console.warning(&format_args!(
            "{loose} pictures lie beside the class directories of {} and are not loaded\n  \
             fix: move them into a directory of their class",
            path.display()
        ));
    }
    if folder.classes() == ["."] {
        console.warning(&format_args!(
            "{} has no class directories: all its pictures are of one class, with label 0\n  \
             fix: name the directory above, or make one directory a class",
            path.display()
        ));
    }
    Ok(folder)
}

/// Makes the threads for work on all cores, or works on this thread alone where no more may be started.
///
/// # Errors
/// When not even that can be had.
pub(crate) fn use_all_cores() -> Result<()> {
    let builder = rayon::ThreadPoolBuilder::new;
    builder()
        .build_global()
        .or_else(|_| builder().num_threads(1).use_current_thread().build_global())
        .map_err(|error| Error::new(forebay::ErrorKind::Limit, format!("start threads: {error}")))
}
