//! The one place that launches kernels.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys;

use super::driver::check;
use super::plan::Launch;
use crate::error::Error;
use crate::options::Stream;

/// The stream as the driver takes it. 1 is `CU_STREAM_LEGACY`.
#[must_use]
pub fn raw(stream: Stream) -> sys::CUstream {
    ptr::with_exposed_provenance_mut(stream.0)
}

/// A loaded kernel.
#[derive(Clone, Copy)]
pub struct Function(pub(super) sys::CUfunction);

impl Function {
    /// Not yet loaded.
    pub(super) const NONE: Self = Self(ptr::null_mut());

    /// Bytes of local memory a thread: not 0 where registers are spilled.
    pub fn local_bytes(self) -> Result<i32, Error> {
        let mut bytes = 0;
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        // SAFETY: writes one number; the function is loaded for good.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut bytes, attribute, self.0) })?;
        Ok(bytes)
    }
}

// SAFETY: a function may be launched from any thread in which its context is current.
unsafe impl Send for Function {}
// SAFETY: as above; it is never changed after loading.
unsafe impl Sync for Function {}

/// Most parameters that a kernel has.
const MAX_ARGUMENTS: usize = 8;

/// Enqueues one kernel. Each argument, an address or an integer, has its own 8 bytes; an int reads the low half.
///
/// # Safety
/// The arguments are those of the kernel, in order, and the memory that they name has the sizes that the launch's plan was made for.
pub unsafe fn launch(function: Function, launch: &Launch, arguments: &[u64], stream: Stream) -> Result<(), Error> {
    let mut parameters = [ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
    for (parameter, argument) in parameters.iter_mut().zip(arguments) {
        *parameter = ptr::from_ref(argument).cast_mut().cast();
    }
    let config = sys::CUlaunchConfig {
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared,
        hStream: raw(stream),
        attrs: ptr::null_mut(),
        numAttrs: 0,
    };
    // SAFETY: the caller's promise; the parameters point into `arguments`, which outlives the call.
    let result = unsafe { sys::cuLaunchKernelEx(&config, function.0, parameters.as_mut_ptr(), ptr::null_mut()) };
    check(launch.stage.name(), result)
}
