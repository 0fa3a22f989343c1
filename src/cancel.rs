//! pthread_cancel of a thread that is in a call: it would unwind through frames of Rust that have something to drop, which ends the process. The thread ends
//! once the call is over; where it may be cancelled at any time, right here, behind it: hence the ABI that may unwind, here and of what calls this.

use core::ffi::c_int;

/// As in the headers of glibc and of musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs `body`, which must not panic, while this thread cannot be cancelled.
pub fn put_off<T>(body: impl FnOnce() -> T) -> T {
    let before = set(PTHREAD_CANCEL_DISABLE);
    let outcome = body();
    set(before);
    outcome
}

/// Returns the state before.
fn set(state: c_int) -> c_int {
    let mut before = PTHREAD_CANCEL_DISABLE;
    // SAFETY: of the calling thread; writes one number. It fails for a state that there is not only.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}
