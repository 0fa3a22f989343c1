//! Few tokens: the forms of the one resident kernel that computes the whole block (cuda/small/).

use std::ops::Range;

use super::{Chip, FEW_ROWS, Kernel, Launch, NOTHING, count, shared_bytes};
use crate::cuda::block::Shape;
use crate::dims::D;
use crate::precision::SolvePrecision;

/// One form of the resident kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FewTile {
    /// Most rows.
    pub rows: usize,
    /// Whether it is for sequences of one token only, whose attention is V.
    pub single: bool,
}

/// A box in which the copy engine brings a part of a block's slice of the caller's weights (cuda/small/layout.cuh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartBox {
    /// Neighbouring rows that a lane takes for its own.
    pub group: u32,
    /// Columns of the slice.
    pub columns: u32,
    /// Runs of 4 * `group` rows.
    pub runs: u32,
}

impl FewTile {
    /// Those of W_qkv, W_attn, W_fc and W_proj.
    #[must_use]
    pub fn boxes(&self) -> [PartBox; 4] {
        let of = |group, columns, runs| PartBox { group, columns, runs };
        let qkv = if self.single { of(4, 8, 16) } else { of(4, 24, 8) };
        let attn = match self.rows {
            0..=8 => of(16, 8, 4),
            9..=16 => of(16, 16, 2),
            _ => of(16, 24, 1),
        };
        [qkv, attn, of(4, 24, 8), of(8, 16, 8)]
    }
}

/// Most sequences of one token that it takes from prepared weights.
pub const MOST_SINGLES: usize = 64;

/// The forms of the resident kernel with fp16 operands, smallest first; of fp32 weights those of any sequences.
pub const FEW: [FewTile; 6] = [
    FewTile { rows: 8, single: true },
    FewTile { rows: 16, single: true },
    FewTile { rows: MOST_SINGLES, single: true },
    FewTile { rows: 8, single: false },
    FewTile { rows: 16, single: false },
    FewTile { rows: 32, single: false },
];
/// Those that compute in fp32.
pub const FEW_IN_FP32: [FewTile; 2] = [FewTile { rows: 1, single: true }, FewTile { rows: 8, single: false }];
/// Bytes of shared memory of those with fp16 operands: what computing a call again takes.
pub const FEW_SHARED: u32 = 217_104;
/// Bytes of shared memory of those in fp32: what their weights take.
pub const FEW_IN_FP32_SHARED: u32 = 230_912;
/// Most rows for which these are the faster ones in fast and auto: two take 9.6 us with fp16 operands and 10.5 in fp32 (H200, lab builds of 2026-11-29).
const FAST_IN_FP32: usize = 1;
/// Threads of the resident kernel: twelve warps that compute, one that brings.
const FEW_THREADS: u32 = 416;
/// Most blocks of the resident kernel, in clusters of two.
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

    /// Which of [`FEW`] there are for them.
    #[must_use]
    pub fn tiles(self) -> Range<usize> {
        if self == Self::Prepared { 0..FEW.len() } else { 3..FEW.len() }
    }

    fn of(prepared: bool, aligned: bool) -> Self {
        match (prepared, aligned) {
            (true, _) => Self::Prepared,
            (false, true) => Self::Aligned,
            (false, false) => Self::Unaligned,
        }
    }
}

/// Dynamic shared memory of a block that merges V's weights with the attention projection's (cuda/small/merge.cuh).
pub const MERGE_SHARED: u32 = 67_344;

/// The product of the two matrices, of which sequences of one token need no more.
pub(super) fn merge() -> Launch {
    let blocks = (D / 32 * 4) as u32; // clusters of four have 32 columns
    Launch {
        kernel: Kernel::FewMerge,
        grid: [blocks, 1, 1],
        threads: 384,
        shared: MERGE_SHARED,
        working: blocks,
        cast: NOTHING,
    }
}

/// Whether a call is computed in fp32 (cuda/small/fp32.cuh), so that nothing need watch its weights. A handle in exact has them in fp32, too.
#[must_use]
pub fn in_fp32(shape: &Shape) -> bool {
    let most = match (shape.precision, shape.prepared) {
        (SolvePrecision::Exact, _) => FEW_IN_FP32[1].rows,
        (_, false) => FAST_IN_FP32,
        (_, true) => 0,
    };
    !shape.rescued && shape.rows() <= most
}

/// Whether the resident kernel computes it.
#[must_use]
pub fn is_few(shape: &Shape) -> bool {
    let singles = shape.prepared && shape.seq_len == 1 && shape.precision != SolvePrecision::Exact;
    shape.rows() <= if singles { MOST_SINGLES } else { FEW_ROWS }
}

/// Whether it looks itself whether its result stands, and computes the call again where it does not.
#[must_use]
pub fn judges_itself(shape: &Shape) -> bool {
    shape.guarded && shape.rows() <= FEW_ROWS
}

pub(super) fn few(chip: Chip, shape: Shape, aligned: bool) -> Launch {
    let fits = |tile: &FewTile| shape.rows() <= tile.rows && (!tile.single || shape.seq_len == 1);
    let kernel = if in_fp32(&shape) {
        Kernel::FewInFp32 { aligned, form: FEW_IN_FP32.iter().position(fits).unwrap_or(FEW_IN_FP32.len() - 1) }
    } else {
        let weights = FewWeights::of(shape.prepared, aligned);
        let tile = weights.tiles().find(|&tile| fits(&FEW[tile])).unwrap_or(FEW.len() - 1);
        Kernel::Few { weights, tile }
    };
    let blocks = count(FEW_BLOCKS.min(2 * chip.clusters[0]));
    Launch {
        kernel,
        grid: [blocks, 1, 1],
        threads: FEW_THREADS,
        shared: shared_bytes(kernel),
        working: blocks,
        cast: NOTHING,
    }
}
