//! The exact block of a middling number of rows on Hopper as a chain of launches (cuda/exact/exact_chain_sm90a.cu). All have the arguments of the one resident
//! kernel, in whose memory they keep their values.

use std::ops::RangeInclusive;

use crate::cuda::block::Gemm;
use crate::cuda::launch::{Arguments, Edge, Function, Residency, Step};
use crate::cuda::modules::Modules;
use crate::dims::HEADS;
use crate::error::Error;

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Of 64 rows each.
    pub warpgroups: usize,
    /// Columns.
    pub columns: usize,
    /// Blocks that share a tile, each with its part of K.
    pub splits: usize,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

impl Tile {
    /// Of a block: those that multiply, and three warpgroups that bring the operands.
    #[must_use]
    pub const fn threads(self) -> u32 {
        128 * (self.warpgroups as u32 + 3)
    }
}

const fn tile(warpgroups: usize, columns: usize, splits: usize, shared: u32) -> Tile {
    Tile { warpgroups, columns, splits, shared }
}

/// The tiles that there are of each [`Gemm`].
pub const TILES: [&[Tile]; 4] = [
    &[tile(1, 64, 2, 201_184), tile(2, 64, 2, 204_256), tile(2, 64, 1, 210_496)],
    &[tile(1, 32, 4, 76_576), tile(2, 64, 4, 151_984)],
    &[tile(1, 64, 2, 201_184), tile(2, 64, 2, 204_256), tile(2, 64, 1, 210_496)],
    &[tile(1, 64, 8, 201_184), tile(2, 64, 8, 204_256), tile(2, 64, 4, 210_496)],
];

/// One kernel of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum Kernel {
    Norm1,
    Norm2,
    Attention,
    Product(Gemm, usize),
}

/// Threads of a block of LN and rows of it.
pub const NORM: (u32, usize) = (64, 2);
/// The same of attention, and bytes of dynamic shared memory.
pub const ATTENTION: (u32, usize, u32) = (288, 64, 171_624);

impl Kernel {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let products = Gemm::ALL
            .into_iter()
            .flat_map(|gemm| (0..TILES[gemm as usize].len()).map(move |tile| Self::Product(gemm, tile)));
        [Self::Norm1, Self::Norm2, Self::Attention].into_iter().chain(products)
    }

    /// Its name in the files of the architecture.
    #[must_use]
    pub fn symbol(self) -> String {
        match self {
            Self::Norm1 => "exact_chain_norm1".into(),
            Self::Norm2 => "exact_chain_norm2".into(),
            Self::Attention => "exact_chain_attention".into(),
            Self::Product(gemm, tile) => {
                let (name, tile) = (["qkv", "attn", "fc", "proj"][gemm as usize], TILES[gemm as usize][tile]);
                format!("exact_chain_{name}_{}x{}_k{}", tile.warpgroups, tile.columns, tile.splits)
            }
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Norm1 => "launch of LN1",
            Self::Norm2 => "launch of LN2",
            Self::Attention => "launch of attention",
            Self::Product(gemm, _) => gemm.what(),
        }
    }

    /// Blocks for so many rows.
    #[must_use]
    pub fn grid(self, rows: usize) -> [u32; 3] {
        let (across, down) = match self {
            Self::Norm1 | Self::Norm2 => (rows.div_ceil(NORM.1), 1),
            Self::Attention => (HEADS, rows.div_ceil(ATTENTION.1)),
            Self::Product(gemm, tile) => {
                let tile = TILES[gemm as usize][tile];
                (gemm.columns() / tile.columns * tile.splits, rows.div_ceil(64 * tile.warpgroups))
            }
        };
        [across as u32, down as u32, 1]
    }

    fn threads(self) -> u32 {
        match self {
            Self::Norm1 | Self::Norm2 => NORM.0,
            Self::Attention => ATTENTION.0,
            Self::Product(gemm, tile) => TILES[gemm as usize][tile].threads(),
        }
    }

    fn shared(self) -> u32 {
        match self {
            Self::Norm1 | Self::Norm2 => 0,
            Self::Attention => ATTENTION.2,
            Self::Product(gemm, tile) => TILES[gemm as usize][tile].shared,
        }
    }
}

/// Up to how many rows, and the tile of each [`Gemm`] for those; measured on an H200.
const CUTS: [(usize, [usize; 4]); 3] = [(64, [0, 0, 0, 0]), (128, [1, 1, 1, 1]), (256, [2, 1, 2, 2])];

/// Rows that are computed so in precision exact. Fewer have a kernel of their own, and more are worth weights that are split once ([`super::long`]), which a
/// handle has at hand; measured on an H200.
#[must_use]
pub const fn rows(prepared: bool) -> RangeInclusive<usize> {
    17..=if prepared { 128 } else { CUTS[CUTS.len() - 1].0 }
}

/// The kernels for so many rows, in their order. None: too many.
#[must_use]
pub fn plan(rows: usize) -> Option<[Kernel; 7]> {
    let (_, tiles) = CUTS.iter().find(|(most, _)| rows <= *most)?;
    let product = |gemm| Kernel::Product(gemm, tiles[gemm as usize]);
    Some([
        Kernel::Norm1,
        product(Gemm::Qkv),
        Kernel::Attention,
        product(Gemm::AttnProj),
        Kernel::Norm2,
        product(Gemm::Fc),
        product(Gemm::Proj),
    ])
}

/// The loaded kernels.
pub struct Chain {
    norm: [Function; 2],
    attention: Function,
    products: [Vec<Function>; 4],
}

impl Chain {
    /// Finds them among the architecture's files.
    pub fn load(modules: &Modules) -> Result<Self, Error> {
        let load = |kernel: Kernel| modules.function(&kernel.symbol(), kernel.shared());
        let mut chain = Self {
            norm: [load(Kernel::Norm1)?, load(Kernel::Norm2)?],
            attention: load(Kernel::Attention)?,
            products: [const { Vec::new() }; 4],
        };
        for gemm in Gemm::ALL {
            for tile in 0..TILES[gemm as usize].len() {
                chain.products[gemm as usize].push(load(Kernel::Product(gemm, tile))?);
            }
        }
        Ok(chain)
    }

    fn get(&self, kernel: Kernel) -> Function {
        match kernel {
            Kernel::Norm1 => self.norm[0],
            Kernel::Norm2 => self.norm[1],
            Kernel::Attention => self.attention,
            Kernel::Product(gemm, tile) => self.products[gemm as usize][tile],
        }
    }

    /// Computes so many rows with these arguments, of prepared weights or the caller's. None: it is not the way to compute them.
    #[must_use]
    pub fn steps(&self, rows: usize, prepared: bool, arguments: &Arguments) -> Option<Vec<Step>> {
        let step = |kernel: Kernel| Step {
            what: kernel.what(),
            function: self.get(kernel),
            grid: kernel.grid(rows),
            threads: kernel.threads(),
            shared: kernel.shared(),
            pairs: false,
            edge: if kernel == Kernel::Norm1 { Edge::Full } else { Edge::Programmatic },
            residency: Residency::Any,
            arguments: arguments.clone(),
        };
        let kernels = plan(rows).filter(|_| self::rows(prepared).contains(&rows))?;
        Some(kernels.into_iter().map(step).collect())
    }
}
