//! The little of the CUDA driver that the grader itself needs, for the parent and for the candidate's process.

mod clock;
mod flush;
mod shared;
mod trace;

pub use clock::Clock;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
pub use flush::Flush;
pub use shared::Shared;
pub use trace::{Kernel, Trace};

use crate::reason::{Failure, Reason};

/// Turns a driver's answer into a failure that names the call.
pub fn check(result: CUresult, what: &str) -> Result<(), Failure> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let reason = match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY | CUresult::CUDA_ERROR_NO_DEVICE => Reason::Environment,
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => Reason::Load,
        _ => Reason::CudaError,
    };
    Err(Failure::new(reason, format!("{what}: {result:?}")))
}

/// What is known about the GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The device's ordinal is always 0: CUDA_VISIBLE_DEVICES chooses another.
    pub name: String,
    pub sms: usize,
    /// Of shared memory, the most that a block may have.
    pub shared_bytes: i32,
    pub l2_bytes: usize,
    pub capability: (i32, i32),
    pub driver: i32,
    pub max_clock_mhz: f64,
    /// From bus width and memory clock, bytes/s.
    pub bandwidth: f64,
    pub memory: (usize, usize),
}

#[cfg(test)]
impl Gpu {
    /// One to plan for.
    pub fn sample() -> Self {
        Self {
            name: "G".into(),
            sms: 132,
            shared_bytes: 232_448,
            l2_bytes: 50 << 20,
            capability: (9, 0),
            driver: 13_000,
            max_clock_mhz: 1980.0,
            bandwidth: 4e12,
            memory: (1 << 36, 1 << 37),
        }
    }
}

/// Is there a driver that sees a GPU?
pub fn present() -> bool {
    let mut count = 0;
    // SAFETY: looks for the library; the result goes to a local.
    unsafe {
        sys::is_culib_present()
            && sys::cuInit(0) == CUresult::CUDA_SUCCESS
            && sys::cuDeviceGetCount(&raw mut count) == CUresult::CUDA_SUCCESS
            && count > 0
    }
}

/// Makes the primary context of device 0 current in this thread.
pub fn open() -> Result<Gpu, Failure> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(Failure::new(Reason::Environment, "no NVIDIA driver on this machine"));
    }
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: results go to locals of the right types.
    unsafe {
        check(sys::cuInit(0), "cuInit")?;
        check(sys::cuDeviceGet(&raw mut device, 0), "cuDeviceGet")?;
        check(sys::cuDevicePrimaryCtxRetain(&raw mut context, device), "cuDevicePrimaryCtxRetain")?;
        check(sys::cuCtxSetCurrent(context), "cuCtxSetCurrent")?;
    }
    describe(device)
}

fn describe(device: sys::CUdevice) -> Result<Gpu, Failure> {
    let mut name = [0 as std::ffi::c_char; 128];
    let mut driver = 0;
    // SAFETY: as above; the name's buffer is as long as we say, and ends in zero.
    let name = unsafe {
        check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device), "cuDeviceGetName")?;
        check(sys::cuDriverGetVersion(&raw mut driver), "cuDriverGetVersion")?;
        std::ffi::CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let get = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: as above.
        check(unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) }, "cuDeviceGetAttribute")?;
        Ok::<i32, Failure>(value)
    };
    Ok(Gpu {
        name,
        sms: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
        shared_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        capability: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver,
        max_clock_mhz: f64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?) / 1e3,
        bandwidth: 2e3
            * f64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?)
            * f64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?)
            / 8.0,
        memory: memory()?,
    })
}

/// Bytes of device memory that are free, and all of them.
pub fn memory() -> Result<(usize, usize), Failure> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: results go to locals of the right type.
    check(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }, "cuMemGetInfo")?;
    Ok((free, total))
}

/// Device memory of this process.
pub fn alloc(bytes: usize) -> Result<sys::CUdeviceptr, Failure> {
    let mut pointer = 0;
    // SAFETY: the result goes to a local.
    let result = unsafe { sys::cuMemAlloc_v2(&raw mut pointer, bytes) };
    check(result, "cuMemAlloc").map_err(|f| no_memory(f, bytes))?;
    Ok(pointer)
}

fn no_memory(failure: Failure, bytes: usize) -> Failure {
    failure.during(&format!("{} MiB of GPU memory could not be had", bytes >> 20))
}

/// Waits until the GPU has finished everything of this process.
pub fn synchronize() -> Result<(), Failure> {
    // SAFETY: no arguments.
    check(unsafe { sys::cuCtxSynchronize() }, "cuCtxSynchronize")
}
