//! The exact block of many rows on Hopper as a chain of launches (cuda/exact/exact_long_sm90a.cu). All have the arguments of the one resident kernel, in whose
//! memory they keep their values.

use std::collections::HashMap;

use super::arch::Arch;
use super::exact::form;
use super::exact_chain;
use super::launch::{Arguments, Edge, Function, Step};
use super::modules::Modules;
use crate::dims::D;
use crate::error::Error;

/// Rows of a tile of the products.
pub const ROW_TILE: usize = 128;
/// Columns of a wide tile.
pub const WIDE: usize = 192;
/// Columns of a middling one.
pub const MIDDLE: usize = 128;
/// Columns of a narrow one.
pub const NARROW: usize = 64;
/// Threads of a block of the first kernel.
pub const BEGIN_THREADS: u32 = 512;
/// Threads of a block that has a warp for each row.
pub const NORM_THREADS: u32 = 128;
/// Rows from which on precision exact is computed so.
pub const FROM_ROWS: usize = *exact_chain::ROWS.end() + 1;

/// How a projection is cut: in tiles of so many columns, each by so many blocks, which share K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// [`NARROW`], [`MIDDLE`] or [`WIDE`]
    pub columns: usize,
    /// One block or a pair
    pub splits: usize,
}

impl Cut {
    const fn new(columns: usize, splits: usize) -> Self {
        Self { columns, splits }
    }

    /// Blocks for so many tiles of rows, one for each tile or its half.
    #[must_use]
    pub fn blocks(self, row_tiles: usize) -> usize {
        row_tiles * (D / self.columns) * self.splits
    }

    /// The first of these of which so many SMs hold all blocks at once, else the last one, in several rounds.
    fn of(cuts: &[Self], sms: usize, row_tiles: usize) -> Self {
        let fits = |cut: &&Self| cut.blocks(row_tiles) <= sms;
        *cuts.iter().find(fits).unwrap_or(&cuts[cuts.len() - 1])
    }
}

/// The cuts of each projection, those in front that take the least time where they fit; measured on an H200.
const ATTN_CUTS: [Cut; 5] =
    [Cut::new(NARROW, 2), Cut::new(NARROW, 1), Cut::new(WIDE, 2), Cut::new(MIDDLE, 1), Cut::new(WIDE, 1)];
const PROJ_CUTS: [Cut; 5] =
    [Cut::new(NARROW, 2), Cut::new(MIDDLE, 2), Cut::new(WIDE, 2), Cut::new(MIDDLE, 1), Cut::new(WIDE, 1)];

/// One kernel of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum Kernel {
    Begin,
    Qkv,
    Attention,
    /// The attention projection, up to x1.
    AttnProj(Cut),
    Norm2,
    Fc,
    /// The last product, up to output.
    Proj(Cut),
}

impl Kernel {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Begin, Self::Qkv, Self::Attention, Self::Norm2, Self::Fc];
        let projections = ATTN_CUTS.map(Self::AttnProj).into_iter().chain(PROJ_CUTS.map(Self::Proj));
        others.into_iter().chain(projections)
    }

    /// Its name in the files of the architecture.
    #[must_use]
    pub fn symbol(self) -> String {
        let (name, cut) = match self {
            Self::Begin => ("begin", None),
            Self::Qkv => ("qkv", None),
            Self::Attention => ("attention", None),
            Self::AttnProj(cut) => ("attn", Some(cut)),
            Self::Norm2 => ("norm2", None),
            Self::Fc => ("fc", None),
            Self::Proj(cut) => ("proj", Some(cut)),
        };
        let cut = cut.map(|Cut { columns, splits }| format!("_{columns}_k{splits}")).unwrap_or_default();
        format!("exact_long_{name}{cut}")
    }

    fn what(self) -> &'static str {
        match self {
            Self::Begin => "launch of LN1 and the split of weights",
            Self::Qkv => "launch of the QKV product",
            Self::Attention => "launch of attention",
            Self::AttnProj(_) => "launch of the attention projection",
            Self::Norm2 => "launch of LN2",
            Self::Fc => "launch of the FC product",
            Self::Proj(_) => "launch of the last product",
        }
    }

    fn threads(self) -> u32 {
        match self {
            Self::Begin => BEGIN_THREADS,
            Self::Norm2 => NORM_THREADS,
            _ => form(Arch::Sm90a).threads,
        }
    }

    fn shared(self) -> u32 {
        if self == Self::Norm2 { 0 } else { form(Arch::Sm90a).shared }
    }

    /// Blocks for so many rows on so many SMs.
    #[must_use]
    pub fn blocks(self, sms: usize, rows: usize) -> usize {
        let row_tiles = rows.div_ceil(ROW_TILE);
        match self {
            Self::Norm2 => row_tiles * ROW_TILE * 32 / NORM_THREADS as usize,
            Self::AttnProj(cut) | Self::Proj(cut) => cut.blocks(row_tiles).min(sms),
            _ => sms,
        }
    }
}

/// The kernels for so many rows on so many SMs, in their order.
#[must_use]
pub fn plan(sms: usize, rows: usize) -> [Kernel; 7] {
    let cut = |cuts| Cut::of(cuts, sms, rows.div_ceil(ROW_TILE));
    [
        Kernel::Begin,
        Kernel::Qkv,
        Kernel::Attention,
        Kernel::AttnProj(cut(&ATTN_CUTS)),
        Kernel::Norm2,
        Kernel::Fc,
        Kernel::Proj(cut(&PROJ_CUTS)),
    ]
}

/// The loaded kernels.
pub struct Chain(HashMap<Kernel, Function>);

impl Chain {
    /// Finds them among the architecture's files.
    pub fn load(modules: &Modules) -> Result<Self, Error> {
        let load = |kernel: Kernel| Ok((kernel, modules.function(&kernel.symbol(), kernel.shared())?));
        Kernel::all().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// Computes so many rows with these arguments.
    #[must_use]
    pub fn steps(&self, sms: usize, rows: usize, arguments: &Arguments) -> Vec<Step> {
        let step = |kernel: Kernel| Step {
            what: kernel.what(),
            function: self.0[&kernel],
            grid: [kernel.blocks(sms, rows) as u32, 1, 1],
            threads: kernel.threads(),
            shared: kernel.shared(),
            edge: if kernel == Kernel::Begin { Edge::Full } else { Edge::Programmatic },
            cooperative: false,
            arguments: arguments.clone(),
        };
        plan(sms, rows).into_iter().map(step).collect()
    }
}
