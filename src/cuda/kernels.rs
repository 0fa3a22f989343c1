//! Every kernel of one architecture, found by name once and kept in typed fields.

use std::ffi::CString;
use std::ptr;

use cudarc::driver::sys;

use super::arch::Arch;
use super::driver::check;
use super::launch::Function;
use super::plan::{self, Gemm, Kernel, TILES};
use crate::error::Error;

/// One GEMM at each of [`TILES`].
type Tiles = [Function; TILES.len()];

/// The fields are named after the kernels.
#[allow(missing_docs)]
pub struct Kernels {
    pub cast_layernorm_f16: Function,
    pub layernorm_f16: Function,
    pub attention_f16: Function,
    pub attention_f16_causal: Function,
    pub gemm_qkv: Tiles,
    pub gemm_attn_proj: Tiles,
    pub gemm_fc: Tiles,
    pub gemm_proj: Tiles,
}

impl Kernels {
    /// Loads the architecture's files into the current context, for good.
    pub fn load(arch: Arch, capability: (u32, u32)) -> Result<Self, Error> {
        let modules = Modules::load(arch, capability)?;
        let tiles = |gemm| -> Result<Tiles, Error> {
            let mut found = [Function::NONE; TILES.len()];
            for (tile, slot) in found.iter_mut().enumerate() {
                *slot = modules.function(Kernel::Gemm { gemm, tile })?;
            }
            Ok(found)
        };
        Ok(Self {
            cast_layernorm_f16: modules.function(Kernel::CastLayernorm)?,
            layernorm_f16: modules.function(Kernel::Layernorm)?,
            attention_f16: modules.function(Kernel::Attention { causal: false })?,
            attention_f16_causal: modules.function(Kernel::Attention { causal: true })?,
            gemm_qkv: tiles(Gemm::Qkv)?,
            gemm_attn_proj: tiles(Gemm::AttnProj)?,
            gemm_fc: tiles(Gemm::Fc)?,
            gemm_proj: tiles(Gemm::Proj)?,
        })
    }

    /// The loaded form of a planned kernel.
    #[must_use]
    pub fn get(&self, kernel: Kernel) -> Function {
        match kernel {
            Kernel::CastLayernorm => self.cast_layernorm_f16,
            Kernel::Layernorm => self.layernorm_f16,
            Kernel::Attention { causal: false } => self.attention_f16,
            Kernel::Attention { causal: true } => self.attention_f16_causal,
            Kernel::Gemm { gemm: Gemm::Qkv, tile } => self.gemm_qkv[tile],
            Kernel::Gemm { gemm: Gemm::AttnProj, tile } => self.gemm_attn_proj[tile],
            Kernel::Gemm { gemm: Gemm::Fc, tile } => self.gemm_fc[tile],
            Kernel::Gemm { gemm: Gemm::Proj, tile } => self.gemm_proj[tile],
        }
    }
}

/// The name of a kernel in cuda/.
#[must_use]
pub fn symbol(kernel: Kernel) -> String {
    match kernel {
        Kernel::CastLayernorm => "cast_layernorm_f16".into(),
        Kernel::Layernorm => "layernorm_f16".into(),
        Kernel::Attention { causal: false } => "attention_f16".into(),
        Kernel::Attention { causal: true } => "attention_f16_causal".into(),
        Kernel::Gemm { gemm, tile } => {
            let name = match gemm {
                Gemm::Qkv => "gemm_qkv",
                Gemm::AttnProj => "gemm_attn_proj",
                Gemm::Fc => "gemm_fc",
                Gemm::Proj => "gemm_proj",
            };
            format!("{name}_{}x{}", TILES[tile].m, TILES[tile].n)
        }
    }
}

/// The loaded files of one architecture. Never unloaded: the functions live as long as the process.
struct Modules {
    arch: Arch,
    modules: Vec<sys::CUmodule>,
}

impl Modules {
    fn load(arch: Arch, capability: (u32, u32)) -> Result<Self, Error> {
        let load = |image: &super::images::Image| {
            // The driver reads PTX up to a zero byte, and a cubin as aligned words.
            let mut bytes = image.bytes.to_vec();
            bytes.push(0);
            let mut module = ptr::null_mut();
            // SAFETY: a whole cubin, or PTX with its zero byte, alive during the call.
            let result = unsafe { sys::cuModuleLoadData(&mut module, bytes.as_ptr().cast()) };
            check("cuModuleLoadData", result).map(|()| module)
        };
        Ok(Self { arch, modules: arch.images(capability).map(load).collect::<Result<_, _>>()? })
    }

    /// Finds a kernel in whichever file has it and allows it the shared memory that the plan will ask for.
    fn function(&self, kernel: Kernel) -> Result<Function, Error> {
        let symbol = symbol(kernel);
        let name = CString::new(symbol.as_str()).unwrap_or_default();
        let mut function = ptr::null_mut();
        let found = self.modules.iter().any(|&module| {
            // SAFETY: a loaded module and a C string.
            let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
            result == sys::CUresult::CUDA_SUCCESS
        });
        if !found {
            let arch = self.arch.name();
            return Err(Error::Unsupported(format!("kernel {symbol} is not in the {arch} files of this build")));
        }
        let shared = i32::try_from(plan::shared_bytes(self.arch, kernel)).unwrap_or(i32::MAX);
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was just found.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, shared) })?;
        Ok(Function(function))
    }
}
