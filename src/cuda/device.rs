//! One GPU: its primary context (the one that the runtime API, PyTorch and cudarc share), its loaded kernels, and whether it is still alive.

use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys;
use sys::CUdevice_attribute_enum as Attribute;

use super::arch::Arch;
use super::block::Kernels;
use super::driver::check;
use super::launchers::Launchers;
use super::solve::Solver;
use crate::error::Error;
use crate::knobs::Knobs;

/// A GPU, opened. Lives as long as the process: its context is retained and never released.
pub struct Device {
    /// The driver's number of it.
    pub ordinal: usize,
    /// The kernels that it runs.
    pub arch: Arch,
    /// Streaming multiprocessors, as the driver counts them.
    pub sms: usize,
    /// Whether a kernel may enable a node of its graph.
    pub nodes_wake: bool,
    /// The priority in front of all others, where kernels know griddepcontrol.
    pub foremost: Option<i32>,
    /// The kernels of `arch`, loaded.
    pub kernels: Kernels,
    /// Who launches grids on it.
    pub launchers: Launchers,
    solver: Mutex<Solver>,
    context: Context,
    lost: OnceLock<Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Context(sys::CUcontext);
// SAFETY: a context may be made current in any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Context {}

impl Device {
    /// Opens the GPU on the best path that it can run, or on this one.
    pub fn open(ordinal: usize, arch: Option<Arch>) -> Result<Self, Error> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let capability = Self::capability_of(number)?;
        let (major, minor) = capability;
        let arch = match arch {
            None => Arch::best_for(capability).ok_or_else(|| {
                Error::Unsupported(format!("device {ordinal} has compute capability {major}.{minor}, 7.5 is needed"))
            })?,
            Some(arch) if arch.runs_on(capability) => arch,
            Some(arch) => {
                let name = arch.name();
                let text = format!("{name} does not run on device {ordinal} of compute capability {major}.{minor}");
                return Err(Error::Unsupported(text));
            }
        };
        let sms = attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;

        let mut context = ptr::null_mut();
        // SAFETY: writes one pointer.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, number) })?;
        let context = Context(context);
        let loaded = Entered::new(context).and_then(|_entered| {
            let foremost = if arch == Arch::Sm90a { highest_priority()? } else { None };
            Ok((Kernels::load(arch, capability, sms)?, foremost))
        });
        if loaded.is_err() {
            // SAFETY: retained above, and nothing of it is kept.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(number) };
        }
        let ((kernels, foremost), instrumented) = (loaded?, Knobs::get()?.instrumented);
        let mps = attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|enabled| enabled != 0);
        let (launchers, solver) = (Launchers::new(mps), Mutex::default());
        // Not known of MPS. Under Nsight Compute such a node stays disabled, and under compute-sanitizer (both of CUDA 13.0) the launch fails.
        let nodes_wake = !mps && !instrumented;
        Ok(Self {
            ordinal,
            arch,
            sms,
            nodes_wake,
            foremost,
            kernels,
            launchers,
            solver,
            context,
            lost: OnceLock::new(),
        })
    }

    /// What `solve()` keeps between calls; the lock makes one call's work contiguous in the stream.
    pub fn lock_solver(&self) -> MutexGuard<'_, Solver> {
        self.solver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compute capability of a device that need not be open.
    pub fn capability_of(number: i32) -> Result<(u32, u32), Error> {
        Ok((
            attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Runs `work` with this device's context current, restores the caller's, and remembers a fault that killed the context.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if let Some(cause) = self.lost.get() {
            return Err(Error::Lost { device: self.ordinal, cause: Box::new(cause.clone()) });
        }
        let entered = Entered::new(self.context)?;
        let outcome = work();
        drop(entered);
        if let Err(error) = &outcome
            && error.is_fault()
        {
            self.lost.get_or_init(|| error.clone());
        }
        outcome
    }
}

/// The device's context is current while this lives.
struct Entered {
    before: Option<sys::CUcontext>,
}

impl Entered {
    fn new(context: Context) -> Result<Self, Error> {
        let mut before = ptr::null_mut();
        // SAFETY: writes one pointer.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut before) })?;
        if before == context.0 {
            return Ok(Self { before: None });
        }
        // SAFETY: the context is retained for the life of the process.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context.0) })?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(context) = self.before {
            // SAFETY: it was current when this began.
            unsafe { sys::cuCtxSetCurrent(context) };
        }
    }
}

/// Of launches in the current context. None: they have all the same.
fn highest_priority() -> Result<Option<i32>, Error> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: writes two ints.
    let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
    check("cuCtxGetStreamPriorityRange", result)?;
    Ok((greatest < least).then_some(greatest))
}

fn attribute(number: i32, attribute: Attribute) -> Result<u32, Error> {
    let mut value = 0;
    // SAFETY: writes one int; an unknown device is an error.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, number) })?;
    Ok(value.unsigned_abs())
}
