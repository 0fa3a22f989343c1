//! The exact block of many rows on Hopper as a chain of launches (cuda/exact/exact_long_sm90a.cu). All have the arguments of the one resident kernel, in whose
//! memory they keep their values.

use super::arch::Arch;
use super::exact::form;
use super::launch::{Arguments, Edge, Function, Step};
use super::modules::Modules;
use crate::dims::D;
use crate::error::Error;

/// Rows of a tile of the products.
pub const ROW_TILE: usize = 128;
/// Columns of a wide tile.
pub const WIDE: usize = 192;
const NARROW: usize = 64;
/// Threads of a block of the first kernel.
pub const BEGIN_THREADS: u32 = 512;
/// Threads of a block that has a warp for each row.
pub const NORM_THREADS: u32 = 128;
/// Rows from which on precision exact is computed so.
pub const FROM_ROWS: usize = 513;

/// One kernel of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum Kernel {
    Begin,
    Qkv,
    Attention,
    AttnProj,
    Norm2,
    Fc,
    /// The last product, its parts to memory.
    ProjParts,
    /// The sums of those parts.
    Output,
    /// The last product up to output, in tiles of 64 columns, of 192, and of these with K in two.
    ProjNarrow,
    ProjWide,
    ProjPairs,
}

impl Kernel {
    /// All that there are.
    pub const ALL: [Self; 11] = [
        Self::Begin,
        Self::Qkv,
        Self::Attention,
        Self::AttnProj,
        Self::Norm2,
        Self::Fc,
        Self::ProjParts,
        Self::Output,
        Self::ProjNarrow,
        Self::ProjWide,
        Self::ProjPairs,
    ];

    /// Its name in the files of the architecture, and what it is for error messages.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Begin => ("exact_long_begin", "launch of LN1 and the split of weights"),
            Self::Qkv => ("exact_long_qkv", "launch of the QKV product"),
            Self::Attention => ("exact_long_attention", "launch of attention"),
            Self::AttnProj => ("exact_long_attn", "launch of the attention projection"),
            Self::Norm2 => ("exact_long_norm2", "launch of LN2"),
            Self::Fc => ("exact_long_fc", "launch of the FC product"),
            Self::ProjParts => ("exact_long_proj", "launch of the last product"),
            Self::Output => ("exact_long_output", "launch of the last sums"),
            Self::ProjNarrow => ("exact_long_proj_64_k1", "launch of the last product"),
            Self::ProjWide => ("exact_long_proj_192_k1", "launch of the last product"),
            Self::ProjPairs => ("exact_long_proj_192_k2", "launch of the last product"),
        }
    }

    fn has_rows(self) -> bool {
        matches!(self, Self::Norm2 | Self::Output)
    }

    fn threads(self) -> u32 {
        match self {
            Self::Begin => BEGIN_THREADS,
            _ if self.has_rows() => NORM_THREADS,
            _ => form(Arch::Sm90a).threads,
        }
    }

    fn shared(self) -> u32 {
        if self.has_rows() { 0 } else { form(Arch::Sm90a).shared }
    }

    /// Blocks for so many rows on so many SMs.
    #[must_use]
    pub fn blocks(self, sms: usize, rows: usize) -> usize {
        let row_tiles = rows.div_ceil(ROW_TILE);
        match self {
            _ if self.has_rows() => row_tiles * ROW_TILE * 32 / NORM_THREADS as usize,
            Self::ProjPairs => 2 * row_tiles * (D / WIDE),
            _ => sms,
        }
    }
}

/// The kernels for so many rows on so many SMs, in their order.
#[must_use]
pub fn plan(sms: usize, rows: usize) -> Vec<Kernel> {
    let row_tiles = rows.div_ceil(ROW_TILE);
    let (wide, narrow) = (row_tiles * (D / WIDE), row_tiles * (D / NARROW));
    let last: &[Kernel] = match () {
        () if 4 * wide <= sms => &[Kernel::ProjParts, Kernel::Output],
        () if 2 * wide <= sms => &[Kernel::ProjPairs],
        // Two rounds of narrow tiles are faster than one of wide ones.
        () if narrow <= 2 * sms => &[Kernel::ProjNarrow],
        () => &[Kernel::ProjWide],
    };
    let first = [Kernel::Begin, Kernel::Qkv, Kernel::Attention, Kernel::AttnProj, Kernel::Norm2, Kernel::Fc];
    [&first, last].concat()
}

/// The loaded kernels, as [`Kernel::ALL`] lists them.
pub struct Chain(Vec<Function>);

impl Chain {
    /// Finds them among the architecture's files.
    pub fn load(modules: &Modules) -> Result<Self, Error> {
        let load = |kernel: Kernel| modules.function(kernel.names().0, kernel.shared());
        Kernel::ALL.into_iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// Computes so many rows with these arguments.
    #[must_use]
    pub fn steps(&self, sms: usize, rows: usize, arguments: &Arguments) -> Vec<Step> {
        let step = |kernel: Kernel| Step {
            what: kernel.names().1,
            function: self.0[kernel as usize],
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
