//! Signals: held back around a call that must not be interrupted, ignored in workers, and their names.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Holds every signal of this thread back until it is dropped.
///
/// A reservation that a signal interrupts is undone by old kernels and starts again from nothing, so a fast timer could
/// keep it from ever ending.
#[derive(Debug)]
pub struct Blocked {
    before: libc::sigset_t,
    /// The mask belongs to the thread that set it.
    not_send: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks all signals that can be blocked.
    pub fn all() -> Blocked {
        let all = full_set();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are live locals of the right type; the call writes `before` and keeps no pointer.
        let rc = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, before.as_mut_ptr()) };
        assert_eq!(rc, 0, "pthread_sigmask refuses only an unknown `how`");
        // SAFETY: the call above succeeded, so it has written the former mask.
        let before = unsafe { before.assume_init() };
        Blocked { before, not_send: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask this thread had; a null third argument is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Returns the set of all signals.
fn full_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is a live local; the call writes all of it and cannot fail for a valid pointer.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: sigfillset has written it.
    unsafe { set.assume_init() }
}

/// Returns the set of the given signals.
pub fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is a live local; the call writes all of it and cannot fail for a valid pointer.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has written it.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is initialised; an unknown number is refused with EINVAL and changes nothing.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

/// Ignores SIGINT, SIGTERM and SIGHUP in this process.
///
/// A terminal or an orchestrator sends them to the whole group; workers end when their host does, not before it.
pub fn ignore_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: SIG_IGN is a valid disposition for these three signals, and no handler of ours is replaced.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Returns the usual name of a signal, such as `SIGKILL`, where it has one.
pub fn name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: i32) -> bool {
        let mut now = set_of(&[]);
        // SAFETY: a null new mask only reads the present one into `now`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now) };
        // SAFETY: `now` is an initialised set.
        unsafe { libc::sigismember(&now, signal) == 1 }
    }

    #[test]
    fn signals_are_blocked_until_the_guard_goes() {
        assert!(!blocked(libc::SIGUSR2));
        {
            let _outer = Blocked::all();
            {
                let _inner = Blocked::all();
            }
            assert!(blocked(libc::SIGUSR2));
            assert!(blocked(libc::SIGXFSZ));
        }
        assert!(!blocked(libc::SIGUSR2));
    }
}
