//! Which Hopper kernels serve a call and on which grids: pure numbers, tested without a GPU.
//!
//! Up to [`FEW_ROWS`] rows, or [`MOST_SINGLES`] single tokens of a handle, one resident kernel computes the block. Above, six kernels; five while attention
//! fits into the kernel of its projection, where it is in one with QKV, and where single tokens need none.
//! From the caller's weights the products read them as they are up to [`DIRECT_ROWS`] rows, where none is read twice; QKV and FC, two blocks of which share
//! what they convert, up to [`SHARED_ROWS`]; either only on a chip that has room at once for all blocks that wait for each other. All other products read fp16
//! weights, each in the tile whose waves of blocks take the least time, and SMs that a kernel leaves idle cast weights for those after it.

mod attention;
mod attention_proj;
mod cast;
pub mod direct;
mod few;
pub mod product;
pub mod qkv_attention;
pub mod shared;

use std::ops::Range;

pub use crate::cuda::block::Gemm;
use crate::cuda::block::Shape;
use crate::cuda::launch::Residency;
use crate::dims::{D, FFN, QKV};
pub use attention::{
    ATTENTION, AttentionForm, DEALT_KEYS, Dealing, FLAG_BYTES, MOST_SHARES, PART_BYTES, SHORT, UNDEALT_ROWS,
    attention_forms, attention_in, dealing, row_groups,
};
pub use attention_proj::{ATTENTION_PROJ, AttentionProjForm, ROW_TILES};
pub use cast::{CHUNKS, CHUNKS_ATTN, CHUNKS_QKV, proj_rows_before_fc, qkv_makes_room};
use cast::{CHUNKS_PROJ, FEWEST_WORKERS, NOTHING, cast_layernorm, casting};
use cast::{casting_rest, layernorm, layernorm_vectors};
pub use few::{FEW, FEW_IN_FP32, FewTile, FewWeights, MOST_SINGLES, PartBox, in_fp32, is_few, judges_itself};

/// What a plan must know about the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Streaming multiprocessors.
    pub sms: usize,
    /// Clusters of two, of four and of eight blocks that run at the same time, a block to an SM: fewer than the SMs would hold where their groups have odd
    /// sizes.
    pub clusters: [usize; 3],
    /// Clusters of QKV and attention in one kernel, a head each, that run at the same time, in each form of it.
    pub heads: [usize; qkv_attention::BLOCKS.len()],
}

/// Rows up to which the one resident kernel is the faster way, but for single tokens of a handle ([`is_few`]); measured on an H200.
pub const FEW_ROWS: usize = 32;

/// Rows up to which all products read the caller's fp32 weights; measured on an H200 and on an H100.
pub const DIRECT_ROWS: usize = direct::ROWS;
/// Rows up to which QKV and FC do; measured there, too.
pub const SHARED_ROWS: usize = 256;

/// A compiled kernel. `CastLayernorm` is the first of a call from the caller's weights, `LayernormVectors` where nothing is cast beside it, `Layernorm` of a
/// prepared block's; `Apart` is the attention projection for weights that LN2 is folded into, whose blocks do not wait for each other, `FcScaled` FC behind
/// it; `QkvAttention` is QKV and attention in one, `AttentionShort` attention of short sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after cuda/, where `Few` is `small`")]
pub enum Kernel {
    CastLayernorm,
    LayernormVectors,
    Layernorm,
    Gemm { gemm: Gemm, tile: usize },
    Direct { gemm: Gemm },
    Shared { form: usize },
    Attention { form: usize, causal: bool },
    AttentionShort { form: usize },
    QkvAttention { form: usize },
    AttentionProj { form: usize },
    Apart { tile: usize },
    FcScaled { tile: usize },
    Few { weights: FewWeights, tile: usize },
    FewInFp32 { aligned: bool, form: usize },
    FewPrepare,
    FewMerge,
    TransposeQkv,
    FoldLayernorm2,
}

