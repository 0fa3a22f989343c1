//! Device memory that the grader owns and lends to the candidate's process through CUDA IPC.

use cudarc::driver::sys;

use super::Memory;
use crate::gpu::{self, check};
use crate::reason::{Failure, Reason};

/// Floats staged at a time: the whole weight buffer fits.
const STAGE: usize = 8 << 20;

/// One allocation, and pinned memory to copy through.
pub struct Cuda {
    base: sys::CUdeviceptr,
    len: usize,
    stage: *mut f32,
}

// SAFETY: the staging memory belongs to this value alone; contexts are made current by every user's thread.
unsafe impl Send for Cuda {}

impl Cuda {
    /// New device memory of `len` floats, and the handle that opens it elsewhere.
    pub fn create(len: usize) -> Result<(Self, Vec<u8>), Failure> {
        let base = gpu::alloc(len * 4)?;
        let mut stage = std::ptr::null_mut();
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: results go to locals.
        unsafe {
            check(sys::cuMemAllocHost_v2(&raw mut stage, STAGE * 4), "cuMemAllocHost")?;
            let shared = check(sys::cuIpcGetMemHandle(&raw mut handle, base), "cuIpcGetMemHandle");
            if shared.is_err() {
                sys::cuMemFree_v2(base);
                sys::cuMemFreeHost(stage);
            }
            shared.map_err(|f| Failure::new(Reason::Environment, f.message))?;
        }
        let bytes = handle.reserved.iter().map(|&c| c as u8).collect();
        Ok((Self { base, len, stage: stage.cast() }, bytes))
    }

    fn address(&self, at: usize, len: usize) -> sys::CUdeviceptr {
        assert!(at + len <= self.len, "{at} + {len} is outside the region of {}", self.len);
        self.base + 4 * at as u64
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: both were allocated in create.
        unsafe {
            sys::cuMemFree_v2(self.base);
            sys::cuMemFreeHost(self.stage.cast());
        }
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
