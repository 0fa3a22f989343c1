//! Which Hopper kernels serve a call and on which grids: pure numbers, tested without a GPU.
//!
//! Up to [`FEW_ROWS`] rows one resident kernel computes the block. Above, six kernels. From the caller's weights the products read them as they are
//! up to [`DIRECT_ROWS`] rows, where hardly any is read twice. In all other calls they read fp16 weights, each in the tile whose waves of blocks take
//! the least time, and SMs that a product or attention leaves idle cast weights for the kernels after it.

use std::ops::Range;

use crate::cuda::block::Shape;
use crate::dims::{D, FFN, HEADS, QKV};

/// Rows up to which the one resident kernel is the faster way; measured on an H200.
pub const FEW_ROWS: usize = 32;

/// Rows up to which the products read the caller's fp32 weights; measured on an H200.
pub const DIRECT_ROWS: usize = 256;

/// Chunks of 4096 weights, as the cast counts them (cuda/cast/cast_sm90a.cuh): W_qkv, W_attn, W_fc, W_proj.
pub const CHUNKS: u32 = CHUNKS_QKV + ((D * D + 2 * D * FFN) / 4096) as u32;
/// The chunks of W_qkv.
pub const CHUNKS_QKV: u32 = (D * QKV / 4096) as u32;
/// Blocks of the first kernel that copy the small parameters.
const VECTOR_BLOCKS: usize = 12;

/// One form of a matrix product: a block computes m rows by n columns, of `splits` parts of K that a cluster adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Parts of K.
    pub splits: usize,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of one wave of blocks in 0.01 us, measured on an H200.
    cost: usize,
}

impl Tile {
    const fn new(m: usize, n: usize, shared: u32, cost: usize) -> Self {
        Self { m, n, splits: 1, shared, cost }
    }

    const fn split(m: usize, n: usize, splits: usize, shared: u32, cost: usize) -> Self {
        Self { m, n, splits, shared, cost }
    }

    /// Two warps a row of 16 and the producer.
    #[must_use]
    pub fn threads(&self) -> u32 {
        2 * self.m as u32 + 32
    }

    fn tiles(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.m) * (columns / self.n)
    }
}

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

    /// Rows of its weights.
    #[must_use]
    pub fn depth(self) -> usize {
        if self == Self::Proj { FFN } else { D }
    }

    /// The tiles that its kernel is compiled for.
    #[must_use]
    pub fn tiles(self) -> &'static [Tile] {
        match self {
            Self::Qkv => &QKV_TILES,
            Self::AttnProj => &ATTN_PROJ_TILES,
            Self::Fc => &FC_TILES,
            Self::Proj => &PROJ_TILES,
        }
    }
}

const QKV_TILES: [Tile; 4] = [
    Tile::new(64, 64, 215_296, 240),
    Tile::new(64, 96, 207_056, 340),
    Tile::new(128, 96, 207_008, 435),
    Tile::new(128, 192, 223_360, 695),
];
const ATTN_PROJ_TILES: [Tile; 4] = [
    Tile::new(64, 32, 166_144, 440),
    Tile::new(64, 96, 198_848, 490),
    Tile::new(128, 96, 202_896, 950),
    Tile::new(128, 192, 231_536, 1500),
];
const FC_TILES: [Tile; 5] = [
    Tile::new(64, 64, 218_368, 240),
    Tile::new(64, 96, 210_128, 340),
    Tile::new(128, 96, 210_080, 435),
    Tile::new(128, 192, 226_432, 695),
    Tile::new(128, 256, 226_416, 930),
];
const PROJ_TILES: [Tile; 7] = [
    Tile::split(64, 64, 4, 224_496, 410),
    Tile::split(128, 64, 4, 185_504, 630),
    Tile::split(128, 128, 4, 226_448, 800),
    Tile::split(64, 192, 2, 224_416, 1010),
    Tile::split(128, 128, 2, 169_088, 1310),
    Tile::split(128, 192, 2, 218_240, 1700),
    Tile::new(128, 192, 229_488, 3450),
];

/// The forms of the products that read fp32 weights: for up to 64 rows, and for more.
pub mod direct {
    use super::{Gemm, Tile};

    const QKV_TILES: [Tile; 2] = [Tile::new(64, 32, 103_680, 0), Tile::new(128, 64, 214_400, 0)];
    const ATTN_PROJ_TILES: [Tile; 1] = [Tile::new(64, 32, 92_272, 0)];
    const FC_TILES: [Tile; 2] = [Tile::new(64, 32, 103_680, 0), Tile::new(128, 64, 214_400, 0)];
    const PROJ_TILES: [Tile; 3] =
        [Tile::split(64, 32, 4, 111_744, 0), Tile::split(128, 32, 4, 222_336, 0), Tile::split(128, 64, 4, 185_456, 0)];