impl Kernel {
    /// Where its blocks wait for others of the grid, it is launched cooperatively, all of it or nothing: half of it could wait for ever for places that half
    /// of another stream's has. In the attention projection they wait for others of their rows, and come together as `waiting` says.
    #[must_use]
    pub fn residency(self, waiting: Residency) -> Residency {
        match self {
            Self::Few { .. } | Self::FewInFp32 { .. } => Residency::Cooperative,
            Self::AttentionProj { .. } | Self::Gemm { gemm: Gemm::AttnProj, .. } => waiting,
            _ => Residency::Any,
        }
    }

    /// Whether it is the first of a call, or a step of a preparation: it starts when all before it has ended, but where the call may begin early.
    #[must_use]
    pub fn comes_first(self) -> bool {
        matches!(
            self,
            Self::CastLayernorm
                | Self::LayernormVectors
                | Self::Layernorm
                | Self::Few { .. }
                | Self::FewInFp32 { .. }
                | Self::FewPrepare
                | Self::FewMerge
                | Self::TransposeQkv
                | Self::FoldLayernorm2
        )
    }
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which kernel runs.
    pub kernel: Kernel,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory in a block.
    pub shared: u32,
    /// Blocks that do the kernel's own work; the others cast.
    pub working: u32,
    /// Chunks of weights that this launch casts; those of W_fc are left out where FC reads it as it is.
    pub cast: Range<u32>,
}

/// The launches for one call on this GPU, for weights that are 16-byte aligned or not.
#[must_use]
pub fn forward(chip: Chip, shape: Shape, aligned: bool) -> Vec<Launch> {
    if few::is_few(&shape) { vec![few::few(chip, shape, aligned)] } else { many(chip, shape) }
}

/// Whether FC raises alarms of weights: of its own, or of those that its warps cast.
#[must_use]
pub fn fc_watches(chip: Chip, rows: usize) -> bool {
    rows <= SHARED_ROWS || !cast::casting_fc(chip, rows).cast.is_empty()
}

/// The casts of all weights for later calls.
#[must_use]
pub fn prepare() -> Vec<Launch> {
    let prepare =
        Launch { kernel: Kernel::FewPrepare, grid: [528, 1, 1], threads: 256, shared: 0, working: 528, cast: NOTHING };
    let grid = [(QKV / 32) as u32, (D / 32) as u32, 1];
    let working = grid[0] * grid[1];
    let transpose = Launch { kernel: Kernel::TransposeQkv, grid, threads: 256, shared: 0, working, cast: NOTHING };
    let grid = [(FFN / 32 + 8 + D / 32) as u32, 1, 1];
    let fold =
        Launch { kernel: Kernel::FoldLayernorm2, grid, threads: 1024, shared: 0, working: grid[0], cast: NOTHING };
    vec![cast_layernorm(0, 0..CHUNKS), fold, transpose, prepare, few::merge()]
}

/// Whether the launch's blocks start two by two on neighbours, an even number of them: of the first kernel beside products that read the caller's weights, 65
/// to 640 rows -0.1 to -0.7 us, 768 +0.3; QKV's of 64 rows -0.25, FC's +1.5 (H200, lab builds of 2026-11-29).
#[must_use]
pub fn starts_in_pairs(launch: &Launch, rows: usize) -> bool {
    match launch.kernel {
        Kernel::CastLayernorm | Kernel::LayernormVectors => cast::PAIRED_ROWS.contains(&rows),
        Kernel::Direct { gemm } => gemm == Gemm::Qkv,
        _ => false,
    }
}

fn many(chip: Chip, shape: Shape) -> Vec<Launch> {
    let rows = shape.rows();
    let short = match rows {
        _ if shape.prepared => prepared_products(chip, shape),
        rows if rows <= DIRECT_ROWS => direct_products(chip, rows),
        rows if rows <= SHARED_ROWS => shared_products(chip, shape),
        _ => None,
    };
    if let Some(launches) = short {
        return launches;
    }
    if let Some(both) = qkv_attention::qkv_attention(chip, shape) {
        return both.to_vec();
    }
    let product = |gemm| product::product(chip, gemm, rows, shape.prepared);
    let mut launches = if !shape.prepared {
        casting(chip, shape).to_vec()
    } else {
        let [projection, fc] = product::apart(chip, rows);
        let mut launches = vec![layernorm(rows), product(Gemm::Qkv)];
        if shape.seq_len > 1 {
            launches.push(attention::short(shape).unwrap_or_else(|| attention::attention(chip, shape)));
        }
        launches.extend([projection, fc]);
        launches
    };
    launches.push(product(Gemm::Proj));
    launches
}

