//! QKV and attention in one kernel, where the eight blocks of a cluster have all rows of a head.

use super::{CHUNKS, CHUNKS_QKV, Chip, Kernel, Launch, cast_layernorm, count};
use crate::cuda::block::{Gemm, Shape};
use crate::dims::HEADS;

/// Blocks of a cluster.
pub const BLOCKS: u32 = 8;
/// Threads of a block.
pub const THREADS: u32 = 384;
/// Bytes of shared memory.
pub const SHARED: u32 = 214_424;

/// Query rows of a block.
pub const ROWS: usize = 128;
/// Clusters that cast: three do all but W_qkv in as long as the others take; measured on an H200.
const CASTING: usize = 3;

/// The launches of a call, where it is the faster way: of one sequence that takes eight blocks a head, from the caller's weights, measured on an H200. From
/// prepared weights QKV alone takes 1.3 us less in 128 blocks than in 96.
pub(super) fn qkv_attention(chip: Chip, shape: Shape) -> Option<[Launch; 5]> {
    let rows = shape.rows();
    let whole = rows.div_ceil(ROWS) == BLOCKS as usize && shape.batch == 1;
    if !whole || shape.causal || shape.prepared || chip.heads < HEADS + CASTING {
        return None;
    }
    let both = Launch {
        kernel: Kernel::QkvAttention,
        grid: [BLOCKS * count(HEADS + CASTING), 1, 1],
        threads: THREADS,
        shared: SHARED,
        working: BLOCKS * count(HEADS),
        cast: CHUNKS_QKV..CHUNKS,
    };
    let [projection, fc, proj] =
        [Gemm::AttnProj, Gemm::Fc, Gemm::Proj].map(|gemm| super::product::product(chip, gemm, rows, false));
    Some([cast_layernorm(rows.next_multiple_of(ROWS), 0..CHUNKS_QKV), both, projection, fc, proj])
}
