//! Where a program turns into a worker: `init()` in a `main`, or a test of that name in a test program.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::process;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::environment;
use crate::sys::process::{self as os, Executable};

/// Set in a worker's environment: the process id of its host.
pub(super) const VARIABLE: &str = "FOREBAY_WORKER";

/// What `init()` found, kept for the loaders of this program.
static INITIALISED: OnceLock<Result<Arc<Executable>, (String, &'static str)>> = OnceLock::new();

/// What helps where `/proc` is not there.
const PROC_REMEDY: &str =
    "mount /proc, or use worker threads: --transport in-process, .transport(Transport::InProcess)";

/// The line that a program without it has to add.
const REMEDY: &str = "make `forebay::init();` the first line of main(), before any thread starts; \
    or use .transport(Transport::InProcess) for worker threads";

/// Makes this program able to start worker processes. Call it first in `main`, before any thread is started.
///
/// A worker process is the same program again: in it, `init()` serves the host and never returns. Everywhere else it
/// opens the program's own executable (so that a rebuild during the run changes nothing) and returns at once.
///
/// With `#[tokio::main]` the runtime's threads exist before `main`'s first line; write it out instead:
///
/// ```no_run
/// fn main() -> forebay::Result<()> {
///     forebay::init();
///     // tokio::runtime::Runtime::new()?.block_on(async { ... })
///     Ok(())
/// }
/// ```
pub fn init() {
    if std::env::var_os(VARIABLE).is_some() {
        worker_entry();
    }
    INITIALISED.get_or_init(|| match os::thread_count() {
        Ok(count) if count > 1 => {
            Err((format!("forebay::init() was called when {count} threads ran already"), REMEDY))
        }
        Ok(_) => Executable::current().map(Arc::new).map_err(|error| (error.message().into(), PROC_REMEDY)),
        Err(error) => Err((error.message().into(), PROC_REMEDY)),
    });
}

/// Serves the host if this process was started as a worker, and then ends the process; returns at once otherwise.
#[doc(hidden)]
pub fn worker_entry() {
    let Ok(host) = std::env::var(VARIABLE) else { return };
    // What a worker starts itself is not a worker.
    environment::remove_variable(VARIABLE);
    environment::exit(process::serve(host.parse().unwrap_or(0)));
}

/// Registers a test program as able to start workers; see [`test_support!`](crate::test_support).
#[doc(hidden)]
#[derive(Debug)]
pub struct TestSupport {
    /// The module path that holds the entry test.
    pub module: &'static str,
}

inventory::collect!(TestSupport);

/// Makes a test program able to start worker processes, since its `main` is not yours to put `init()` into.
///
/// Write it once, at the top of the test file. It adds a test named `forebay_worker`, which does nothing when it runs
/// as a test; worker processes are this test program again, told to run that test alone.
///
/// # Examples
/// ```no_run
/// forebay::test_support!();
/// ```
#[macro_export]
macro_rules! test_support {
    () => {
        #[test]
        fn forebay_worker() {
            $crate::__private::worker_entry();
        }
        $crate::__private::inventory::submit! {
            $crate::__private::TestSupport { module: module_path!() }
        }
    };
}

/// How to start a worker process.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The program.
    pub program: Arc<Executable>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Finds how to start workers: the given program, this one after `init()`, or a test program with `test_support!()`.
///
/// # Errors
/// [`ErrorKind::Config`] with the line to add when there is no way.
pub(crate) fn launch(program: Option<&Path>) -> Result<Launch> {
    if let Some(path) = program {
        return Ok(Launch { program: Arc::new(Executable::open(path)?), arguments: Vec::new() });
    }
    match INITIALISED.get() {
        Some(Ok(program)) => return Ok(Launch { program: Arc::clone(program), arguments: Vec::new() }),
        Some(Err((reason, remedy))) => {
            return Err(Error::new(ErrorKind::Config, reason.clone()).with_remedy(*remedy));
        }
        None => {}
    }
    let Some(support) = inventory::iter::<TestSupport>.into_iter().next() else {
        return Err(Error::new(
            ErrorKind::Config,
            "worker processes need forebay::init(), and it was not called",
        )
        .with_remedy(format!("{REMEDY}; in tests, write forebay::test_support!();")));
    };
    // libtest names a test by its module path without the crate.
    let test = match support.module.split_once("::") {
        Some((_, inner)) => format!("{inner}::forebay_worker"),
        None => "forebay_worker".to_owned(),
    };
    let arguments = [test.as_str(), "--exact", "--nocapture", "--test-threads=1"].map(OsString::from);
    Ok(Launch { program: Arc::new(Executable::current()?), arguments: arguments.to_vec() })
}