/// Prepared weights, and attention in the kernel of its projection. None: there are too many rows, or too few SMs.
fn prepared_products(chip: Chip, shape: Shape) -> Option<Vec<Launch>> {
    let rows = shape.rows();
    if rows > ATTENTION_PROJ[attention_proj::PREPARED].keys {
        return None;
    }
    let both = attention_proj::attention_proj(chip, attention_proj::PREPARED)?;
    let [qkv, fc, proj] = [Gemm::Qkv, Gemm::Fc, Gemm::Proj].map(|gemm| product::product(chip, gemm, rows, true));
    Some(vec![layernorm(rows), qkv, both, fc, proj])
}

/// No cast: the first kernel normalises and copies the small parameters, the products convert the weights that they read. None: there are too few SMs.
fn direct_products(chip: Chip, rows: usize) -> Option<Vec<Launch>> {
    let both = attention_proj::attention_proj(chip, attention_proj::DIRECT)?;
    let [qkv, fc, proj] = [Gemm::Qkv, Gemm::Fc, Gemm::Proj].map(direct::product);
    Some(vec![cast_layernorm(rows, 0..0), qkv?, both, fc?, proj?])
}

/// QKV and FC convert what they read; what the other two read is cast beside the kernels before each, but not beside attention where that is a kernel of its
/// own: its few copies would wait, and the projection behind it. None: there are not enough SMs for it.
fn shared_products(chip: Chip, shape: Shape) -> Option<Vec<Launch>> {
    let rows = shape.rows();
    let together = rows <= ATTENTION_PROJ[attention_proj::CASTING].keys;
    let qkv = shared::casting_qkv(chip, rows)?;
    let fc = shared::for_rows(Gemm::Fc, rows)?;
    let proj = product::product(chip, Gemm::Proj, rows, false);
    let first = qkv.cast.end.max(CHUNKS - CHUNKS_PROJ);
    if together {
        let both = attention_proj::casting_attention_proj(chip, first)?;
        return Some(vec![cast_layernorm(rows, 0..0), qkv, both, fc, proj]);
    }
    let projection = casting_rest(chip, rows, first, &fc)?;
    Some(vec![layernorm_vectors(rows), qkv, attention::attention(chip, shape), projection, fc, proj])
}

/// Dynamic shared memory of a block, as the kernels' own headers compute it.
#[must_use]
pub fn shared_bytes(kernel: Kernel) -> u32 {
    match kernel {
        Kernel::CastLayernorm
        | Kernel::LayernormVectors
        | Kernel::Layernorm
        | Kernel::AttentionShort { .. }
        | Kernel::FewPrepare
        | Kernel::TransposeQkv
        | Kernel::FoldLayernorm2 => 0,
        Kernel::FewMerge => few::MERGE_SHARED,
        Kernel::Apart { tile } => product::APART_SHARED[tile],
        Kernel::FcScaled { tile } => {
            let form = &product::tiles(Gemm::Fc)[tile];
            // A factor for each row; with them, in the largest tile, the biases that the other FC reads where they lie.
            let biases = if form.m == 192 && !form.swapped { form.n } else { 0 };
            form.shared + 4 * (form.m + biases) as u32
        }
        Kernel::Gemm { gemm, tile } => product::tiles(gemm)[tile].shared,
        Kernel::Direct { gemm } => direct::tile(gemm).map_or(0, |tile| tile.shared),
        Kernel::Shared { form } => shared::SHARED[form].shared,
        Kernel::Attention { form, .. } => ATTENTION[form].shared,
        Kernel::QkvAttention { .. } => qkv_attention::SHARED,
        Kernel::AttentionProj { form } => ATTENTION_PROJ[form].shared,
        Kernel::Few { .. } => few::FEW_SHARED,
        Kernel::FewInFp32 { .. } => few::FEW_IN_FP32_SHARED,
    }
}

/// A grid dimension. Far below 2^32, as rows are below 2^31.
fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