    /// The tiles that this product's kernel is compiled for.
    #[must_use]
    pub fn tiles(gemm: Gemm) -> &'static [Tile] {
        match gemm {
            Gemm::Qkv => &QKV_TILES,
            Gemm::AttnProj => &ATTN_PROJ_TILES,
            Gemm::Fc => &FC_TILES,
            Gemm::Proj => &PROJ_TILES,
        }
    }

    /// The faster of them, by measurement on an H200.
    pub(super) fn tile_for(gemm: Gemm, rows: usize) -> usize {
        let size = usize::from(rows > 64) + usize::from(rows > 128);
        match gemm {
            Gemm::Qkv => [0, 1, 1][size],
            Gemm::AttnProj => 0,
            Gemm::Fc => [0, 0, 1][size],
            Gemm::Proj => size,
        }
    }
}

/// One form of attention: a block takes so many groups of 64 query rows, and shares the keys among so many groups of warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForm {
    /// Groups of 64 query rows.
    pub rows: usize,
    /// Groups of keys.
    pub keys: usize,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of a block for 1024 keys in 0.01 us, measured on an H200.
    cost: usize,
}

/// Time of attention beside that of its blocks, in 0.01 us.
const ATTENTION_COST: usize = 250;

/// The forms that attention is compiled for.
pub const ATTENTION: [AttentionForm; 3] = [
    AttentionForm { rows: 1, keys: 2, shared: 177_352, cost: 520 },
    AttentionForm { rows: 2, keys: 1, shared: 181_376, cost: 860 },
    AttentionForm { rows: 3, keys: 1, shared: 189_568, cost: 1060 },
];

/// One form of the resident kernel: so many rows in `tile` rows of the matrix instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FewTile {
    /// Most rows.
    pub rows: usize,
    /// Bytes of shared memory, from fp32 weights and from prepared ones.
    pub shared: [u32; 2],
}

/// The forms of the resident kernel, smallest first.
pub const FEW: [FewTile; 3] = [
    FewTile { rows: 16, shared: [190_208, 171_392] },
    FewTile { rows: 32, shared: [214_784, 223_616] },
    FewTile { rows: 64, shared: [196_352, 223_616] },
];
/// Threads of the resident kernel.
const FEW_THREADS: u32 = 384;
/// Most blocks of the resident kernel.
const FEW_BLOCKS: usize = 128;

/// Where the resident kernel takes the weights from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FewWeights {
    /// The caller's, 16-byte aligned, by tensor maps.
    Aligned,
    /// The caller's as they come.
    Unaligned,
    /// Prepared ones.
    Prepared,
}

impl FewWeights {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aligned, Self::Unaligned, Self::Prepared];
}

/// A compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after cuda/")]
pub enum Kernel {
    CastLayernorm,
    Gemm { gemm: Gemm, tile: usize },
    Direct { gemm: Gemm, tile: usize },
    Attention { form: usize, causal: bool },
    Few { weights: FewWeights, tile: usize },
    FewPrepare,
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
    /// Chunks of weights that this launch casts.
    pub cast: Range<u32>,
}

const NOTHING: Range<u32> = CHUNKS..CHUNKS;

/// The launches for one call on a GPU with so many SMs, for weights that are 16-byte aligned or not.
#[must_use]
pub fn forward(sms: usize, shape: Shape, aligned: bool) -> Vec<Launch> {
    if shape.rows() <= FEW_ROWS { vec![few(sms, shape, aligned)] } else { many(sms, shape) }
}

/// The casts of all weights for later calls.
#[must_use]
pub fn prepare() -> Vec<Launch> {
    let prepare =
        Launch { kernel: Kernel::FewPrepare, grid: [528, 1, 1], threads: 256, shared: 0, working: 528, cast: NOTHING };
    vec![cast_layernorm(0, 0..CHUNKS), prepare]
}

fn few(sms: usize, shape: Shape, aligned: bool) -> Launch {
    let tile = FEW.iter().position(|tile| shape.rows() <= tile.rows).unwrap_or(FEW.len() - 1);
    let weights = match (shape.prepared, aligned) {
        (true, _) => FewWeights::Prepared,
        (false, true) => FewWeights::Aligned,
        (false, false) => FewWeights::Unaligned,
    };
    let blocks = count(sms.min(FEW_BLOCKS));
    let kernel = Kernel::Few { weights, tile };
    Launch {
        kernel,
        grid: [blocks, 1, 1],
        threads: FEW_THREADS,
        shared: shared_bytes(kernel),
        working: blocks,
        cast: NOTHING,
    }
}

