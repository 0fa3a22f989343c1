//! The matrix products on fp16 weights: their tiles, and for each call the tile whose waves of blocks take the least time.

use super::{Chip, Kernel, Launch, NOTHING, count, shared_bytes};
use crate::cuda::block::Gemm;
use crate::dims::{D, FFN};

/// One form of a matrix product: a block computes m rows by n columns, of `splits` parts of K that a cluster adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Parts of K.
    pub splits: usize,
    /// Tiles of a cluster, neighbours in a row.
    pub abreast: usize,
    /// Rows of tiles of a cluster.
    pub below: usize,
    /// Whether it is multiplied transposed, so that its rows may be any multiple of eight, where wgmma takes 64 (cuda/gemm/gemm_sm90a.cuh).
    pub swapped: bool,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of one wave of blocks in 0.01 us, measured on an H200; where two follow each other, a little less than both take alone. Of swapped tiles
    /// that of others less what they gained (H200, or H100): it puts them in the order that was measured.
    cost: usize,
    /// Rows up to which that holds. With more, one that has fewer blocks is faster, though its wave takes longer (H200, H100).
    most_rows: usize,
    /// Rows from which on it does. With less, one that has fewer rows is faster, because less of it is empty (H100).
    fewest_rows: usize,
}

impl Tile {
    pub(super) const fn new(m: usize, n: usize, shared: u32, cost: usize) -> Self {
        Self::split(m, n, 1, shared, cost)
    }

    pub(super) const fn split(m: usize, n: usize, splits: usize, shared: u32, cost: usize) -> Self {
        Self { m, n, splits, abreast: 1, below: 1, swapped: false, shared, cost, most_rows: usize::MAX, fewest_rows: 0 }
    }

    const fn up_to(self, most_rows: usize) -> Self {
        Self { most_rows, ..self }
    }

    const fn from(self, fewest_rows: usize) -> Self {
        Self { fewest_rows, ..self }
    }

    const fn swapped(self) -> Self {
        Self { swapped: true, ..self }
    }

    /// Clusters of eight blocks, 256 columns wide.
    const fn in_eights(self) -> Self {
        Self { abreast: 256 / self.n, below: self.n / self.splits / 32, ..self }
    }

    /// Blocks of a cluster.
    #[must_use]
    pub fn cluster(&self) -> usize {
        self.splits * self.abreast * self.below
    }

    /// Two threads for each of what wgmma takes as rows, and the producer.
    #[must_use]
    pub fn threads(&self) -> u32 {
        2 * if self.swapped { self.n } else { self.m } as u32 + 32
    }

    /// Warps of FC's that cast beside those that multiply: `CASTING_WARPS` in cuda/cast/cast_loads_sm90a.cuh.
    #[must_use]
    pub fn casting_warps(&self) -> u32 {
        let (groups, sums) = if self.swapped { (self.n / 64, self.m / 2) } else { (self.m / 64, self.n / 2) };
        if groups <= 2 && sums <= 96 { 3 } else { 0 }
    }

    /// Whether it can take so many rows.
    fn takes(&self, rows: usize) -> bool {
        (self.fewest_rows..=self.most_rows).contains(&rows)
    }

    /// Of K in a stage of the ring, for fp16 weights: tiles of 64 columns, of 64 rows or swapped of 32, need more products between one wait and the next.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let few = if self.swapped { self.m <= 32 } else { self.m == 64 };
        if self.n == 64 && few { 128 } else { 64 }
    }

    /// Whether it reads the transposed matrix, because slabs of it as it lies do not make up the tile. Only a prepared block has that.
    #[must_use]
    pub fn transposed(&self) -> bool {
        !self.n.is_multiple_of(32)
    }

    /// Rows of the boxes in which the results of a swapped QKV or FC leave.
    #[must_use]
    pub fn swapped_box(&self) -> usize {
        match self.m {
            m if m.is_multiple_of(32) => m / 2,
            m if m.is_multiple_of(48) => m / 3,
            m => m,
        }
    }

    pub(super) fn tiles(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.m) * (columns / self.n)
    }

    /// Blocks, one for each part of each tile, in whole clusters.
    fn blocks(&self, rows: usize, columns: usize) -> usize {
        let row = columns / self.n * self.splits;
        (self.tiles(rows, columns) * self.splits).next_multiple_of(self.below * row)
    }
}

