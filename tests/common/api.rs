//! The C functions as a careful program would wrap them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use solve::error::SolveStatus;
use solve::ffi::{self, SolveBlock, SolveOptions};
use solve::precision::SolvePrecision;

/// This thread's last error sentence.
pub fn message() -> String {
    // SAFETY: the library's string, valid until this thread's next call.
    unsafe { CStr::from_ptr(ffi::solve_last_error()) }.to_string_lossy().into_owned()
}

/// solve(), and its status with its sentence.
pub fn solve(x: usize, output: usize, weights: usize, seq_len: usize) -> Result<(), (SolveStatus, String)> {
    raw_solve(x, output, weights, seq_len as c_int)
}

/// The same with any seq_len.
pub fn raw_solve(x: usize, output: usize, weights: usize, seq_len: c_int) -> Result<(), (SolveStatus, String)> {
    let from = ptr::with_exposed_provenance;
    // SAFETY: the library checks what it is given; the tests keep good buffers alive.
    unsafe { ffi::solve(from(x), ptr::with_exposed_provenance_mut(output), from(weights), seq_len) };
    result(ffi::solve_last_status())
}

fn result(status: SolveStatus) -> Result<(), (SolveStatus, String)> {
    assert_eq!(status, ffi::solve_last_status());
    assert_eq!(status == SolveStatus::Ok, message().is_empty());
    if status == SolveStatus::Ok { Ok(()) } else { Err((status, message())) }
}

/// The defaults of the header, with changes.
pub fn options(change: impl FnOnce(&mut SolveOptions)) -> SolveOptions {
    let mut options = SolveOptions {
        size: size_of::<SolveOptions>(),
        device: -1,
        precision: SolvePrecision::Fast,
        causal: 0,
        max_tokens: 0,
    };
    change(&mut options);
    options
}

/// A handle that is destroyed in the end.
pub struct Block(pub *mut SolveBlock);

impl Block {
    pub fn create(weights: usize, options: &SolveOptions) -> Result<Self, (SolveStatus, String)> {
        let mut block = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { ffi::solve_block_create(ptr::with_exposed_provenance(weights), options, &mut block) };
        result(status).map(|()| Self(block))
    }

    pub fn raw_forward(&self, x: usize, output: usize, batch: usize, seq_len: usize) -> SolveStatus {
        self.call(x, output, batch, seq_len, ptr::null_mut())
    }

    pub fn call(&self, x: usize, output: usize, batch: usize, seq_len: usize, stream: *mut c_void) -> SolveStatus {
        let (x, output) = (ptr::with_exposed_provenance(x), ptr::with_exposed_provenance_mut(output));
        // SAFETY: as above.
        unsafe { ffi::solve_block_forward(self.0, x, output, batch as c_int, seq_len as c_int, stream) }
    }

    pub fn update(&self, weights: usize, stream: *mut impl Sized) -> Result<(), (SolveStatus, String)> {
        // SAFETY: as above.
        result(unsafe { ffi::solve_block_update(self.0, ptr::with_exposed_provenance(weights), stream.cast()) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: any handle may be destroyed.
        unsafe { ffi::solve_block_destroy(self.0) };
    }
}
