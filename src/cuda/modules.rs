//! The compiled files of one architecture, loaded, and the search for a kernel by its name.

use std::ffi::CString;
use std::ptr;

use cudarc::driver::sys;

use super::arch::Arch;
use super::driver::check;
use super::launch::Function;
use crate::error::Error;

/// Unloaded again unless they are kept: where not all of a GPU's kernels can be loaded, the next call tries it again.
pub struct Modules {
    arch: Arch,
    modules: Vec<sys::CUmodule>,
}

impl Modules {
    /// Loads the architecture's files into the current context.
    pub fn load(arch: Arch, capability: (u32, u32)) -> Result<Self, Error> {
        let mut loaded = Self { arch, modules: Vec::new() };
        for image in arch.images(capability) {
            let mut module = ptr::null_mut();
            // SAFETY: a whole cubin, or PTX with its zero byte.
            let result = unsafe { sys::cuModuleLoadData(&mut module, image.bytes.as_ptr().cast()) };
            check("cuModuleLoadData", result)?;
            loaded.modules.push(module);
        }
        Ok(loaded)
    }

    /// For as long as their context lives, as the functions that were found are.
    pub fn keep(mut self) {
        self.modules.clear();
    }

    /// Finds a kernel in whichever file has it and allows it the shared memory that it will be launched with.
    pub fn function(&self, symbol: &str, shared: u32) -> Result<Function, Error> {
        let name = CString::new(symbol).unwrap_or_default();
        let mut function = ptr::null_mut();
        for &module in &self.modules {
            // It may have to bring the kernel to the device first (lazy loading), for which there may be no memory. SAFETY: a loaded module and a C string.
            match unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) } {
                sys::CUresult::CUDA_ERROR_NOT_FOUND => {}
                result => {
                    check("cuModuleGetFunction", result)?;
                    break;
                }
            }
        }
        if function.is_null() {
            let arch = self.arch.name();
            return Err(Error::Unsupported(format!("kernel {symbol} is not in the {arch} files of this build")));
        }
        let shared = i32::try_from(shared).unwrap_or(i32::MAX);
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was just found.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, shared) })?;
        Ok(Function(function))
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        for &module in &self.modules {
            // SAFETY: loaded into the current context, and none of its functions is used.
            unsafe { sys::cuModuleUnload(module) };
        }
    }
}
