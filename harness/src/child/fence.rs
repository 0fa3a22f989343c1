//! What is around a call on a CPU where it is fenced: x and the weights are for reading only meanwhile, and of the memory around the three buffers whole pages
//! are not there. Whoever reaches for them ends by SIGSEGV, as elsewhere, and for what is noted in the region.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, c_int, c_void};

use crate::arena::{self, Place};
use crate::dims::{D, WEIGHTS};
use crate::memory::host::Host;
use crate::protocol::Call;

/// Where the region is, its bytes, and where the float that was reached for is noted, plus one.
static BASE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static NOTE: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
/// Who was told of faults before the fence.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Stands until it is dropped.
pub struct Fence {
    /// From red zone to red zone.
    around: [(*mut c_void, usize); 3],
}

impl Fence {
    /// Around this call's buffers.
    pub fn around(region: &Host, call: &Call) -> Self {
        let (x, output) = (Place { at: call.x, len: call.seq * D }, Place { at: call.output, len: call.seq * D });
        let weights = Place { at: call.weights, len: WEIGHTS };
        watch(region);
        for place in [x, output, weights] {
            place.red_zones().into_iter().for_each(|zone| protect(region.pages(zone), PROT_NONE));
        }
        [x, weights].into_iter().for_each(|place| protect(region.pages(place), PROT_READ));
        Self { around: [x, output, weights].map(|place| region.pages(place.with_red_zones())) }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.around.into_iter().for_each(|pages| protect(pages, PROT_READ | PROT_WRITE));
        let before = BEFORE.load(Ordering::Relaxed);
        if now() == fault as *const () as usize && !before.is_null() {
            // SAFETY: an action that the kernel gave.
            unsafe { libc::sigaction(libc::SIGSEGV, before, std::ptr::null_mut()) };
        }
    }
}

/// A kernel that refuses leaves things as they were.
fn protect((first, bytes): (*mut c_void, usize), how: c_int) {
    // SAFETY: whole pages of the region, which nobody here touches while the fence stands.
    unsafe { libc::mprotect(first, bytes, how) };
}

/// Has faults told to `fault`.
fn watch(region: &Host) {
    let end = region.floats();
    BASE.store(region.address(0) as usize, Ordering::Relaxed);
    BYTES.store(4 * end, Ordering::Relaxed);
    NOTE.store(region.address(end - arena::NOTE).cast(), Ordering::Relaxed);
    // SAFETY: zeros are an action: the default one.
    let [mut ours, mut before] = unsafe { [std::mem::zeroed::<libc::sigaction>(); 2] };
    ours.sa_sigaction = fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: two locals, and a handler that writes to the region and changes the action.
    unsafe { libc::sigaction(libc::SIGSEGV, &raw const ours, &raw mut before) };
    // Never freed: a candidate may have kept the handler for later.
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Relaxed);
}

extern "C" fn fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel fills it in.
    let at = unsafe { (*info).si_addr() } as usize;
    let at = at.wrapping_sub(BASE.load(Ordering::Relaxed));
    let before = BEFORE.load(Ordering::Relaxed);
    // SAFETY: the note is in the region, the action one that the kernel gave; both functions are async-signal-safe. What faulted faults once more.
    unsafe {
        if at < BYTES.load(Ordering::Relaxed) {
            NOTE.load(Ordering::Relaxed).write_volatile(1 + at as u64 / 4);
            libc::signal(signal, libc::SIG_DFL);
        } else {
            libc::sigaction(signal, before, std::ptr::null_mut());
        }
    }
}

/// The address of who is told of faults now.
fn now() -> usize {
    // SAFETY: zeros are an action, and a local.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}
