//! Time on the GPU: event pairs on the legacy default stream, a spin that hides the cost of launching (bounded by
//! the GPU's own timer, because a candidate may wait inside a call), and stamps from which the SM clock follows.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::{Gpu, alloc, check};
use crate::reason::Failure;

/// Two kernels, as PTX for the driver's compiler (PTX ISA: special registers %globaltimer, %clock64, %smid).
const PTX: &std::ffi::CStr = cr#"
.version 6.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 ns)
{
    .reg .u64 %start, %now, %past, %limit;
    .reg .pred %more;
    ld.param.u64 %limit, [ns];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %past, %now, %start;
    setp.lt.u64 %more, %past, %limit;
    @%more bra again;
    ret;
}
.visible .entry stamp(.param .u64 to)
{
    .reg .u64 %at, %ns, %cycles, %sm64;
    .reg .u32 %sm;
    ld.param.u64 %at, [to];
    mov.u64 %ns, %globaltimer;
    mov.u64 %cycles, %clock64;
    mov.u32 %sm, %smid;
    cvt.u64.u32 %sm64, %sm;
    st.global.u64 [%at], %ns;
    st.global.u64 [%at+8], %cycles;
    st.global.u64 [%at+16], %sm64;
    ret;
}
"#;

/// One reading of the GPU's timer and of one SM's cycle counter.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    ns: u64,
    cycles: u64,
    sm: u64,
}

impl Stamp {
    /// From this stamp to a later one, in us.
    pub fn us_until(self, later: Stamp) -> f64 {
        later.ns.saturating_sub(self.ns) as f64 / 1e3
    }

    /// The SM's clock between two stamps in MHz, where both are of the same SM and far enough apart.
    pub fn clock_mhz(self, later: Stamp) -> Option<f64> {
        let (ns, cycles) = (later.ns.checked_sub(self.ns)?, later.cycles.checked_sub(self.cycles)?);
        (self.sm == later.sm && ns > 4_000).then(|| cycles as f64 * 1e3 / ns as f64)
    }
}

/// Loaded kernels, two events, and room for two stamps.
pub struct Clock {
    spin: sys::CUfunction,
    /// A block for each SM, which has all of its shared memory: meanwhile nothing else runs, on whatever stream, that would begin before its start event.
    all_sms: (u32, u32),
    stamp: sys::CUfunction,
    start: sys::CUevent,
    end: sys::CUevent,
    stamps: sys::CUdeviceptr,
}

impl Clock {
    /// Sets the clock up in the current context.
    pub fn new(gpu: &Gpu) -> Result<Self, Failure> {
        let mut module = std::ptr::null_mut();
        let (mut spin, mut stamp) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut start, mut end) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a constant image, and locals for the results.
        unsafe {
            check(sys::cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()), "cuModuleLoadData of the clock")?;
            check(sys::cuModuleGetFunction(&raw mut spin, module, c"spin".as_ptr()), "cuModuleGetFunction spin")?;
            let room = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            check(sys::cuFuncSetAttribute(spin, room, gpu.shared_bytes), "cuFuncSetAttribute of spin")?;
            check(sys::cuModuleGetFunction(&raw mut stamp, module, c"stamp".as_ptr()), "cuModuleGetFunction stamp")?;
            check(sys::cuEventCreate(&raw mut start, 0), "cuEventCreate")?;
            check(sys::cuEventCreate(&raw mut end, 0), "cuEventCreate")?;
        }
        let all_sms = (gpu.sms as u32, gpu.shared_bytes as u32);
        Ok(Self { spin, all_sms, stamp, start, end, stamps: alloc(2 * size_of::<Stamp>())? })
    }

    fn launch(function: sys::CUfunction, (blocks, shared): (u32, u32), mut argument: u64) -> Result<(), Failure> {
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: blocks of one thread; the kernel takes one 64-bit argument, which is read at once.
        let result = unsafe {
            sys::cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, shared, stream, arguments.as_mut_ptr(), extra)
        };
        check(result, "cuLaunchKernel")
    }

    /// Keeps the GPU busy for so long.
    pub fn spin(&self, us: u32) -> Result<(), Failure> {
        Self::launch(self.spin, self.all_sms, u64::from(us) * 1000)
    }

    /// Enqueues stamp 0 or 1.
    pub fn stamp(&self, which: usize) -> Result<(), Failure> {
        Self::launch(self.stamp, (1, 0), self.stamps + (which * size_of::<Stamp>()) as u64)
    }

    /// Both stamps, once they are made.
    pub fn stamps(&self) -> Result<[Stamp; 2], Failure> {
        let mut stamps = [Stamp::default(); 2];
        let bytes = size_of_val(&stamps);
        // SAFETY: both sides hold two stamps.
        check(unsafe { sys::cuMemcpyDtoH_v2(stamps.as_mut_ptr().cast(), self.stamps, bytes) }, "cuMemcpyDtoH")?;
        Ok(stamps)
    }

    /// Records the start event on the default stream.
    pub fn start(&self) -> Result<(), Failure> {
        // SAFETY: our event, the null stream.
        check(unsafe { sys::cuEventRecord(self.start, std::ptr::null_mut()) }, "cuEventRecord")
    }

    /// Records the end event on the default stream.
    pub fn end(&self) -> Result<(), Failure> {
        // SAFETY: as above.
        check(unsafe { sys::cuEventRecord(self.end, std::ptr::null_mut()) }, "cuEventRecord")
    }

    /// From start to end in us, once both are done.
    pub fn elapsed_us(&self) -> Result<f64, Failure> {
        let mut ms = 0f32;
        // SAFETY: both events were recorded; the result goes to a local.
        check(unsafe { sys::cuEventElapsedTime(&raw mut ms, self.start, self.end) }, "cuEventElapsedTime")?;
        Ok(f64::from(ms) * 1e3)
    }
}
