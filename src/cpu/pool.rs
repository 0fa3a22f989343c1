//! The threads that all calls of this process share.

use core::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};

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
    let count = Knobs::get()?.threads;
    let threads = ThreadPoolBuilder::new().num_threads(count).stack_size(STACK).start_handler(|_| begin());
    let pool = threads.build();
    let pool = pool.map_err(|error| Error::Exhausted { what: "threads", why: error.to_string() })?;
    // Never ended: to end a parent's threads in a child would wait for them.
    let pool = Box::leak(Box::new(pool));
    POOL.store(pool, Ordering::Release);
    Ok(pool)
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
