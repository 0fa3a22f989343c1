//! Which kernels serve a call, in which order, on which grids. Pure numbers: needs no GPU, so it is tested without one.

use std::ops::Deref;

use super::arch::Arch;
use crate::dims::{D, FFN, HEADS, QKV};

/// Blocks of the weight cast, each a fixed piece of the buffer (cuda/cast/cast.cuh).
const CAST_BLOCKS: usize = 875;
/// One warp normalises one row.
const LAYERNORM_THREADS: u32 = 256;
const LAYERNORM_ROWS: usize = LAYERNORM_THREADS as usize / 32;
/// Query rows of one attention block.
const ATTENTION_ROWS: usize = 128;

/// A step of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the formulas in lib.rs")]
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Cast => "launch of the weight cast",
            Self::CastLayernorm1 => "launch of the weight cast and LN1",
            Self::Layernorm1 => "launch of LN1",
            Self::Qkv => "launch of the QKV product",
            Self::Attention => "launch of attention",
            Self::AttnProj => "launch of the attention projection",
            Self::Layernorm2 => "launch of LN2",
            Self::Fc => "launch of the first feed-forward product",
            Self::Proj => "launch of the second feed-forward product",
        }
    }
}

/// What a GEMM block computes: m rows by n columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Tile {
    pub m: usize,
    pub n: usize,
}

/// The tiles that every portable GEMM is compiled for, smallest first.
pub const TILES: [Tile; 6] = [
    Tile { m: 16, n: 32 },
    Tile { m: 32, n: 48 },
    Tile { m: 64, n: 48 },
    Tile { m: 64, n: 96 },
    Tile { m: 128, n: 96 },
    Tile { m: 128, n: 192 },
];

/// The four matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after their weights")]
pub enum Gemm {
    Qkv,
    AttnProj,
    Fc,
    Proj,
}

impl Gemm {
    /// In the order of the block.
    pub const ALL: [Self; 4] = [Self::Qkv, Self::AttnProj, Self::Fc, Self::Proj];

    /// Columns of its output.
    #[must_use]
    pub fn columns(self) -> usize {
        match self {
            Self::Qkv => QKV,
            Self::Fc => FFN,
            Self::AttnProj | Self::Proj => D,
        }
    }

    fn stage(self) -> Stage {
        match self {
            Self::Qkv => Stage::Qkv,
            Self::AttnProj => Stage::AttnProj,
            Self::Fc => Stage::Fc,
            Self::Proj => Stage::Proj,
        }
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

const MAX_LAUNCHES: usize = 8;

/// The launches of one call, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    launches: [Launch; MAX_LAUNCHES],
    count: usize,
}

impl Deref for Plan {
    type Target = [Launch];

    fn deref(&self) -> &[Launch] {
        &self.launches[..self.count]
    }
}

impl FromIterator<Launch> for Plan {
    fn from_iter<I: IntoIterator<Item = Launch>>(launches: I) -> Self {
        let mut plan = Self { launches: [layernorm(Stage::Layernorm1, 0); MAX_LAUNCHES], count: 0 };
        for (slot, launch) in plan.launches.iter_mut().zip(launches) {
            *slot = launch;
            plan.count += 1;
        }
        plan
    }
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Tokens in each.
    pub seq_len: usize,
    /// Token i attends to tokens 0..=i only.
    pub causal: bool,
    /// The weights are already cast.
    pub prepared: bool,
}

/// The launches for one call on a GPU of this family with so many SMs.
#[must_use]
pub fn forward(arch: Arch, sms: usize, shape: Shape) -> Plan {
    let rows = shape.batch * shape.seq_len;
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
    .into_iter()
    .collect()
}

/// The cast of the weights alone.
#[must_use]
pub fn cast() -> Plan {
    [cast_layernorm(Stage::Cast, 0)].into_iter().collect()
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

/// The largest tile that keeps most of the GPU busy in one wave: a larger tile loads less for each product.
fn gemm_launch(arch: Arch, sms: usize, gemm: Gemm, rows: usize) -> Launch {
    let blocks = |tile: &Tile| rows.div_ceil(tile.m) * (gemm.columns() / tile.n);
    let busy = |tile: &Tile| 10 * blocks(tile) >= 7 * sms;
    let smallest = usize::from(rows > TILES[0].m);
    let tile = TILES.iter().rposition(busy).unwrap_or(smallest);
    let kernel = Kernel::Gemm { gemm, tile };
    let grid = [count(blocks(&TILES[tile])), 1, 1];
    Launch { stage: gemm.stage(), kernel, grid, threads: 256, shared: shared_bytes(arch, kernel) }
}

/// Dynamic shared memory of a block, as the kernels' own headers compute it.
#[must_use]
pub fn shared_bytes(arch: Arch, kernel: Kernel) -> u32 {
    match (kernel, arch) {
        (Kernel::CastLayernorm | Kernel::Layernorm, _) => 0,
        (Kernel::Attention { .. }, Arch::Sm75) => 55_296,
        (Kernel::Attention { .. }, _) => 92_160,
        (Kernel::Gemm { tile, .. }, Arch::Sm75) => GEMM_SHARED_SM75[tile],
        (Kernel::Gemm { tile, .. }, _) => GEMM_SHARED_SM80[tile],
    }
}

/// `GemmShared<Arch, Tile>::BYTES` of cuda/gemm/gemm_tile.cuh, in the order of [`TILES`].
const GEMM_SHARED_SM75: [u32; TILES.len()] = [29_312, 57_536, 57_536, 53_632, 34_176, 58_112];
const GEMM_SHARED_SM80: [u32; TILES.len()] = [87_680, 92_352, 82_112, 90_496, 84_864, 92_928];

/// Grid dimensions are far below 2^32: rows are below 2^31.
fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
