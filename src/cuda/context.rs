//! A GPU's primary context, the one that the runtime API, PyTorch and cudarc share, and what it is to be in it.

use std::ptr;

use cudarc::driver::sys;

use super::driver::check;
use crate::error::Error;

/// Retained, and released only where nothing of it is kept.
pub struct Context {
    handle: sys::CUcontext,
    /// The driver's number of what is in it now: after a reset (cudaDeviceReset) the same handle may be another context.
    id: u64,
}

// SAFETY: a context may be made current in any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of the device of this number.
    pub fn retain(device: i32) -> Result<Self, Error> {
        let mut handle = ptr::null_mut();
        // SAFETY: writes one pointer.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, device) })?;
        let mut id = 0;
        // SAFETY: retained just now; writes one number.
        let known = check("cuCtxGetId", unsafe { sys::cuCtxGetId(handle, &mut id) });
        if known.is_err() {
            Self::release(device);
        }
        known.map(|()| Self { handle, id })
    }

    /// As the driver knows it.
    #[must_use]
    pub fn handle(&self) -> sys::CUcontext {
        self.handle
    }

    /// Gives back what was retained, of which nothing is used any more.
    pub fn release(device: i32) {
        // SAFETY: one release for one retain.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
    }

    /// Whether a reset has taken all that was in it, so that even to free any of it would be wrong.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        let mut id = 0;
        // SAFETY: the handle of a primary context, which the driver keeps; writes one number.
        match unsafe { sys::cuCtxGetId(self.handle, &mut id) } {
            sys::CUresult::CUDA_SUCCESS => id != self.id,
            sys::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | sys::CUresult::CUDA_ERROR_INVALID_CONTEXT => true,
            _ => false,
        }
    }

    /// Makes it current.
    pub fn enter(&self) -> Result<Entered, Error> {
        let mut before = ptr::null_mut();
        // SAFETY: writes one pointer.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut before) })?;
        let before = (before != self.handle).then_some(before);
        if before.is_some() {
            // SAFETY: the context is retained; where it was reset, the driver says so.
            check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })?;
        }
        let mut entered = Entered { before, mode: None };
        entered.mode = Some(exchange_mode(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED)?);
        Ok(entered)
    }
}

/// While this lives, the context is current, and what this thread does spoils no capture that another has under way: to allocate, to free or to ask about an
/// event would, unless the thread says that it knows what it does.
pub struct Entered {
    before: Option<sys::CUcontext>,
    mode: Option<sys::CUstreamCaptureMode>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // Nothing is to be done about a driver that does not take it back.
            let _ = exchange_mode(mode);
        }
        if let Some(context) = self.before {
            // SAFETY: it was current when this began.
            unsafe { sys::cuCtxSetCurrent(context) };
        }
    }
}

/// This thread's capture mode from now on; the one before.
fn exchange_mode(mut mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode, Error> {
    // SAFETY: swaps one value.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    check("cuThreadExchangeStreamCaptureMode", result).map(|()| mode)
}
