//! Which kernels serve a call, in which order, on which grids. Pure numbers: needs no GPU, so it is tested without one.

use crate::cuda::arch::Arch;
pub use crate::cuda::block::Gemm;
use crate::cuda::block::Shape;
use crate::dims::HEADS;

/// Blocks of the weight cast, each a fixed piece of the buffer (cuda/cast/cast.cuh).
const CAST_BLOCKS: usize = 877;
/// One warp normalises one row.
const LAYERNORM_THREADS: u32 = 256;
const LAYERNORM_ROWS: usize = LAYERNORM_THREADS as usize / 32;
/// Query rows of one attention block.
const ATTENTION_ROWS: usize = 128;

/// A step of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the block's parts")]
pub enum Stage {
    Cast,
    CastLayernorm1,
    Layernorm1,
    Qkv,
    Attention,
    AttnProj,
    Layernorm2,
    Fc,
    Proj,
}

impl Stage {
    /// For error messages.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Cast => "launch of the weight cast",
            Self::CastLayernorm1 => "launch of the weight cast and LN1",
            Self::Layernorm1 => "launch of LN1",
            Self::Qkv => Gemm::Qkv.what(),
            Self::Attention => "launch of attention",
            Self::AttnProj => Gemm::AttnProj.what(),
            Self::Layernorm2 => "launch of LN2",
            Self::Fc => Gemm::Fc.what(),
            Self::Proj => Gemm::Proj.what(),
        }
    }
}

/// One form of the GEMM kernel: a block computes m rows by n columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Threads of a block.
    pub threads: u32,
    /// `GemmShared<Arch, Tile>::BYTES` of cuda/gemm/gemm_tile.cuh on sm80 and on sm75.
    pub shared: [u32; 2],
    /// Time of one block per SM, in hundredths of the largest tile's; measured on an H200.
    cost: usize,
}

/// The tiles that every portable GEMM is compiled for, smallest first.
pub const TILES: [Tile; 6] = [
    Tile { m: 16, n: 32, threads: 256, shared: [86_912, 57_984], cost: 14 },
    Tile { m: 32, n: 64, threads: 256, shared: [81_664, 54_528], cost: 25 },
    Tile { m: 64, n: 64, threads: 256, shared: [73_984, 37_120], cost: 34 },
    Tile { m: 64, n: 96, threads: 128, shared: [90_496, 45_440], cost: 44 },
    Tile { m: 128, n: 96, threads: 256, shared: [95_616, 63_872], cost: 66 },
    Tile { m: 128, n: 192, threads: 256, shared: [92_928, 58_112], cost: 100 },
];

/// The stage of a product.
fn stage_of(gemm: Gemm) -> Stage {
    match gemm {
        Gemm::Qkv => Stage::Qkv,
        Gemm::AttnProj => Stage::AttnProj,
        Gemm::Fc => Stage::Fc,
        Gemm::Proj => Stage::Proj,
    }
}

/// A compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kernel {
    CastLayernorm,
    Layernorm,
    Attention { causal: bool },
    Gemm { gemm: Gemm, tile: usize },
}

/// One launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What it is for, and so which arguments it gets.
    pub stage: Stage,
    /// Which kernel runs.
    pub kernel: Kernel,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory in a block.
    pub shared: u32,
}

/// The launches for one call on a GPU of this family with so many SMs, in order.
#[must_use]
pub fn forward(arch: Arch, sms: usize, shape: Shape) -> [Launch; 7] {
    let rows = shape.rows();
    let gemm = |gemm| gemm_launch(arch, sms, gemm, rows);
    let first =
        if shape.prepared { layernorm(Stage::Layernorm1, rows) } else { cast_layernorm(Stage::CastLayernorm1, rows) };
    [
        first,
        gemm(Gemm::Qkv),
        attention(arch, shape),
        gemm(Gemm::AttnProj),
        layernorm(Stage::Layernorm2, rows),
        gemm(Gemm::Fc),
        gemm(Gemm::Proj),
    ]
}

/// The cast of the weights alone.
#[must_use]
pub fn cast() -> Launch {
    cast_layernorm(Stage::Cast, 0)
}

fn cast_layernorm(stage: Stage, rows: usize) -> Launch {
    let blocks = CAST_BLOCKS + rows.div_ceil(LAYERNORM_ROWS);
    Launch { stage, kernel: Kernel::CastLayernorm, grid: [count(blocks), 1, 1], threads: LAYERNORM_THREADS, shared: 0 }
}

fn layernorm(stage: Stage, rows: usize) -> Launch {
    let blocks = rows.div_ceil(LAYERNORM_ROWS);
    Launch { stage, kernel: Kernel::Layernorm, grid: [count(blocks), 1, 1], threads: LAYERNORM_THREADS, shared: 0 }
}

fn attention(arch: Arch, shape: Shape) -> Launch {
    let blocks = shape.seq_len.div_ceil(ATTENTION_ROWS);
    let threads = if arch == Arch::Sm75 { 128 } else { 256 };
    let kernel = Kernel::Attention { causal: shape.causal };
    let grid = [count(blocks), count(HEADS), count(shape.batch)];
    Launch { stage: Stage::Attention, kernel, grid, threads, shared: shared_bytes(arch, kernel) }
}

/// The tile whose waves of blocks take the least time; of equals the larger, which loads less for each product.
fn gemm_launch(arch: Arch, sms: usize, gemm: Gemm, rows: usize) -> Launch {
    let blocks = |tile: &Tile| rows.div_ceil(tile.m) * (gemm.columns() / tile.n);
    let time = |tile: &Tile| blocks(tile).div_ceil(sms) * tile.cost;
    let tile = (0..TILES.len()).rev().min_by_key(|&tile| time(&TILES[tile])).unwrap_or(0);
    gemm_in(arch, gemm, tile, rows)
}

/// The launch of a GEMM in this tile of [`TILES`].
#[must_use]
pub fn gemm_in(arch: Arch, gemm: Gemm, tile: usize, rows: usize) -> Launch {
    let kernel = Kernel::Gemm { gemm, tile };
    let Tile { m, n, threads, .. } = TILES[tile];
    let grid = [count(rows.div_ceil(m) * (gemm.columns() / n)), 1, 1];
    Launch { stage: stage_of(gemm), kernel, grid, threads, shared: shared_bytes(arch, kernel) }
}

/// Dynamic shared memory of a block, as the kernels' own headers compute it.
#[must_use]
pub fn shared_bytes(arch: Arch, kernel: Kernel) -> u32 {
    match (kernel, arch) {
        (Kernel::CastLayernorm | Kernel::Layernorm, _) => 0,
        (Kernel::Attention { .. }, Arch::Sm75) => 55_296,
        (Kernel::Attention { .. }, _) => 92_160,
        (Kernel::Gemm { tile, .. }, arch) => TILES[tile].shared[usize::from(arch == Arch::Sm75)],
    }
}

/// Grid dimensions are far below 2^32: rows are below 2^31.
fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
