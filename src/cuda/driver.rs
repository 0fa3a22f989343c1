//! The CUDA driver of this process: is there one, is it new enough, which GPUs does it have, and its errors in words.

use std::ffi::CStr;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use cudarc::driver::sys;
use libloading::Library;

use super::arch::Arch;
use super::device::Device;
use super::images::IMAGES;
use crate::error::Error;
use crate::knobs::Knobs;

/// The driver with the GPUs that it sees, each opened at its first use.
pub struct Driver {
    devices: Vec<Slot>,
}

/// A GPU, opened or not.
struct Slot {
    capability: (u32, u32),
    device: RwLock<Option<&'static Device>>,
}

impl Driver {
    /// The driver, or why it cannot be used. [`Error::NoDevice`] means that there is no GPU to speak of; anything else is a broken one.
    pub fn get() -> Result<&'static Self, Error> {
        static DRIVER: OnceLock<Result<Driver, Error>> = OnceLock::new();
        static OPENING: Mutex<()> = Mutex::new(());
        let kept = || DRIVER.get().map(|driver| driver.as_ref().map_err(Clone::clone));
        if let Some(driver) = kept() {
            return driver;
        }
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = kept() {
            return driver;
        }
        match Self::open() {
            // It may pass: the next call asks again.
            Err(error) if !matches!(error, Error::NoDevice(_) | Error::Unsupported(_)) => Err(error),
            opened => DRIVER.get_or_init(|| opened).as_ref().map_err(Clone::clone),
        }
    }

    fn open() -> Result<Self, Error> {
        if IMAGES.is_empty() {
            return Err(Error::NoDevice("this build has no GPU code".into()));
        }
        check_descriptors()?;
        // Before cudarc takes the first libcuda.so of the path, which may be the toolkit's stub, for whoever in this process asks for the driver by the name
        // that NVIDIA's own libraries use. SAFETY: what a driver does when it is loaded. It stays.
        let driver = unsafe { Library::new("libcuda.so.1") }.map(ManuallyDrop::new).ok();
        // SAFETY: only asks the loader.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDevice("no NVIDIA driver (libcuda.so) was found".into()));
        }
        // Before its version is asked for: a driver that sees no GPU is no error, however old it is. SAFETY: no arguments to get wrong.
        match unsafe { sys::cuInit(0) } {
            sys::CUresult::CUDA_ERROR_STUB_LIBRARY if driver.as_deref().is_some_and(starts) => {
                let text = "libcuda.so is the CUDA toolkit's stub, and hides the driver: take its folder out of LD_LIBRARY_PATH";
                return Err(Error::Unsupported(text.into()));
            }
            sys::CUresult::CUDA_ERROR_STUB_LIBRARY => {
                return Err(Error::NoDevice("no NVIDIA driver was found, only the CUDA toolkit's stub of it".into()));
            }
            sys::CUresult::CUDA_ERROR_NO_DEVICE => {
                return Err(Error::NoDevice("the NVIDIA driver sees no GPU".into()));
            }
            result => check("cuInit", result)?,
        }
        let mut version = 0;
        // SAFETY: writes one int.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        check_version(version)?;
        let mut count = 0;
        // SAFETY: writes one int.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        let capabilities = (0..count).map(Device::capability_of).collect::<Result<Vec<_>, _>>()?;
        if !capabilities.iter().any(|&capability| Arch::ALL.into_iter().any(|arch| arch.runs_on(capability))) {
            let capabilities: Vec<_> = capabilities.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
            let capabilities = capabilities.join(", ");
            let text = format!("GPUs of compute capabilities {capabilities} run none of this build's kernels");
            return Err(Error::NoDevice(text));
        }
        let slot = |capability| Slot { capability, device: RwLock::default() };
        Ok(Self { devices: capabilities.into_iter().map(slot).collect() })
    }

    /// The GPU of this ordinal, on the path that its capability or `SOLVE_ARCH` picks. One that cannot be opened now is tried again by the next call, and one
    /// that was reset is opened anew.
    pub fn device(&'static self, ordinal: usize) -> Result<&'static Device, Error> {
        let Some(slot) = self.devices.get(ordinal) else {
            let have = self.devices.len();
            return Err(Error::NoDevice(format!("options->device is {ordinal}, the driver sees {have} of them")));
        };
        let of_use = |device: &Option<&'static Device>| device.filter(|device| !device.is_reset());
        if let Some(device) = of_use(&slot.device.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(device);
        }
        let mut opened = slot.device.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = of_use(&opened) {
            return Ok(device);
        }
        Ok(opened.insert(Box::leak(Box::new(Device::open(ordinal, Knobs::get()?.arch)?))))
    }

    /// The GPU for data on the host: the caller's current one, else the first that can run what `SOLVE_ARCH` or nobody asks for.
    pub fn current_device(&'static self) -> Result<&'static Device, Error> {
        let mut device = 0;
        // SAFETY: writes one number.
        match unsafe { sys::cuCtxGetDevice(&mut device) } {
            // No context is current, or one that a reset has taken.
            sys::CUresult::CUDA_ERROR_INVALID_CONTEXT | sys::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
                let arch = Knobs::get()?.arch;
                let runs = |slot: &Slot| match arch {
                    Some(arch) => arch.runs_on(slot.capability),
                    None => Arch::ALL.into_iter().any(|arch| arch.runs_on(slot.capability)),
                };
                self.device(self.devices.iter().position(runs).unwrap_or(0))
            }
            result => {
                check("cuCtxGetDevice", result)?;
                self.device(usize::try_from(device).unwrap_or(0))
            }
        }
    }

    /// How many GPUs the driver sees.
    #[must_use]
    pub fn count(&self) -> usize {
        self.devices.len()
    }
}

