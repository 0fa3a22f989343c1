//! Attention, its projection and LN2 in one kernel, for rows that are few enough to be one or two tiles of keys.

use super::{CHUNKS, Chip, FEWEST_WORKERS, Kernel, Launch, NOTHING, count};
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

/// The forms that it is compiled for: of the caller's weights, prepared ones, and those that the kernel before has cast.
pub const ATTENTION_PROJ: [AttentionProjForm; 3] = [
    AttentionProjForm { keys: 64, packed: false, shared: 136_256 },
    AttentionProjForm { keys: 64, packed: true, shared: 136_256 },
    AttentionProjForm { keys: 128, packed: true, shared: 185_408 },
];
/// Their places.
pub(super) const DIRECT: usize = 0;
pub(super) const PREPARED: usize = 1;
pub(super) const CASTING: usize = 2;

/// Columns of a cluster's tile.
const COLUMNS: usize = 96;
/// Blocks of a cluster: a tile's parts of K.
const BLOCKS: usize = 4;
/// Tiles that share a row, which tell each other its statistics.
pub const ROW_TILES: usize = D / COLUMNS;

/// The launch of this form. None: its blocks, which wait for each other, do not all fit the chip.
pub(super) fn attention_proj(chip: Chip, form: usize) -> Option<Launch> {
    let AttentionProjForm { keys, shared, .. } = ATTENTION_PROJ[form];
    let blocks = count(keys / 64 * ROW_TILES * BLOCKS);
    (blocks <= room(chip)).then_some(Launch {
        kernel: Kernel::AttentionProj { form },
        grid: [blocks, 1, 1],
        threads: 384,
        shared,
        working: blocks,
        cast: NOTHING,
    })
}

/// That of 65 to 128 rows, and W_proj from this chunk on cast on the SMs that it leaves idle. None: these are too few.
pub(super) fn casting_attention_proj(chip: Chip, first: u32) -> Option<Launch> {
    let (launch, blocks) = (attention_proj(chip, CASTING)?, room(chip));
    let cast = first..CHUNKS;
    (blocks >= launch.working + FEWEST_WORKERS).then_some(Launch { grid: [blocks, 1, 1], cast, ..launch })
}

/// Blocks that run at the same time.
fn room(chip: Chip) -> u32 {
    count(BLOCKS * chip.clusters[1])
}
