//! Starting worker processes, watching and ending them.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

pub use super::own::{bind_to_parent, close_descriptors_except, offer_to_oom_killer, set_name, thread_count};
use super::{poll, signals};
use crate::error::{Error, ErrorKind, Result};

/// A program file held open, so that what is started later is this file, whatever lies under its name by then.
#[derive(Debug)]
pub struct Executable {
    fd: OwnedFd,
    /// `/proc/self/fd/N`, which the child resolves before the descriptor closes on exec.
    path: CString,
    /// What the process list shows as the first argument.
    name: CString,
}

impl Executable {
    /// Holds the program that runs now.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], mostly because `/proc` is not mounted.
    pub fn current() -> Result<Executable> {
        let name = std::env::args_os().next().unwrap_or_else(|| "forebay".into());
        Executable::hold(Path::new("/proc/self/exe"), &name)
    }

    /// Holds another program: a binary, since a script would need its descriptor after exec.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it is not there.
    pub fn open(path: &Path) -> Result<Executable> {
        Executable::hold(path, path.as_os_str())
    }

    fn hold(path: &Path, name: &OsStr) -> Result<Executable> {
        let failed = |errno: Errno| Error::io("open the worker's program", errno.into()).with_path(path);
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        // Above the standard streams, which the child replaces before it resolves the path.
        let fd = rustix::io::fcntl_dupfd_cloexec(&fd, 3).map_err(failed)?;
        let path = c_string(OsString::from(format!("/proc/self/fd/{}", fd.as_raw_fd())))?;
        Ok(Executable { fd, path, name: c_string(name.to_owned())? })
    }
}

impl AsFd for Executable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A started process, watched by a descriptor that no other process can ever stand behind.
///
/// Dropping it kills and reaps the process, if it was not reaped before.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It returned or called exit.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// Which one.
        number: i32,
        /// Whether a core file was written.
        core: bool,
    },
    /// Somebody else in this process reaped it first.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal { number, core } => {
                match signals::name(number) {
                    Some(name) => write!(f, "killed by {name}")?,
                    None => write!(f, "killed by signal {number}")?,
                }
                f.write_str(if core { " (core dumped)" } else { "" })
            }
            Exit::Unknown => {
                f.write_str("ended; how is unknown, since another part of the program waited for it")
            }
        }
    }
}

/// Starts a program: `args` after its name, `set_env` on top of this process's environment, `stdin` as standard input,
/// standard output joined to standard error, or both to `output`, no signal blocked.
///
/// The death signal of [`bind_to_parent`] follows the calling *thread*: start workers from one that lives long enough.
///
/// # Errors
/// [`ErrorKind::Limit`] when no further process may be started, [`ErrorKind::Io`] otherwise.
pub fn spawn(
    exe: &Executable,
    args: &[OsString],
    set_env: &[(&str, &str)],
    stdin: BorrowedFd<'_>,
    output: Option<BorrowedFd<'_>>,
) -> Result<Child> {
    let argv = args.iter().map(|arg| c_string(arg.clone())).collect::<Result<Vec<_>>>()?;
    let envp = environment(set_env)?;
    let argv = pointers(std::iter::once(exe.name.as_c_str()).chain(argv.iter().map(CString::as_c_str)));
    let envp = pointers(envp.iter().map(CString::as_c_str));
    let actions = Actions::for_worker(stdin, output)?;
    let attributes = Attributes::for_worker()?;
    let mut pid: libc::pid_t = 0;
    // SAFETY: both arrays end with null and point to strings that live until the end of this function; actions and
    // attributes are initialised; the call copies what it needs before it returns.
    let rc = unsafe {
        libc::posix_spawn(
            &mut pid,
            exe.path.as_ptr(),
            &actions.0,
            &attributes.0,
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    if rc != 0 {
        return Err(spawn_error(rc));
    }
    let pid =
        Pid::from_raw(pid).ok_or_else(|| Error::new(ErrorKind::Io, "posix_spawn returned no process"))?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Child { pid, pidfd, exit: None }),
        Err(errno) => {
            // Unwatched it must not stay; nobody has reaped it yet, so the number is still its own.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(Error::io("pidfd_open", errno.into()))
        }
    }
}