const QKV_TILES: [Tile; 10] = [
    Tile::new(64, 64, 215_208, 240).up_to(128),
    Tile::new(64, 96, 207_064, 340).up_to(256),
    Tile::new(128, 96, 207_016, 435),
    // One wave takes 600. Two, of which the second one's products hide the first one's end, take a little less than one of 192 x 192; more have not been
    // measured.
    Tile::new(128, 144, 221_336, 498).up_to(2048),
    Tile::new(128, 192, 223_368, 695),
    Tile::new(192, 192, 231_544, 1000),
    Tile::new(160, 128, 226_456, 600).from(513).swapped(),
    Tile::new(208, 128, 183_416, 725).up_to(5376).swapped(),
    Tile::new(224, 128, 193_656, 775).swapped(),
    Tile::new(256, 128, 214_136, 885).swapped(),
];
const ATTN_PROJ_TILES: [Tile; 4] = [
    Tile::new(64, 96, 211_144, 490).up_to(512),
    Tile::new(64, 128, 231_608, 600),
    Tile::new(128, 96, 227_480, 950),
    Tile::new(128, 192, 231_544, 1500),
];
/// Bytes of shared memory of the attention projection's tiles where its blocks do not wait for each other.
pub const APART_SHARED: [u32; 4] = [205_512, 225_976, 222_360, 226_424];
const FC_TILES: [Tile; 14] = [
    Tile::new(64, 64, 218_280, 240).up_to(64),
    Tile::new(64, 96, 210_136, 340),
    Tile::new(128, 96, 210_088, 435).up_to(1024),
    Tile::new(128, 128, 210_072, 560),
    Tile::new(128, 192, 226_440, 695),
    Tile::new(128, 256, 226_424, 930),
    Tile::new(192, 192, 222_328, 1000),
    Tile::new(144, 128, 177_288, 560).from(641).up_to(3168).swapped(),
    Tile::new(144, 192, 228_488, 770).up_to(5904).swapped(),
    Tile::new(160, 128, 189_576, 610).up_to(3520).swapped(),
    Tile::new(160, 192, 197_752, 875).up_to(1280).swapped(),
    Tile::new(192, 128, 214_152, 705).up_to(2112).swapped(),
    Tile::new(224, 128, 193_656, 820).up_to(4928).swapped(),
    Tile::new(240, 128, 203_896, 880).up_to(3840).swapped(),
];
const PROJ_TILES: [Tile; 29] = [
    Tile::split(64, 64, 4, 219_320, 410),
    Tile::split(128, 64, 4, 188_600, 630).from(193),
    Tile::split(64, 128, 4, 231_640, 640),
    Tile::new(32, 64, 222_424, 600).from(257).up_to(320).swapped().in_eights(),
    Tile::split(48, 128, 2, 216_280, 690).up_to(480).swapped().in_eights(),
    Tile::split(56, 128, 2, 227_544, 730).up_to(560).swapped().in_eights(),
    Tile::split(64, 128, 2, 214_216, 770).up_to(640).swapped().in_eights(),
    Tile::split(72, 128, 2, 224_456, 800).up_to(720).swapped().in_eights(),
    Tile::split(80, 128, 2, 208_056, 830).up_to(800).swapped().in_eights(),
    Tile::split(88, 128, 2, 217_272, 860).up_to(880).swapped().in_eights(),
    Tile::split(96, 128, 2, 226_488, 875).up_to(960).swapped().in_eights(),
    Tile::split(104, 128, 2, 205_992, 930).up_to(1040).swapped().in_eights(),
    Tile::split(112, 128, 2, 214_184, 980).up_to(1120).swapped().in_eights(),
    Tile::new(120, 64, 213_208, 1040).up_to(1200).swapped().in_eights(),
    Tile::new(136, 64, 206_024, 1180).up_to(1360).swapped().in_eights(),
    Tile::new(144, 64, 214_216, 1225).up_to(1440).swapped().in_eights(),
    Tile::new(152, 64, 222_408, 1240).up_to(1520).swapped().in_eights(),
    Tile::new(160, 64, 230_600, 1245).from(1409).up_to(1600).swapped().in_eights(),
    Tile::new(88, 128, 222_408, 1350).from(1409).up_to(1760).swapped().in_eights(),
    Tile::new(96, 128, 230_600, 1450).from(1409).up_to(1920).swapped().in_eights(),
    Tile::new(104, 128, 209_080, 1550).from(1921).up_to(2080).swapped().in_eights(),
    Tile::new(112, 128, 216_248, 1600).from(2049).swapped().in_eights(),
    Tile::new(120, 128, 223_416, 1700).from(2049).swapped().in_eights(),
    Tile::new(128, 128, 230_584, 1800).from(2049).swapped().in_eights(),
    Tile::new(144, 128, 210_088, 2050).from(2049).swapped().in_eights(),
    Tile::new(160, 128, 222_376, 2250).from(2049).swapped().in_eights(),
    Tile::new(176, 128, 195_736, 2450).from(2049).swapped().in_eights(),
    Tile::new(192, 128, 205_976, 2650).from(2049).swapped().in_eights(),
    Tile::new(208, 128, 216_216, 2850).from(2049).swapped().in_eights(),
];

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

