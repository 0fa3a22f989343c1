//! The matrix products for two tiles of rows that read fp32 weights as the caller stores them: the two blocks of a cluster convert half of a tile's weights
//! each.

use super::direct::CONVERTERS;
use super::{CHUNKS, CHUNKS_ATTN, CHUNKS_PROJ, CHUNKS_QKV, Chip, FEWEST_WORKERS, Kernel, Launch, NOTHING, count};
use crate::cuda::block::Gemm;

/// What a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTile {
    /// Whose product.
    pub gemm: Gemm,
    /// Rows, half of the most that it is for.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Bytes of shared memory.
    pub shared: u32,
}

impl SharedTile {
    /// Columns of a box of results.
    #[must_use]
    pub fn slab(&self) -> u32 {
        1 << self.n.trailing_zeros().min(6)
    }
}

/// The forms that there are, of 65 to 128 rows and of 129 to 256.
pub const SHARED: [SharedTile; 4] = [
    SharedTile { gemm: Gemm::Qkv, m: 64, n: 48, shared: 173_504 },
    SharedTile { gemm: Gemm::Qkv, m: 128, n: 48, shared: 222_704 },
    SharedTile { gemm: Gemm::Fc, m: 64, n: 64, shared: 198_144 },
    SharedTile { gemm: Gemm::Fc, m: 128, n: 64, shared: 230_944 },
];

/// Chunks that each SM that QKV leaves idle casts meanwhile: W_attn's, which are all cast there in any case, and for the rest W_proj's. 0 is W_attn's alone.
/// At 65 to 104 rows nine are worth 0.1 to 0.5 us, from 105 on more than W_attn's gained nothing (H200, H100); at 129 to 256 with twelve attention starts 1.0
/// later (H100).
const fn chunks_beside_qkv(rows: usize) -> u32 {
    match rows {
        0..=104 => 9,
        105..=128 => 0,
        _ => 8,
    }
}

/// Blocks of a cluster.
const BLOCKS: usize = 2;
/// The launch of this form.
#[must_use]
pub fn shared(form: usize) -> Launch {
    let SharedTile { gemm, m, n, shared } = SHARED[form];
    let blocks = count(BLOCKS * gemm.columns() / n);
    Launch {
        kernel: Kernel::Shared { form },
        grid: [blocks, 1, 1],
        // Two threads for each row and the converters; one warp brings the left operand, one hands on what has been converted.
        threads: 2 * m as u32 + 64 + 32 * CONVERTERS,
        shared,
        working: blocks,
        cast: NOTHING,
    }
}

/// The launch of this product for so many rows.
pub(super) fn for_rows(gemm: Gemm, rows: usize) -> Option<Launch> {
    SHARED.iter().position(|tile| tile.gemm == gemm && rows <= BLOCKS * tile.m).map(shared)
}

/// QKV, and W_attn cast on the SMs that it leaves idle, and as much of W_proj as there is time for. None: these are too few.
pub(super) fn casting_qkv(chip: Chip, rows: usize) -> Option<Launch> {
    let (launch, blocks) = (for_rows(Gemm::Qkv, rows)?, count(BLOCKS * chip.clusters[0]));
    let idle = blocks.checked_sub(launch.working).filter(|&idle| idle >= FEWEST_WORKERS)?;
    let end = match (chunks_beside_qkv(rows) * idle).saturating_sub(CHUNKS_ATTN).min(CHUNKS_PROJ) {
        0 => CHUNKS_QKV + CHUNKS_ATTN,
        // W_fc between them is left out (cuda/cast/cast_sm90a.cuh).
        chunks => CHUNKS - CHUNKS_PROJ + chunks,
    };
    Some(Launch { grid: [blocks, 1, 1], cast: CHUNKS_QKV..end, ..launch })
}
