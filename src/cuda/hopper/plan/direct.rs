//! The matrix products that read fp32 weights as the caller stores them: one form for up to 64 rows, and for more. That of the attention projection is
//! in `attention_proj.rs`. FC has a form for two tiles of rows, whose blocks are a cluster and share the weights.

use super::product::Tile;
use super::{Kernel, Launch, NOTHING, count};
use crate::cuda::block::Gemm;

const QKV_TILES: [Tile; 2] = [Tile::new(64, 32, 103_688, 0), Tile::new(128, 32, 214_296, 0)];
const FC_TILES: [Tile; 1] = [Tile::new(64, 32, 103_688, 0)];
const PROJ_TILES: [Tile; 2] = [Tile::split(64, 64, 8, 120_952, 0), Tile::split(128, 32, 4, 208_008, 0)];

/// The tiles that this product's kernel is compiled for.
#[must_use]
pub fn tiles(gemm: Gemm) -> &'static [Tile] {
    match gemm {
        Gemm::Qkv => &QKV_TILES,
        Gemm::AttnProj => &[],
        Gemm::Fc => &FC_TILES,
        Gemm::Proj => &PROJ_TILES,
    }
}

/// The faster of them, by measurement on an H200.
fn tile_for(rows: usize) -> usize {
    usize::from(rows > 64)
}

/// Warps of a block that convert weights, and watch them.
const CONVERTERS: u32 = 8;

/// What a block of FC computes where two share the weights, up to 128 rows and for more.
pub const FC_SHARED: [Tile; 2] = [Tile::new(64, 64, 198_144, 0), Tile::new(128, 64, 230_944, 0)];

/// FC for two tiles of rows.
#[must_use]
pub fn fc_shared(tile: usize) -> Launch {
    let form = &FC_SHARED[tile];
    let blocks = count(2 * Gemm::Fc.columns() / form.n);
    Launch {
        kernel: Kernel::FcShared { tile },
        grid: [blocks, 1, 1],
        // One warp more than in other direct products, which hands on what has been converted.
        threads: form.threads() + 32 * (CONVERTERS + 1),
        shared: form.shared,
        working: blocks,
        cast: NOTHING,
    }
}

/// Warps that count themselves when they have watched weights in these launches, in the last that has such.
#[must_use]
pub fn watchers(launches: &[Launch]) -> u32 {
    let counting = |launch: &&Launch| {
        matches!(launch.kernel, Kernel::Direct { gemm: Gemm::Proj, .. } | Kernel::FcShared { tile: 1 })
    };
    launches.iter().rfind(counting).map_or(0, |launch| CONVERTERS * launch.grid[0])
}

pub(super) fn product(gemm: Gemm, rows: usize) -> Launch {
    product_in(gemm, tile_for(rows), rows)
}

/// The launch of a matrix product in this one of its tiles.
#[must_use]
pub fn product_in(gemm: Gemm, tile: usize, rows: usize) -> Launch {
    let form = &tiles(gemm)[tile];
    let blocks = count(form.tiles(rows, gemm.columns()) * form.splits);
    Launch {
        kernel: Kernel::Direct { gemm, tile },
        grid: [blocks, 1, 1],
        // Two warpgroups more than the product's own read and convert.
        threads: form.threads() + 32 * CONVERTERS,
        shared: form.shared,
        working: blocks,
        cast: NOTHING,
    }
}
