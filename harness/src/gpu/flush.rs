//! Pushing everything out of the L2: write more than it holds, then drop what was written, so that no write-back of it
//! falls into the time of the call that comes next.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUlimit};

use super::{Gpu, alloc, check, synchronize};
use crate::reason::Failure;

/// One thread for each line of 128 bytes, some lines apart (PTX ISA: discard, from sm_80 on).
const PTX: &std::ffi::CStr = cr#"
.version 7.4
.target sm_80
.address_size 64
.visible .entry discard(.param .u64 from, .param .u64 to)
{
    .reg .u64 %at, %end, %step, %wide;
    .reg .u32 %block, %size, %thread, %blocks;
    .reg .pred %more;
    ld.param.u64 %at, [from];
    ld.param.u64 %end, [to];
    cvta.to.global.u64 %at, %at;
    cvta.to.global.u64 %end, %end;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %thread, %block, %size, %thread;
    mul.wide.u32 %wide, %thread, 128;
    add.u64 %at, %at, %wide;
    mul.lo.u32 %size, %size, %blocks;
    mul.wide.u32 %step, %size, 128;
next:
    setp.lt.u64 %more, %at, %end;
    @!%more bra done;
    discard.global.L2 [%at], 128;
    add.u64 %at, %at, %step;
    bra next;
done:
    ret;
}
"#;

/// A buffer of at least twice the L2 and 128 MiB.
pub struct Flush {
    buffer: sys::CUdeviceptr,
    bytes: usize,
    discard: Option<sys::CUfunction>,
}

impl Flush {
    /// Allocates the buffer.
    pub fn new(gpu: &Gpu) -> Result<Self, Failure> {
        let bytes = (2 * gpu.l2_bytes).max(128 << 20);
        let discard = (gpu.capability.0 >= 8).then(discard).transpose()?;
        Ok(Self { buffer: alloc(bytes)?, bytes, discard })
    }

    /// Empties the L2, and gives back what was set aside in it.
    pub fn run(&self) -> Result<(), Failure> {
        // SAFETY: our buffer, a word pattern; the other calls take plain numbers.
        unsafe {
            check(sys::cuCtxSetLimit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0), "cuCtxSetLimit")?;
            check(sys::cuCtxResetPersistingL2Cache(), "cuCtxResetPersistingL2Cache")?;
            check(sys::cuMemsetD32_v2(self.buffer, 0x5a5a_5a5a, self.bytes / 4), "cuMemsetD32")?;
        }
        synchronize()?;
        let Some(discard) = self.discard else { return Ok(()) };
        let (mut from, mut to) = (self.buffer, self.buffer + self.bytes as u64);
        let mut arguments = [(&raw mut from).cast::<c_void>(), (&raw mut to).cast::<c_void>()];
        let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the kernel takes two 64-bit arguments, which are read at once, and stays inside the buffer.
        let result =
            unsafe { sys::cuLaunchKernel(discard, 512, 1, 1, 256, 1, 1, 0, stream, arguments.as_mut_ptr(), extra) };
        check(result, "cuLaunchKernel")?;
        synchronize()
    }
}

fn discard() -> Result<sys::CUfunction, Failure> {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a constant image, and locals for the results.
    unsafe {
        check(sys::cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()), "cuModuleLoadData of the flush")?;
        check(sys::cuModuleGetFunction(&raw mut function, module, c"discard".as_ptr()), "cuModuleGetFunction discard")?;
    }
    Ok(function)
}
