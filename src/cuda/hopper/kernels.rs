//! Every Hopper kernel, found by name once and kept in typed fields.

use super::plan::product::Tile;
use super::plan::shared::{SHARED, SharedTile};
use super::plan::{
    self, ATTENTION, ATTENTION_PROJ, Chip, FEW, FEW_IN_FP32, FewWeights, Gemm, Kernel, SHORT, direct, product,
    qkv_attention,
};
use crate::cuda::arch::Arch;
use crate::cuda::exact;
use crate::cuda::launch::Function;
use crate::cuda::modules::Modules;
use crate::error::Error;

/// The fields are named after the kernels, but for those of few tokens, which in cuda/ are `small`.
#[allow(missing_docs)]
pub struct Kernels {
    pub cast_layernorm: Function,
    pub layernorm_vectors: Function,
    pub layernorm: Function,
    /// One per [`Gemm`] and tile of it.
    pub gemm: [Vec<Function>; 4],
    /// The products that read fp32 weights; there is none of the attention projection.
    pub gemm_direct: [Function; 4],
    /// Those where two blocks share the weights.
    pub shared: [Function; SHARED.len()],
    /// Not causal, causal.
    pub attention: [[Function; ATTENTION.len()]; 2],
    pub attention_short: [Function; SHORT.len()],
    pub qkv_attention: [Function; qkv_attention::BLOCKS.len()],
    pub attention_proj: [Function; ATTENTION_PROJ.len()],
    /// One per [`FewWeights`].
    pub few: [[Function; FEW.len()]; 3],
    /// From unaligned and from aligned weights.
    pub few_in_fp32: [[Function; FEW_IN_FP32.len()]; 2],
    pub few_prepare: Function,
    pub few_merge: Function,
    pub transpose_qkv: Function,
    pub fold_layernorm2: Function,
    /// The attention projection for weights that LN2 is folded into, in each tile.
    pub apart: Vec<Function>,
    /// FC behind it, in each tile.
    pub fc_scaled: Vec<Function>,
    pub exact: exact::Kernel,
    pub wake: Function,
    /// Not a kernel: the GPU that they are loaded on.
    pub chip: Chip,
}

