//! The threads that all calls of this process share.

use core::ffi::{c_int, c_ulong, c_void};
use std::num::NonZero;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::{ptr, thread};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::Error;
use crate::knobs::Knobs;
use crate::panics;

/// FE_DFL_ENV in the headers of glibc and of musl.
const DEFAULT_ENVIRONMENT: *const c_void = ptr::without_provenance(usize::MAX);

#[link(name = "m")]
unsafe extern "C" {
    fn fesetenv(environment: *const c_void) -> c_int;
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// As in the headers of glibc and of musl.
const SIG_SETMASK: c_int = 2;
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGPROF and SIGSYS: what a thread does to itself, and what profilers count.
const OF_A_THREAD: [u32; 8] = [4, 5, 6, 7, 8, 11, 27, 31];

/// sigset_t
type Signals = [c_ulong; 16];

unsafe extern "C" {
    fn pthread_sigmask(how: c_int, set: *const Signals, before: *mut Signals) -> c_int;
}

/// Bytes of a thread's: a tile of scores and a panel of a matrix take 192 KB of it. Else RUST_MIN_STACK, which is meant for others, would say.
const STACK: usize = 2 << 20;

/// None before the first call, nor in a child that was forked: it has none of its parent's threads. Its number would not tell it from its parent, which may
/// have the same one in another namespace.
static POOL: AtomicPtr<ThreadPool> = AtomicPtr::new(ptr::null_mut());

/// Started by the first call. Where there are none to be had now, the next call asks again.
pub fn threads() -> Result<&'static ThreadPool, Error> {
    if let Some(pool) = started() {
        return Ok(pool);
    }
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    started().map_or_else(start, Ok)
}

fn started() -> Option<&'static ThreadPool> {
    // SAFETY: null, or a pool that is never ended.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }
}

fn start() -> Result<&'static ThreadPool, Error> {
    static WATCHED: Once = Once::new();
    // SAFETY: the handler stores one word, and the library stays mapped (nodelete).
    WATCHED.call_once(|| _ = unsafe { pthread_atfork(None, None, Some(forget)) });
    let count = match Knobs::get()?.threads {
        // Else rayon would look at RAYON_RS_NUM_CPUS, and at RAYON_NUM_THREADS again.
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
    };
    let threads = ThreadPoolBuilder::new().num_threads(count).stack_size(STACK).start_handler(|_| begin());
    let pool = without_signals(|| threads.build());
    let pool = pool.map_err(|error| Error::Exhausted { what: "threads", why: error.to_string() })?;
    // Never ended: to end a parent's threads in a child would wait for them.
    let pool = Box::leak(Box::new(pool));
    POOL.store(pool, Ordering::Release);
    Ok(pool)
}

/// Starts threads that leave a process's signals to its own ones: a handler, or sigwait, is where their owner expects it.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all: Signals = [c_ulong::MAX; 16];
    for signal in OF_A_THREAD {
        all[0] &= !(1 << (signal - 1));
    }
    let mut before: Signals = [0; 16];
    // SAFETY: of the calling thread; both are as large as a sigset_t.
    let blocked = unsafe { pthread_sigmask(SIG_SETMASK, &all, &mut before) } == 0;
    let outcome = start();
    if blocked {
        // SAFETY: what it was.
        unsafe { pthread_sigmask(SIG_SETMASK, &before, ptr::null_mut()) };
    }
    outcome
}

extern "C" fn forget() {
    POOL.store(ptr::null_mut(), Ordering::Relaxed);
}

/// What each of the threads does first.
fn begin() {
    panics::quiet();
    // A thread begins with the rounding, the traps and the treatment of subnormal numbers of the one that starts it: whichever caller was the first.
    // SAFETY: of the calling thread, to what every program begins with.
    unsafe { fesetenv(DEFAULT_ENVIRONMENT) };
}
