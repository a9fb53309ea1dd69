//! A data set with one broken file, put together from those in the repository.

use std::fs;
use std::path::Path;

/// The broken file's path in the folder.
pub(crate) const BROKEN: &str = "city/noise.jpg";

/// Samples in the folder, the broken one included.
pub(crate) const SAMPLES: usize = 31;

/// Returns a folder of three classes of `datasets/tiny` and one file that is no picture.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let datasets = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets");
    for class in ["animal", "city", "land"] {
        fs::create_dir(folder.path().join(class)).unwrap();
        for file in fs::read_dir(datasets.join("tiny").join(class)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.path().join(class).join(file.file_name())).unwrap();
        }
    }
    fs::copy(datasets.join("broken/wrong/noise.jpg"), folder.path().join(BROKEN)).unwrap();
    folder
}
