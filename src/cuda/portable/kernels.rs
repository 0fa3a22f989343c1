//! Every kernel of one architecture, found by name once and kept in typed fields.

use super::plan::{self, Gemm, Kernel, TILES};
use crate::cuda::arch::Arch;
use crate::cuda::exact;
use crate::cuda::launch::Function;
use crate::cuda::modules::Modules;
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
    pub exact: exact::Kernel,
}

impl Kernels {
    /// Loads the architecture's files into the current context, for good.
    pub fn load(arch: Arch, capability: (u32, u32)) -> Result<Self, Error> {
        let modules = Modules::load(arch, capability)?;
        let function = |kernel| modules.function(&symbol(kernel), plan::shared_bytes(arch, kernel));
        let tiles = |gemm| -> Result<Tiles, Error> {
            let mut found = [Function::NONE; TILES.len()];
            for (tile, slot) in found.iter_mut().enumerate() {
                *slot = function(Kernel::Gemm { gemm, tile })?;
            }
            Ok(found)
        };
        let kernels = Self {
            cast_layernorm_f16: function(Kernel::CastLayernorm)?,
            layernorm_f16: function(Kernel::Layernorm)?,
            attention_f16: function(Kernel::Attention { causal: false })?,
            attention_f16_causal: function(Kernel::Attention { causal: true })?,
            gemm_qkv: tiles(Gemm::Qkv)?,
            gemm_attn_proj: tiles(Gemm::AttnProj)?,
            gemm_fc: tiles(Gemm::Fc)?,
            gemm_proj: tiles(Gemm::Proj)?,
            exact: exact::Kernel::load(&modules, arch)?,
        };
        modules.keep();
        Ok(kernels)
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