/// The loader finds no driver, although there is one, where the process has no file descriptor left.
fn check_descriptors() -> Result<(), Error> {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match File::open("/") {
        Err(error) if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => {
            Err(Error::Exhausted { what: "a file descriptor for the NVIDIA driver", why: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Whether this is a driver that works.
fn starts(driver: &Library) -> bool {
    // SAFETY: the type that cuInit has in every driver; it takes flags, of which there are none.
    unsafe {
        driver
            .get::<unsafe extern "C" fn(u32) -> sys::CUresult>(c"cuInit")
            .is_ok_and(|init| init(0) == sys::CUresult::CUDA_SUCCESS)
    }
}

/// The compiler's version as the driver numbers versions: 13000 for 13.0. 0 without GPU code.
#[must_use]
pub fn toolkit_version() -> i32 {
    env!("SOLVE_CUDA_VERSION").parse().unwrap_or(0)
}

/// The oldest driver that has all calls used here.
const OLDEST_DRIVER: i32 = 12_080;

/// Refuses a driver whose CUDA is of an older generation than the compiler's, or older than the calls used here.
pub fn check_version(driver: i32) -> Result<(), Error> {
    let needed = (toolkit_version() / 1000 * 1000).max(OLDEST_DRIVER);
    if driver >= needed {
        return Ok(());
    }
    let older = if driver >= OLDEST_DRIVER { "; a build by nvcc 12.9 would do" } else { "" };
    let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    let (driver, needed) = (text(driver), text(needed));
    let text = format!("the NVIDIA driver supports CUDA {driver}, this build needs {needed} or newer{older}");
    Err(Error::Unsupported(text))
}

/// A driver call's result as ours.
pub fn check(what: &'static str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Err(Error::Exhausted { what, why: "the CUDA driver is out of memory".into() });
    }
    let mut text = ptr::null();
    // SAFETY: writes a pointer to a static string, or null for an unknown error.
    unsafe { sys::cuGetErrorName(result, &mut text) };
    let name = if text.is_null() {
        "unknown error".into()
    } else {
        // SAFETY: not null, so a static string of the driver.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(Error::Driver { what, code: result as u32, name })
}
