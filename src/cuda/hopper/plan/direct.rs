//! The matrix products of up to 64 rows, which read fp32 weights as the caller stores them. That of the attention projection is in `attention_proj.rs`.

use super::product::Tile;
use super::{Kernel, Launch, NOTHING, count};
use crate::cuda::block::Gemm;

/// Most rows: a tile's.
pub const ROWS: usize = 64;

/// Warps of a block that convert weights, and watch them.
pub(super) const CONVERTERS: u32 = 8;

/// The tile that this product's kernel is compiled for.
#[must_use]
pub const fn tile(gemm: Gemm) -> Option<Tile> {
    match gemm {
        Gemm::Qkv | Gemm::Fc => Some(Tile::new(ROWS, 32, 103_688, 0)),
        Gemm::AttnProj => None,
        Gemm::Proj => Some(Tile::split(ROWS, 64, 8, 120_952, 0)),
    }
}

/// The launch of a product that has one.
#[must_use]
pub fn product(gemm: Gemm) -> Option<Launch> {
    let form = tile(gemm)?;
    let blocks = count(gemm.columns() / form.n * form.splits);
    Some(Launch {
        kernel: Kernel::Direct { gemm },
        grid: [blocks, 1, 1],
        // Two warpgroups more than the product's own read and convert.
        threads: form.threads() + 32 * CONVERTERS,
        shared: form.shared,
        working: blocks,
        cast: NOTHING,
    })
}

/// Warps that count themselves when they have watched the last weights.
#[must_use]
pub fn watchers(launch: &Launch) -> u32 {
    CONVERTERS * launch.working
}