impl Kernels {
    /// Loads the files into the current context, for good.
    pub fn load(capability: (u32, u32), sms: usize) -> Result<Self, Error> {
        let modules = Modules::load(Arch::Sm90a, capability)?;
        let function = |kernel| modules.function(&symbol(kernel), plan::shared_bytes(kernel));
        let mut kernels = Self {
            cast_layernorm: function(Kernel::CastLayernorm)?,
            layernorm_vectors: function(Kernel::LayernormVectors)?,
            layernorm: function(Kernel::Layernorm)?,
            gemm: [const { Vec::new() }; 4],
            gemm_direct: [Function::NONE; 4],
            shared: [Function::NONE; SHARED.len()],
            attention: [[Function::NONE; ATTENTION.len()]; 2],
            attention_short: [Function::NONE; SHORT.len()],
            qkv_attention: [Function::NONE; qkv_attention::BLOCKS.len()],
            attention_proj: [Function::NONE; ATTENTION_PROJ.len()],
            few: [[Function::NONE; FEW.len()]; 3],
            few_in_fp32: [[Function::NONE; FEW_IN_FP32.len()]; 2],
            few_prepare: function(Kernel::FewPrepare)?,
            few_merge: function(Kernel::FewMerge)?,
            transpose_qkv: function(Kernel::TransposeQkv)?,
            fold_layernorm2: function(Kernel::FoldLayernorm2)?,
            apart: Vec::new(),
            fc_scaled: Vec::new(),
            exact: exact::Kernel::load(&modules, Arch::Sm90a)?,
            wake: modules.function("wake", 0)?,
            chip: Chip { sms, clusters: [sms / 2, sms / 4, sms / 8], heads: [0; qkv_attention::BLOCKS.len()] },
        };
        for tile in 0..product::tiles(Gemm::AttnProj).len() {
            kernels.apart.push(function(Kernel::Apart { tile })?);
        }
        for tile in 0..product::tiles(Gemm::Fc).len() {
            kernels.fc_scaled.push(function(Kernel::FcScaled { tile })?);
        }
        for gemm in Gemm::ALL {
            for tile in 0..product::tiles(gemm).len() {
                kernels.gemm[gemm as usize].push(function(Kernel::Gemm { gemm, tile })?);
            }
            if direct::tile(gemm).is_some() {
                kernels.gemm_direct[gemm as usize] = function(Kernel::Direct { gemm })?;
            }
        }
        for (tile, form) in product::tiles(Gemm::Proj).iter().enumerate().filter(|(_, form)| form.cluster() > 1) {
            let function = kernels.gemm[Gemm::Proj as usize][tile];
            let blocks = form.cluster();
            let clusters = function.most_clusters(blocks as u32, form.threads(), form.shared)?;
            let most = &mut kernels.chip.clusters[blocks.ilog2() as usize - 1];
            *most = clusters.min(*most);
        }
        for (form, &blocks) in qkv_attention::BLOCKS.iter().enumerate() {
            let function = function(Kernel::QkvAttention { form })?;
            kernels.qkv_attention[form] = function;
            kernels.chip.heads[form] =
                function.most_clusters(blocks as u32, qkv_attention::THREADS, qkv_attention::SHARED)?;
        }
        for causal in [false, true] {
            for form in plan::attention_forms(causal) {
                kernels.attention[usize::from(causal)][form] = function(Kernel::Attention { form, causal })?;
            }
        }
        for form in 0..SHORT.len() {
            kernels.attention_short[form] = function(Kernel::AttentionShort { form })?;
        }
        for form in 0..SHARED.len() {
            kernels.shared[form] = function(Kernel::Shared { form })?;
        }
        for form in 0..ATTENTION_PROJ.len() {
            kernels.attention_proj[form] = function(Kernel::AttentionProj { form })?;
        }
        for weights in FewWeights::ALL {
            for tile in weights.tiles() {
                kernels.few[weights as usize][tile] = function(Kernel::Few { weights, tile })?;
            }
        }
        for aligned in [false, true] {
            for form in 0..FEW_IN_FP32.len() {
                kernels.few_in_fp32[usize::from(aligned)][form] = function(Kernel::FewInFp32 { aligned, form })?;
            }
        }
        modules.keep();
        Ok(kernels)
    }

    /// The loaded form of a planned kernel.
    #[must_use]
    pub fn get(&self, kernel: Kernel) -> Function {
        match kernel {
            Kernel::CastLayernorm => self.cast_layernorm,
            Kernel::LayernormVectors => self.layernorm_vectors,
            Kernel::Layernorm => self.layernorm,
            Kernel::Gemm { gemm, tile } => self.gemm[gemm as usize][tile],
            Kernel::Direct { gemm } => self.gemm_direct[gemm as usize],
            Kernel::Shared { form } => self.shared[form],
            Kernel::Attention { form, causal } => self.attention[usize::from(causal)][form],
            Kernel::AttentionShort { form } => self.attention_short[form],
            Kernel::QkvAttention { form } => self.qkv_attention[form],
            Kernel::AttentionProj { form } => self.attention_proj[form],
            Kernel::Few { weights, tile } => self.few[weights as usize][tile],
            Kernel::FewInFp32 { aligned, form } => self.few_in_fp32[usize::from(aligned)][form],
            Kernel::FewPrepare => self.few_prepare,
            Kernel::FewMerge => self.few_merge,
            Kernel::TransposeQkv => self.transpose_qkv,
            Kernel::FoldLayernorm2 => self.fold_layernorm2,
            Kernel::Apart { tile } => self.apart[tile],
            Kernel::FcScaled { tile } => self.fc_scaled[tile],
        }
    }
}

