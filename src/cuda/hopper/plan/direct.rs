//! The matrix products that read fp32 weights as the caller stores them: one form for up to 64 rows, and for more, of QKV a third one for more than
//! [`DIRECT_ROWS`]. That of the attention projection is
//! in `attention_proj.rs`.

use super::product::Tile;
use super::{DIRECT_ROWS, Kernel, Launch, NOTHING, count};
use crate::cuda::block::Gemm;
use crate::cuda::launch::Step;

const QKV_TILES: [Tile; 3] =
    [Tile::new(64, 32, 103_688, 0), Tile::new(128, 32, 214_296, 0), Tile::new(128, 64, 214_408, 0)];
const FC_TILES: [Tile; 2] = [Tile::new(64, 32, 103_688, 0), Tile::new(128, 32, 214_296, 0)];
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
fn tile_for(gemm: Gemm, rows: usize) -> usize {
    let small = usize::from(rows > 64);
    if gemm == Gemm::Qkv && rows > DIRECT_ROWS { 2 } else { small }
}

/// Time of the QKV product for more than 128 rows, in 0.01 us, measured on an H200.
pub(super) const QKV_TIME: usize = 490;

/// Warps of a block that convert weights, and watch them.
const CONVERTERS: u32 = 8;

/// Warps of the last of these steps, a product of one tile of rows, that raise alarms.
#[must_use]
pub fn watchers(steps: &[Step]) -> u32 {
    steps.last().map_or(0, |step| CONVERTERS * step.grid[0])
}

pub(super) fn product(gemm: Gemm, rows: usize) -> Launch {
    product_in(gemm, tile_for(gemm, rows), rows)
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