fn spawn_error(rc: i32) -> Error {
    let source = io::Error::from_raw_os_error(rc);
    match rc {
        libc::EAGAIN => {
            Error::new(ErrorKind::Limit, "no further process may be started (RLIMIT_NPROC or pids limit)")
                .with_source(source)
                .with_remedy("docker run --pids-limit=4096 | ulimit -u 4096 | fewer workers")
        }
        libc::ENOMEM => Error::new(ErrorKind::Limit, "no memory to start a further process")
            .with_source(source)
            .with_remedy("fewer workers, or a higher memory limit"),
        _ => Error::io("start a worker process", source),
    }
}

fn c_string(text: OsString) -> Result<CString> {
    CString::new(text.into_vec())
        .map_err(|_| Error::new(ErrorKind::Config, "an argument of a worker holds a zero byte"))
}

/// Returns the environment of this process with some variables set, as `NAME=value`.
fn environment(set: &[(&str, &str)]) -> Result<Vec<CString>> {
    let kept = std::env::vars_os().filter(|(name, _)| !set.iter().any(|(new, _)| name == new));
    let added = set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    kept.chain(added)
        .map(|(mut pair, value)| {
            pair.push("=");
            pair.push(value);
            c_string(pair)
        })
        .collect()
}

/// Returns the null-terminated array that C wants of these strings, which must outlive it.
fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*mut libc::c_char> {
    strings.map(|string| string.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

fn check(call: &str, rc: i32) -> Result<()> {
    if rc == 0 { Ok(()) } else { Err(Error::io(call, io::Error::from_raw_os_error(rc))) }
}

/// What the child does to its descriptors before exec.
struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn for_worker(stdin: BorrowedFd<'_>, output: Option<BorrowedFd<'_>>) -> Result<Actions> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: `raw` is a live local of the right type, which the call initialises.
        check("posix_spawn_file_actions_init", unsafe {
            libc::posix_spawn_file_actions_init(raw.as_mut_ptr())
        })?;
        // SAFETY: the call above succeeded.
        let mut actions = Actions(unsafe { raw.assume_init() });
        actions.dup2(stdin.as_raw_fd(), 0)?;
        if let Some(output) = output {
            actions.dup2(output.as_raw_fd(), 2)?;
        } else if rustix::io::fcntl_getfd(io::stderr()).is_err() {
            actions.open_null(2)?;
        }
        actions.dup2(2, 1)?;
        Ok(actions)
    }

    fn dup2(&mut self, from: RawFd, to: RawFd) -> Result<()> {
        // SAFETY: the actions are initialised; the numbers are looked at in the child only.
        check("adddup2", unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) })
    }

    fn open_null(&mut self, to: RawFd) -> Result<()> {
        let path = c"/dev/null".as_ptr();
        // SAFETY: the actions are initialised; the path is a static C string.
        check("addopen", unsafe {
            libc::posix_spawn_file_actions_addopen(&mut self.0, to, path, libc::O_RDWR, 0)
        })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `for_worker`, destroyed only here.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

/// The signal state the child starts with.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn for_worker() -> Result<Attributes> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: `raw` is a live local of the right type, which the call initialises.
        check("posix_spawnattr_init", unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: the call above succeeded.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let none = signals::set_of(&[]);
        // SAFETY: both are initialised; the set is copied.
        check("setsigmask", unsafe { libc::posix_spawnattr_setsigmask(&mut attributes.0, &none) })?;
        // Rust ignores SIGPIPE, and a host may ignore any of these; ignored signals stay so across exec.
        let default = signals::set_of(&[
            libc::SIGPIPE,
            libc::SIGCHLD,
            libc::SIGABRT,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
        ]);
        // SAFETY: both are initialised; the set is copied.
        check("setsigdefault", unsafe { libc::posix_spawnattr_setsigdefault(&mut attributes.0, &default) })?;
        let flags = (libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF) as libc::c_short;
        // SAFETY: the attributes are initialised.
        check("setflags", unsafe { libc::posix_spawnattr_setflags(&mut attributes.0, flags) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `for_worker`, destroyed only here.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

impl Child {
    /// Returns the process id, for messages.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Returns the descriptor that becomes readable when the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends SIGKILL. That the process has ended already is no error; that it has ended now is not said.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it may not be sent.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends a signal. That the process has ended already is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it may not be sent.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(Error::io(format!("signal process {}", self.id()), errno.into())),
        }
    }

    /// Returns how it ended, if it has. The answer stays the same from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn try_reap(&mut self) -> Result<Option<Exit>> {
        while self.exit.is_none() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            self.exit = match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Ok(None) => return Ok(None),
                Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(number)) => Exit::Signal { number, core: status.dumped() },
                    (None, None) => Exit::Unknown,
                }),
                Err(Errno::CHILD) => Some(Exit::Unknown),
                Err(Errno::INTR) => None,
                Err(errno) => return Err(Error::io(format!("wait for process {}", self.id()), errno.into())),
            };
        }
        Ok(self.exit)
    }

    /// Waits for its end, or until the time is up.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn reap_timeout(&mut self, timeout: Duration) -> Result<Option<Exit>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(exit) = self.try_reap()? {
                return Ok(Some(exit));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !poll::wait(&[self.pidfd.as_fd()], Some(left))?.any() {
                return self.try_reap();
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A net, not a way: who started it should have reaped it. A process in an unfinished disk read ends later.
        if self.exit.is_none() {
            let _ = self.kill();
            let _ = self.reap_timeout(Duration::from_secs(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::sys::fdpass;

    const LONG: Duration = Duration::from_secs(60);

    /// Starts a shell on a script and returns it with the other end of its standard input.
    fn shell(script: &str, env: &[(&str, &str)]) -> (Child, std::os::unix::net::UnixStream) {
        let (here, there) = fdpass::pair().unwrap();
        let exe = Executable::open(Path::new("/bin/sh")).unwrap();
        let child = spawn(&exe, &["-c".into(), script.into()], env, there.as_fd(), None).unwrap();
        (child, here)
    }

    fn exit_of(script: &str) -> Exit {
        shell(script, &[]).0.reap_timeout(LONG).unwrap().unwrap()
    }

    #[test]
    fn exits_are_told_apart_and_said_in_words() {
        assert_eq!(exit_of("exit 0"), Exit::Code(0));
        assert_eq!(exit_of("exit 3").to_string(), "exited with code 3");
        assert_eq!(exit_of("kill -9 $$"), Exit::Signal { number: 9, core: false });
        assert_eq!(exit_of("kill -9 $$").to_string(), "killed by SIGKILL");
        assert_eq!(Exit::Signal { number: 11, core: true }.to_string(), "killed by SIGSEGV (core dumped)");
        assert_eq!(Exit::Signal { number: 40, core: false }.to_string(), "killed by signal 40");
    }

    #[test]
    fn a_program_that_is_gone_from_its_path_still_starts() {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("true");
        std::fs::copy("/bin/true", &copy).unwrap();
        let exe = Executable::open(&copy).unwrap();
        std::fs::remove_file(&copy).unwrap();
        let (_here, there) = fdpass::pair().unwrap();
        let mut child = spawn(&exe, &[], &[], there.as_fd(), None).unwrap();
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Code(0)));
        assert!(Executable::open(&copy).is_err());
        assert!(Executable::current().is_ok());
    }

    #[test]
    fn what_cannot_be_executed_is_an_error_of_spawn() {
        let exe = Executable::open(Path::new("/etc/passwd")).unwrap();
        let (_here, there) = fdpass::pair().unwrap();
        assert_eq!(spawn(&exe, &[], &[], there.as_fd(), None).unwrap_err().kind(), ErrorKind::Io);
        let zero = OsString::from("a\0b");
        assert_eq!(spawn(&exe, &[zero], &[], there.as_fd(), None).unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn the_socket_is_standard_input_and_variables_are_set() {
        let (mut child, mut here) =
            shell("read line; echo \"$line $FOREBAY_X $PATH\" >&0", &[("FOREBAY_X", "7")]);
        here.write_all(b"hello\n").unwrap();
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("hello 7 {}\n", std::env::var("PATH").unwrap()));
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Code(0)));
    }

    #[test]
    fn output_goes_to_standard_error_and_our_descriptors_are_not_inherited() {
        let segment = crate::sys::segment::Segment::create(
            &crate::sys::segment::Backing::Memfd,
            "kept",
            4096,
            &mut |_| Ok(()),
        )
        .unwrap();
        let fd = segment.as_fd().as_raw_fd();
        let script =
            format!("[ /proc/$$/fd/1 -ef /proc/$$/fd/2 ] && readlink /proc/$$/fd/{fd} >&0; echo end >&0");
        let (mut child, mut here) = shell(&script, &[]);
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Code(0)));
        assert!(text.ends_with("end\n") && !text.contains("memfd"), "{text}");
    }

    #[test]
    fn signals_start_unblocked_and_unignored() {
        let _blocked = signals::Blocked::all();
        let (mut child, _here) = shell("kill -PIPE $$; exit 5", &[]);
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Signal { number: 13, core: false }));
    }

    #[test]
    fn a_kill_is_seen_on_the_pidfd_and_later_ones_do_no_harm() {
        let (mut child, _here) = shell("read line", &[]);
        assert_eq!(child.try_reap().unwrap(), None);
        assert_eq!(child.reap_timeout(Duration::from_millis(10)).unwrap(), None);
        assert!(child.id() > 1);
        child.kill().unwrap();
        assert!(poll::wait(&[child.pidfd()], Some(LONG)).unwrap().any());
        assert_eq!(child.try_reap().unwrap(), Some(Exit::Signal { number: 9, core: false }));
        child.kill().unwrap();
        child.signal(Signal::TERM).unwrap();
        assert_eq!(child.try_reap().unwrap(), Some(Exit::Signal { number: 9, core: false }));
    }

    #[test]
    fn a_child_that_somebody_else_reaped_ended_in_an_unknown_way() {
        let (mut child, _here) = shell("exit 4", &[]);
        rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Unknown));
    }

    #[test]
    fn a_dropped_child_is_ended() {
        let (child, mut here) = shell("read line", &[]);
        drop(child);
        assert_eq!(here.read(&mut [0; 1]).unwrap(), 0);
    }

    /// The worker's part of the test below, in a process of its own since it changes the whole process.
    #[test]
    #[ignore = "started by a_worker_belongs_to_its_host"]
    fn be_a_worker() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        assert_eq!(bind_to_parent(parent + 1).unwrap_err().kind(), ErrorKind::Closed);
        bind_to_parent(parent).unwrap();
        signals::ignore_terminal_signals();
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        }
        set_name("forebay-w0");
        assert!(thread_count().unwrap() >= 2, "libtest runs tests in threads");
        std::io::stdin().read_exact(&mut [0; 1]).unwrap();
    }

    #[test]
    fn a_worker_belongs_to_its_host() {
        let (mut here, there) = fdpass::pair().unwrap();
        let args =
            ["--ignored", "--exact", "sys::process::tests::be_a_worker", "--nocapture"].map(OsString::from);
        let start =
            |stdin: BorrowedFd<'_>| spawn(&Executable::current().unwrap(), &args, &[], stdin, None).unwrap();
        let mut child = start(there.as_fd());
        here.write_all(b"x").unwrap();
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Code(0)));

        // Its death signal follows the thread that started it.
        let mut child = std::thread::scope(|scope| {
            let there = &there;
            scope
                .spawn(move || {
                    let child = start(there.as_fd());
                    while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap()
                        != "forebay-w0\n"
                        && !thread_named(child.id(), "forebay-w0")
                    {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    child
                })
                .join()
                .unwrap()
        });
        assert_eq!(child.reap_timeout(LONG).unwrap(), Some(Exit::Signal { number: 9, core: false }));
    }

    fn thread_named(process: u32, name: &str) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        threads
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok())
            .any(|comm| comm.trim() == name)
    }
}
