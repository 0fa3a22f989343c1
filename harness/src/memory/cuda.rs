//! Device memory that the grader owns and lends to the candidate's process.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use cudarc::driver::sys;

use super::Memory;
use crate::gpu::{self, Shared, check};
use crate::reason::Failure;

/// Floats staged at a time: the whole weight buffer fits.
const STAGE: usize = 8 << 20;

/// One allocation, and pinned memory to copy through.
pub struct Cuda {
    shared: Shared,
    fd: OwnedFd,
    len: usize,
    stage: *mut f32,
}

// SAFETY: the staging memory belongs to this value alone; contexts are made current by every user's thread.
unsafe impl Send for Cuda {}

impl Cuda {
    /// New device memory of `len` floats.
    pub fn create(len: usize) -> Result<Self, Failure> {
        let (shared, fd) = Shared::create(len * 4)?;
        let mut stage = std::ptr::null_mut();
        // SAFETY: the result goes to a local.
        check(unsafe { sys::cuMemAllocHost_v2(&raw mut stage, STAGE * 4) }, "cuMemAllocHost")?;
        Ok(Self { shared, fd, len, stage: stage.cast() })
    }

    /// The descriptor to pass on.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn address(&self, at: usize, len: usize) -> sys::CUdeviceptr {
        assert!(at + len <= self.len, "{at} + {len} is outside the region of {}", self.len);
        self.shared.base() + 4 * at as u64
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: it was allocated in create.
        unsafe { sys::cuMemFreeHost(self.stage.cast()) };
    }
}

/// memcpy by all cores: one core cannot feed the bus.
fn copy(from: &[f32], to: &mut [f32]) {
    use rayon::prelude::*;
    to.par_chunks_mut(1 << 18).zip(from.par_chunks(1 << 18)).for_each(|(t, f)| t.copy_from_slice(f));
}

impl Memory for Cuda {
    fn write(&mut self, at: usize, values: &[f32]) -> Result<(), Failure> {
        for (i, part) in values.chunks(STAGE).enumerate() {
            // SAFETY: the staging memory is ours and holds STAGE floats.
            copy(part, unsafe { std::slice::from_raw_parts_mut(self.stage, part.len()) });
            let to = self.address(at + i * STAGE, part.len());
            // SAFETY: both sides hold so many bytes.
            check(unsafe { sys::cuMemcpyHtoD_v2(to, self.stage.cast(), part.len() * 4) }, "cuMemcpyHtoD")?;
        }
        gpu::synchronize()
    }

    fn read(&mut self, at: usize, values: &mut [f32]) -> Result<(), Failure> {
        for (i, part) in values.chunks_mut(STAGE).enumerate() {
            let from = self.address(at + i * STAGE, part.len());
            // SAFETY: as in write.
            check(unsafe { sys::cuMemcpyDtoH_v2(self.stage.cast(), from, part.len() * 4) }, "cuMemcpyDtoH")?;
            // SAFETY: as in write.
            copy(unsafe { std::slice::from_raw_parts(self.stage, part.len()) }, part);
        }
        Ok(())
    }

    fn fill(&mut self, at: usize, len: usize, pattern: u32) -> Result<(), Failure> {
        // SAFETY: the address is checked.
        check(unsafe { sys::cuMemsetD32_v2(self.address(at, len), pattern, len) }, "cuMemsetD32")?;
        gpu::synchronize()
    }
}
