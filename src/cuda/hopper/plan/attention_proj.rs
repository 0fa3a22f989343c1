//! Attention, its projection and LN2 in one kernel, for rows that are few enough to be one or two tiles of keys.

use super::{Kernel, Launch, NOTHING, count};
use crate::cuda::block::Shape;
use crate::dims::D;

/// One form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionProjForm {
    /// Most rows.
    pub keys: usize,
    /// From packed weights, or the caller's.
    pub packed: bool,
    /// Bytes of shared memory.
    pub shared: u32,
}

/// The forms that it is compiled for.
pub const ATTENTION_PROJ: [AttentionProjForm; 3] = [
    AttentionProjForm { keys: 64, packed: false, shared: 136_248 },
    AttentionProjForm { keys: 128, packed: false, shared: 185_400 },
    AttentionProjForm { keys: 64, packed: true, shared: 136_248 },
];

/// Columns of a cluster's tile.
const COLUMNS: usize = 96;
/// Blocks of a cluster: a tile's parts of K.
const BLOCKS: usize = 4;
/// Tiles that share a row, which tell each other its statistics.
pub const ROW_TILES: usize = D / COLUMNS;

/// The launch for this call, where the one kernel is faster than two: measured on an H200.
pub(super) fn attention_proj(shape: Shape) -> Option<Launch> {
    let rows = shape.rows();
    let form = ATTENTION_PROJ.iter().position(|form| form.packed == shape.prepared && rows <= form.keys)?;
    let blocks = count(rows.div_ceil(64) * ROW_TILES * BLOCKS);
    Some(Launch {
        kernel: Kernel::AttentionProj { form },
        grid: [blocks, 1, 1],
        threads: 384,
        shared: ATTENTION_PROJ[form].shared,
        working: blocks,
        cast: NOTHING,
    })
}