/// The attention projection whose blocks do not wait for each other, and FC behind it.
pub(super) fn apart(chip: Chip, rows: usize) -> [Launch; 2] {
    let [projection, fc] = [Gemm::AttnProj, Gemm::Fc].map(|gemm| fastest(chip, gemm, rows, true));
    [apart_in(chip, projection, rows), fc_scaled_in(chip, fc, rows)]
}

/// The launch of this FC in this one of its tiles.
#[must_use]
pub fn fc_scaled_in(chip: Chip, tile: usize, rows: usize) -> Launch {
    let (kernel, launch) = (Kernel::FcScaled { tile }, product_in(chip, Gemm::Fc, tile, rows));
    // A warp more finds out the rows' factors.
    Launch { kernel, threads: launch.threads + 32, shared: shared_bytes(kernel), ..launch }
}

/// The launch of this projection in this one of its tiles.
#[must_use]
pub fn apart_in(chip: Chip, tile: usize, rows: usize) -> Launch {
    Launch {
        kernel: Kernel::Apart { tile },
        shared: APART_SHARED[tile],
        ..product_in(chip, Gemm::AttnProj, tile, rows)
    }
}

pub(super) fn product(chip: Chip, gemm: Gemm, rows: usize, prepared: bool) -> Launch {
    product_in(chip, gemm, fastest(chip, gemm, rows, prepared), rows)
}

/// The tile that takes the least time.
pub(super) fn fastest(chip: Chip, gemm: Gemm, rows: usize, prepared: bool) -> usize {
    let tiles = tiles(gemm);
    let eligible = eligible(gemm, rows, prepared);
    eligible.min_by_key(|&tile| time(chip, gemm, &tiles[tile], rows)).unwrap_or(0)
}

/// The tiles that can take so many rows and whose weights there are, the largest first.
pub(super) fn eligible(gemm: Gemm, rows: usize, prepared: bool) -> impl Iterator<Item = usize> {
    let fits = move |tile: &Tile| tile.takes(rows) && (prepared || !tile.transposed());
    (0..tiles(gemm).len()).rev().filter(move |&tile| fits(&tiles(gemm)[tile]))
}

/// Tiles of the right operand that a block may fetch before its predecessor has ended, where that did not write them: all that it has room for, where the
/// chain is a sequence of short waits; where every multiprocessor has work, they come in the way of what is still being done. Measured on an H200, the
/// threes on an H100.
#[must_use]
pub fn early(rows: usize) -> u32 {
    match rows {
        65..=512 => u32::MAX >> 1,
        ..=64 | 513..=640 => 3,
        _ => 1,
    }
}

/// The same of proj, where FC, its predecessor, casts what W_proj has from this row on: each part of K begins with tiles that are there before.
#[must_use]
pub fn early_of_proj(rows: usize, tile: &Tile, cast_from: usize) -> u32 {
    let last_part = FFN / tile.splits * (tile.splits - 1);
    early(rows).min(count(cast_from.saturating_sub(last_part) / tile.depth() as usize))
}

/// Time of a product in this tile, in 0.01 us: its waves of blocks.
pub(super) fn time(chip: Chip, gemm: Gemm, tile: &Tile, rows: usize) -> usize {
    tile.blocks(rows, gemm.columns()).div_ceil(resident(gemm, tile, chip)) * tile.cost
}

/// Blocks that run at the same time. Those that share a row in the attention projection must all be among them.
fn resident(gemm: Gemm, tile: &Tile, chip: Chip) -> usize {
    match gemm {
        Gemm::AttnProj => {
            let row = D / tile.n;
            (chip.sms / row).max(1) * row
        }
        _ => match tile.cluster() {
            1 => chip.sms,
            blocks => blocks * chip.clusters[blocks.ilog2() as usize - 1],
        },
    }
}

/// The launch of a matrix product in this one of its tiles.
#[must_use]
pub fn product_in(chip: Chip, gemm: Gemm, tile: usize, rows: usize) -> Launch {
    let kernel = Kernel::Gemm { gemm, tile };
    let form = &tiles(gemm)[tile];
    let tiles = form.tiles(rows, gemm.columns());
    let most = resident(gemm, form, chip);
    let blocks = match gemm {
        _ if form.cluster() > 1 => form.blocks(rows, gemm.columns()),
        Gemm::AttnProj => tiles.min(most),
        // As many blocks as give each the same number of tiles, one less in the last wave at most.
        _ => tiles.div_ceil(tiles.div_ceil(most)),
    };
    Launch {
        kernel,
        grid: [count(blocks), 1, 1],
        threads: form.threads(),
        shared: form.shared,
        working: count(blocks.min(tiles * form.splits)),
        cast: NOTHING,
    }
}