fn many(sms: usize, shape: Shape) -> Vec<Launch> {
    let rows = shape.rows();
    if !shape.prepared && rows <= DIRECT_ROWS {
        return direct_products(sms, shape);
    }
    let attention = attention(sms, shape);
    let mut first = if shape.prepared {
        [cast_layernorm(rows, NOTHING), gemm(sms, Gemm::Qkv, rows), attention]
    } else {
        casting(sms, shape, &attention)
    }
    .to_vec();
    first.extend([Gemm::AttnProj, Gemm::Fc, Gemm::Proj].map(|product| gemm(sms, product, rows)));
    first
}

/// No cast: the first kernel normalises and copies the small parameters, the products convert the weights that they read.
fn direct_products(sms: usize, shape: Shape) -> Vec<Launch> {
    let rows = shape.rows();
    let product = |gemm| {
        let tile = direct::tile_for(gemm, rows);
        let form = &direct::tiles(gemm)[tile];
        let blocks = count(form.tiles(rows, gemm.columns()) * form.splits);
        Launch {
            kernel: Kernel::Direct { gemm, tile },
            grid: [blocks, 1, 1],
            // Two warpgroups more than the product's own read and convert.
            threads: form.threads() + 256,
            shared: form.shared,
            working: blocks,
            cast: NOTHING,
        }
    };
    vec![
        cast_layernorm(rows, 0..0),
        product(Gemm::Qkv),
        attention(sms, shape),
        product(Gemm::AttnProj),
        product(Gemm::Fc),
        product(Gemm::Proj),
    ]
}

/// Chunks that one idle SM casts in a microsecond, and all of them together in the first kernel; measured on an H200.
const CAST_RATE: usize = 4;
const CAST_RATE_ALL: usize = 260;

/// The first three launches with the cast of all weights: what the SMs that the QKV product and attention leave idle can do in that time, they do;
/// the rest is done before. The QKV product takes the tile with which all this is over first.
fn casting(sms: usize, shape: Shape, attention: &Launch) -> [Launch; 3] {
    let rows = shape.rows();
    let rest = (CHUNKS - CHUNKS_QKV) as usize;
    // Workers join attention in rows of its grid. Causal attention has no such role: only a prepared block is causal.
    let (row, idle) = (attention.grid[0], idle_sms(sms, attention));
    let second = if shape.causal { 0 } else { idle / row * row };
    let second_share = capacity(second, attention_time(sms, shape));

    let time = |tile: usize| product_time(sms, Gemm::Qkv, &QKV_TILES[tile], rows);
    let first_share = |tile: usize| capacity(idle_sms(sms, &gemm_in(sms, Gemm::Qkv, tile, rows)), time(tile));
    let before = |tile: usize| rest.saturating_sub(first_share(tile) + second_share);
    let tile =
        (0..QKV_TILES.len()).rev().min_by_key(|&tile| time(tile) + 100 * before(tile) / CAST_RATE_ALL).unwrap_or(0);

    let start = CHUNKS_QKV + count(before(tile));
    let hidden = (CHUNKS - start) as usize;
    let middle = start + count(hidden * first_share(tile) / (first_share(tile) + second_share).max(1));
    let mut launches = [cast_layernorm(rows, 0..start), gemm_in(sms, Gemm::Qkv, tile, rows), attention.clone()];
    if middle > start {
        launches[1].grid[0] += idle_sms(sms, &launches[1]);
        launches[1].cast = start..middle;
    }
    if CHUNKS > middle {
        launches[2].grid[1] += second / row;
        launches[2].cast = middle..CHUNKS;
    }
    launches
}

/// SMs without a block in the last wave.
fn idle_sms(sms: usize, launch: &Launch) -> u32 {
    match launch.working as usize % sms {
        0 => 0,
        last_wave => count(sms - last_wave),
    }
}

/// Chunks that so many SMs cast in this time, in 0.01 us.
fn capacity(workers: u32, time: usize) -> usize {
    workers as usize * time * CAST_RATE / 100
}

fn attention(sms: usize, shape: Shape) -> Launch {
    let form = (0..ATTENTION.len()).min_by_key(|&form| form_time(sms, shape, &ATTENTION[form])).unwrap_or(0);
    attention_in(shape, form)
}

