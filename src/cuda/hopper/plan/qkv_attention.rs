//! QKV and attention in one kernel, where the blocks of a cluster have all rows of a head.

use super::cast::casting_fc;
use super::{CHUNKS, CHUNKS_QKV, Chip, Kernel, Launch, cast_layernorm, count};
use crate::cuda::block::{Gemm, Shape};
use crate::dims::HEADS;

/// Blocks of a cluster, in each form.
pub const BLOCKS: [usize; 3] = [6, 7, 8];
/// Threads of a block.
pub const THREADS: u32 = 384;
/// Bytes of shared memory.
pub const SHARED: u32 = 214_424;

/// Query rows of a block.
pub const ROWS: usize = 128;
/// Blocks that cast, at most: of eight a cluster so many do all but W_qkv in as long as the others take; measured on an H200.
const CASTING: usize = 24;

/// The launches of a call, where it is the faster way: of one sequence that takes so many blocks a head, from the caller's weights, measured on an H200 and
/// on an H100. From prepared weights QKV alone takes 1.3 us less in 128 blocks than in 96.
pub(super) fn qkv_attention(chip: Chip, shape: Shape) -> Option<[Launch; 5]> {
    let rows = shape.rows();
    let form = BLOCKS.iter().position(|&blocks| blocks == rows.div_ceil(ROWS))?;
    let (blocks, casting) = (BLOCKS[form], CASTING / BLOCKS[form]);
    if shape.batch > 1 || shape.causal || shape.prepared || chip.heads[form] < HEADS + casting {
        return None;
    }
    let mut both = Launch {
        kernel: Kernel::QkvAttention { form },
        grid: [count(blocks * (HEADS + casting)), 1, 1],
        threads: THREADS,
        shared: SHARED,
        working: count(blocks * HEADS),
        cast: CHUNKS_QKV..CHUNKS,
    };
    let product = |gemm| super::product::product(chip, gemm, rows, false);
    let fc = casting_fc(chip, rows);
    both.cast.end = fc.cast.start;
    let first = cast_layernorm(rows.next_multiple_of(ROWS), 0..CHUNKS_QKV);
    Some([first, both, product(Gemm::AttnProj), fc, product(Gemm::Proj)])
}