/// The name of a kernel in cuda/.
#[must_use]
pub fn symbol(kernel: Kernel) -> String {
    match kernel {
        Kernel::CastLayernorm => "cast_layernorm".into(),
        Kernel::LayernormVectors => "layernorm_vectors".into(),
        Kernel::Layernorm => "layernorm".into(),
        Kernel::Gemm { gemm, tile } => product_symbol(gemm, "", &product::tiles(gemm)[tile]),
        Kernel::Direct { gemm } => {
            direct::tile(gemm).map_or_else(String::new, |tile| product_symbol(gemm, "_direct", &tile))
        }
        Kernel::Shared { form } => {
            let SharedTile { gemm, m, n, .. } = SHARED[form];
            format!("gemm_{}_shared_{m}x{n}", if gemm == Gemm::Fc { "fc" } else { "qkv" })
        }
        Kernel::Attention { form, causal } => {
            let form = &ATTENTION[form];
            let blocks = if form.blocks > 1 { format!("x{}", form.blocks) } else { String::new() };
            let kind = match causal {
                true => "_causal",
                false if form.dealt => "_dealt",
                false => "",
            };
            format!("attention_{}x{}{blocks}_f16{kind}", form.rows, form.keys)
        }
        Kernel::AttentionShort { form } => format!("attention_short_{}_f16", SHORT[form]),
        Kernel::QkvAttention { form } => format!("qkv_attention_{}", qkv_attention::BLOCKS[form]),
        Kernel::AttentionProj { form } => {
            let form = &ATTENTION_PROJ[form];
            format!("attention_proj_{}_{}", if form.packed { "packed" } else { "direct" }, form.keys)
        }
        Kernel::Few { weights, tile } => {
            let weights = match weights {
                FewWeights::Aligned => "f32",
                FewWeights::Unaligned => "f32_unaligned",
                FewWeights::Prepared => "prepared",
            };
            format!("small_{weights}_{}{}", FEW[tile].rows, if FEW[tile].single { "x1" } else { "" })
        }
        Kernel::FewInFp32 { aligned, form } => {
            format!("small_fp32_{}{}", if aligned { "" } else { "unaligned_" }, FEW_IN_FP32[form].rows)
        }
        Kernel::FewPrepare => "small_prepare".into(),
        Kernel::FewMerge => "small_merge".into(),
        Kernel::TransposeQkv => "transpose_qkv".into(),
        Kernel::FoldLayernorm2 => "fold_layernorm2".into(),
        Kernel::FcScaled { tile } => product_symbol(Gemm::Fc, "_scaled", &product::tiles(Gemm::Fc)[tile]),
        Kernel::Apart { tile } => product_symbol(Gemm::AttnProj, "_apart", &product::tiles(Gemm::AttnProj)[tile]),
    }
}

/// Its launch, for error messages.
#[must_use]
pub fn what(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::CastLayernorm => "launch of the weight cast and LN1",
        Kernel::LayernormVectors | Kernel::Layernorm => "launch of LN1",
        Kernel::Gemm { gemm: Gemm::AttnProj, .. } => "launch of the attention projection and LN2",
        Kernel::Gemm { gemm, .. } | Kernel::Direct { gemm } => gemm.what(),
        Kernel::Shared { form } => SHARED[form].gemm.what(),
        Kernel::FcScaled { .. } => Gemm::Fc.what(),
        Kernel::Apart { .. } => Gemm::AttnProj.what(),
        Kernel::Attention { .. } | Kernel::AttentionShort { .. } => "launch of attention",
        Kernel::QkvAttention { .. } => "launch of the QKV product and attention",
        Kernel::AttentionProj { .. } => "launch of attention, its projection and LN2",
        Kernel::Few { .. } | Kernel::FewInFp32 { .. } => "launch of the block for few tokens",
        Kernel::FewPrepare => "launch of the weight cast",
        Kernel::FewMerge => "launch of the product of V's and the attention projection's weights",
        Kernel::TransposeQkv => "launch of the transposition of W_qkv",
        Kernel::FoldLayernorm2 => "launch of LN2's fold into the weights",
    }
}

fn product_symbol(gemm: Gemm, kind: &str, tile: &Tile) -> String {
    let Tile { m, n, splits, .. } = tile;
    let swapped = if tile.swapped { "_swapped" } else { "" };
    match gemm {
        Gemm::Qkv => format!("gemm_qkv{kind}_{m}x{n}{swapped}"),
        Gemm::AttnProj => format!("gemm_attn_proj{kind}_{m}x{n}"),
        Gemm::Fc => format!("gemm_fc{kind}_{m}x{n}{swapped}"),
        Gemm::Proj => format!("gemm_proj{kind}_{m}x{n}_k{splits}{swapped}"),
    }
}