fn attention_time(sms: usize, shape: Shape) -> usize {
    ATTENTION.iter().map(|form| form_time(sms, shape, form)).min().unwrap_or(0)
}

/// Time of attention in this form, in 0.01 us.
fn form_time(sms: usize, shape: Shape, form: &AttentionForm) -> usize {
    let blocks = shape.seq_len.div_ceil(64 * form.rows) * HEADS * shape.batch;
    let thousandths = if shape.causal {
        // The blocks with the most keys come first and the others, half as long in the mean, fill the gaps, but not wholly.
        (blocks * 500 / sms + 300).max(1000)
    } else {
        blocks.div_ceil(sms) * 1000
    };
    ATTENTION_COST + thousandths * shape.seq_len / 1024 * form.cost / 1000
}

/// The launch of attention in this form.
#[must_use]
pub fn attention_in(shape: Shape, form: usize) -> Launch {
    let AttentionForm { rows, keys, shared, .. } = ATTENTION[form];
    let (groups, heads) = (count(shape.seq_len.div_ceil(64 * rows)), count(HEADS));
    let batch = count(shape.batch);
    Launch {
        kernel: Kernel::Attention { form, causal: shape.causal },
        grid: if shape.causal { [heads, groups, batch] } else { [groups, heads, batch] },
        threads: 128 * (rows * keys + 1) as u32,
        shared,
        working: groups * heads * batch,
        cast: NOTHING,
    }
}

fn cast_layernorm(rows: usize, cast: Range<u32>) -> Launch {
    // A prepared block has the small parameters already.
    let vectors = if cast == NOTHING { 0 } else { VECTOR_BLOCKS };
    let blocks = count(rows.div_ceil(8) + vectors) + cast.len() as u32;
    Launch { kernel: Kernel::CastLayernorm, grid: [blocks, 1, 1], threads: 256, shared: 0, working: blocks, cast }
}

fn gemm(sms: usize, gemm: Gemm, rows: usize) -> Launch {
    let tiles = gemm.tiles();
    let tile = (0..tiles.len()).rev().min_by_key(|&tile| product_time(sms, gemm, &tiles[tile], rows)).unwrap_or(0);
    gemm_in(sms, gemm, tile, rows)
}

/// Time of a product in this tile, in 0.01 us: its waves of blocks.
fn product_time(sms: usize, gemm: Gemm, tile: &Tile, rows: usize) -> usize {
    let blocks = tile.tiles(rows, gemm.columns()) * tile.splits;
    blocks.div_ceil(resident(gemm, tile, sms)) * tile.cost
}

/// Blocks that run at the same time. Those that share a row in the attention projection must all be among them.
fn resident(gemm: Gemm, tile: &Tile, sms: usize) -> usize {
    match gemm {
        Gemm::AttnProj => {
            let row = D / tile.n;
            (sms / row).max(1) * row
        }
        _ => sms / tile.splits * tile.splits,
    }
}

/// The launch of a matrix product in this one of its tiles.
#[must_use]
pub fn gemm_in(sms: usize, gemm: Gemm, tile: usize, rows: usize) -> Launch {
    let kernel = Kernel::Gemm { gemm, tile };
    let form = &gemm.tiles()[tile];
    let tiles = form.tiles(rows, gemm.columns());
    let most = resident(gemm, form, sms);
    let blocks = match gemm {
        _ if form.splits > 1 => tiles * form.splits,
        Gemm::AttnProj => tiles.min(most),
        // As many blocks as give each the same number of tiles, one less in the last wave at most.
        _ => tiles.div_ceil(tiles.div_ceil(most)),
    };
    Launch {
        kernel,
        grid: [count(blocks), 1, 1],
        threads: form.threads(),
        shared: form.shared,
        working: count(blocks),
        cast: NOTHING,
    }
}

/// Dynamic shared memory of a block, as the kernels' own headers compute it.
#[must_use]
pub fn shared_bytes(kernel: Kernel) -> u32 {
    match kernel {
        Kernel::CastLayernorm | Kernel::FewPrepare => 0,
        Kernel::Gemm { gemm, tile } => gemm.tiles()[tile].shared,
        Kernel::Direct { gemm, tile } => direct::tiles(gemm)[tile].shared,
        Kernel::Attention { form, .. } => ATTENTION[form].shared,
        Kernel::Few { weights, tile } => FEW[tile].shared[usize::from(weights == FewWeights::Prepared)],
    }
}

/// A grid dimension. Far below 2^32, as rows are below 2^31.
fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
