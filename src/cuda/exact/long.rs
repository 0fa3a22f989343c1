//! The exact block of many rows on Hopper as a chain of launches (cuda/exact/exact_long_sm90a.cu). All have the arguments of the one resident kernel, in whose
//! memory they keep their values, and behind them what is theirs to do.

use super::work::{Call, FORMS, Slabs, Work};
use super::{chain, form};
use crate::cuda::arch::Arch;
use crate::cuda::block::Gemm;
use crate::cuda::launch::{Arguments, Edge, Function, Residency, Step};
use crate::cuda::modules::Modules;
use crate::dims::D;
use crate::error::Error;

/// Rows of a tile of the products.
pub const ROW_TILE: usize = 128;
/// Columns of a wide tile.
pub const WIDE: usize = 192;
const NARROW: usize = 64;
const MIDDLE: usize = 128;
/// Threads of a block of the first kernel.
pub const BEGIN_THREADS: u32 = 512;
/// Threads of a block that has a warp for each row.
pub const NORM_THREADS: u32 = 128;
/// Rows from which on precision exact is computed so, but for those that [`chain::rows`] has.
pub const FROM_ROWS: usize = *chain::rows(true).end() + 1;

/// How a projection is cut: in tiles of so many columns, each by so many blocks, which share K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// 64, 96, 128 or [`WIDE`]
    pub columns: usize,
    /// One block, or two or four of a cluster
    pub splits: usize,
}

impl Cut {
    const fn new(columns: usize, splits: usize) -> Self {
        Self { columns, splits }
    }

    /// Blocks for so many tiles of rows.
    #[must_use]
    pub fn blocks(self, row_tiles: usize) -> usize {
        row_tiles * (D / self.columns) * self.splits
    }

    /// The first of these of which all blocks run at the same time, else the last one, in several rounds.
    fn first(cuts: &[Self], call: Call) -> usize {
        let room = |cut: &Self| if cut.splits == 4 { 4 * call.fours } else { call.sms };
        let fits = |cut: &Self| cut.blocks(call.row_tiles()) <= room(cut);
        cuts.iter().position(fits).unwrap_or(cuts.len() - 1)
    }
}

/// The cuts of each projection, those in front that take the least time where they fit; measured on an H200.
const ATTN_CUTS: [Cut; 6] = [
    Cut::new(NARROW, 4),
    Cut::new(NARROW, 2),
    Cut::new(NARROW, 1),
    Cut::new(WIDE, 2),
    Cut::new(MIDDLE, 1),
    Cut::new(WIDE, 1),
];
const PROJ_CUTS: [Cut; 8] = [
    Cut::new(NARROW, 4),
    Cut::new(96, 4),
    Cut::new(MIDDLE, 4),
    Cut::new(96, 2),
    Cut::new(MIDDLE, 2),
    Cut::new(WIDE, 2),
    Cut::new(MIDDLE, 1),
    Cut::new(WIDE, 1),
];

/// One kernel of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum Kernel {
    Begin,
    /// In tiles of this one of [`FORMS`] behind the widest.
    Qkv(usize),
    Attention,
    /// With half a tile of rows for each block
    AttentionHalves,
    /// The attention projection, up to x1, cut as this one of `ATTN_CUTS`.
    AttnProj(usize),
    Norm2,
    /// As [`Self::Qkv`].
    Fc(usize),
    /// The last product, up to output, cut as this one of `PROJ_CUTS`.
    Proj(usize),
}

impl Kernel {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Begin, Self::Attention, Self::AttentionHalves, Self::Norm2];
        let products = (0..FORMS.len()).flat_map(|form| [Self::Qkv(form), Self::Fc(form)]);
        let projections = (0..ATTN_CUTS.len()).map(Self::AttnProj).chain((0..PROJ_CUTS.len()).map(Self::Proj));
        others.into_iter().chain(products).chain(projections)
    }

    /// How it is cut, if it is a projection.
    #[must_use]
    pub fn cut(self) -> Option<Cut> {
        match self {
            Self::AttnProj(cut) => Some(ATTN_CUTS[cut]),
            Self::Proj(cut) => Some(PROJ_CUTS[cut]),
            _ => None,
        }
    }

    /// Its name in the files of the architecture.
    #[must_use]
    pub fn symbol(self) -> String {
        let name = match self {
            Self::Begin => "begin",
            Self::Qkv(_) => "qkv",
            Self::Attention => "attention",
            Self::AttentionHalves => "attention_halves",
            Self::AttnProj(_) => "attn",
            Self::Norm2 => "norm2",
            Self::Fc(_) => "fc",
            Self::Proj(_) => "proj",
        };
        let tile = match (self, self.cut()) {
            (Self::Qkv(form) | Self::Fc(form), _) => format!("_{}", FORMS[form].0),
            (_, Some(Cut { columns, splits })) => format!("_{columns}_k{splits}"),
            _ => String::new(),
        };
        format!("exact_long_{name}{tile}")
    }

    fn what(self) -> &'static str {
        match self {
            Self::Begin => "launch of LN1 and the split of weights",
            Self::Qkv(_) => Gemm::Qkv.what(),
            Self::Attention | Self::AttentionHalves => "launch of attention",
            Self::AttnProj(_) => Gemm::AttnProj.what(),
            Self::Norm2 => "launch of LN2",
            Self::Fc(_) => Gemm::Fc.what(),
            Self::Proj(_) => Gemm::Proj.what(),
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
            _ => self.cut().map_or(sms, |cut| cut.blocks(row_tiles).min(sms)),
        }
    }
}

/// The kernels for a call, in their order.
#[must_use]
pub fn plan(call: Call, work: &Work) -> [Kernel; 7] {
    let cut = |cuts| Cut::first(cuts, call);
    [
        Kernel::Begin,
        Kernel::Qkv(work.qkv.form),
        if call.halves() { Kernel::AttentionHalves } else { Kernel::Attention },
        Kernel::AttnProj(cut(&ATTN_CUTS)),
        Kernel::Norm2,
        Kernel::Fc(work.fc.form),
        Kernel::Proj(cut(&PROJ_CUTS)),
    ]
}

/// What a kernel does, in parameters behind those that all have.
fn parameters(kernel: Kernel, work: &Work, arguments: Arguments) -> Arguments {
    let [front, in_qkv, in_attention, in_fc] = work.slabs.map(Slabs::words);
    match kernel {
        Kernel::Begin => arguments.words(&front),
        Kernel::Qkv(_) => arguments.words(&work.qkv.words()).words(&in_qkv),
        Kernel::Attention => arguments.words(&work.runs.words()).words(&in_attention),
        Kernel::AttentionHalves => arguments.words(&in_attention),
        Kernel::Fc(_) => arguments.words(&work.fc.words()).words(&in_fc),
        Kernel::AttnProj(_) | Kernel::Norm2 | Kernel::Proj(_) => arguments,
    }
}

/// The loaded kernels.
pub struct Chain {
    begin: Function,
    /// As [`FORMS`] has them.
    qkv: Vec<Function>,
    attention: Function,
    attention_halves: Function,
    /// As [`ATTN_CUTS`] has them.
    attn: Vec<Function>,
    norm2: Function,
    /// As [`FORMS`] has them.
    fc: Vec<Function>,
    /// As [`PROJ_CUTS`] has them.
    proj: Vec<Function>,
    /// Clusters of four blocks that run at the same time.
    pub fours: usize,
}

impl Chain {
    /// Finds them among the architecture's files.
    pub fn load(modules: &Modules) -> Result<Self, Error> {
        let load = |kernel: Kernel| modules.function(&kernel.symbol(), kernel.shared());
        let proj = Kernel::Proj(0);
        let fours = load(proj)?.most_clusters(PROJ_CUTS[0].splits as u32, proj.threads(), proj.shared())?;
        let each = |count, kernel: fn(usize) -> Kernel| (0..count).map(kernel).map(load).collect::<Result<_, Error>>();
        Ok(Self {
            begin: load(Kernel::Begin)?,
            qkv: each(FORMS.len(), Kernel::Qkv)?,
            attention: load(Kernel::Attention)?,
            attention_halves: load(Kernel::AttentionHalves)?,
            attn: each(ATTN_CUTS.len(), Kernel::AttnProj)?,
            norm2: load(Kernel::Norm2)?,
            fc: each(FORMS.len(), Kernel::Fc)?,
            proj: each(PROJ_CUTS.len(), Kernel::Proj)?,
            fours,
        })
    }

    fn get(&self, kernel: Kernel) -> Function {
        match kernel {
            Kernel::Begin => self.begin,
            Kernel::Qkv(form) => self.qkv[form],
            Kernel::Attention => self.attention,
            Kernel::AttentionHalves => self.attention_halves,
            Kernel::AttnProj(cut) => self.attn[cut],
            Kernel::Norm2 => self.norm2,
            Kernel::Fc(form) => self.fc[form],
            Kernel::Proj(cut) => self.proj[cut],
        }
    }

    /// Computes so with these arguments.
    #[must_use]
    pub fn steps(&self, call: Call, arguments: &Arguments) -> Vec<Step> {
        let work = call.work();
        let step = |kernel: Kernel| Step {
            what: kernel.what(),
            function: self.get(kernel),
            grid: [kernel.blocks(call.sms, call.rows) as u32, 1, 1],
            threads: kernel.threads(),
            shared: kernel.shared(),
            pairs: false,
            edge: if kernel == Kernel::Begin { Edge::Full } else { Edge::Programmatic },
            residency: Residency::Any,
            arguments: parameters(kernel, &work, arguments.clone()),
        };
        plan(call, &work).into_iter().map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of `LongTiles` or `LongRuns` and `LongSlabs` (cuda/exact/exact_long_sm90a.cu).
    #[test]
    fn parameters_are_the_kernels() {
        let call = Call { sms: 132, fours: 30, rows: 1500, seq_len: 1500, causal: false, casts: true };
        let work = call.work();
        let of = |kernel| {
            let all = parameters(kernel, &work, Arguments::each(&[9]));
            let words = all.each_word().skip(1).take(4).collect::<Vec<_>>();
            words.into_iter().take_while(|&word| word != 0).collect::<Vec<_>>()
        };
        let [front, in_qkv, in_attention, in_fc] = work.slabs.map(Slabs::words);
        let joined = |first: &[u64], then: &[u64]| {
            [first, then].concat().into_iter().take_while(|&word| word != 0).collect::<Vec<_>>()
        };
        assert!(work.runs.dealt > 0 && front[1] > 0);
        assert_eq!(of(Kernel::Qkv(0)), joined(&work.qkv.words(), &in_qkv));
        assert_eq!(of(Kernel::Attention), joined(&work.runs.words(), &in_attention));
        assert_eq!(of(Kernel::AttentionHalves), joined(&in_attention, &[]));
        assert_eq!(of(Kernel::Fc(0)), joined(&work.fc.words(), &in_fc));
        assert_eq!([Kernel::AttnProj(0), Kernel::Norm2, Kernel::Proj(0)].map(of), [const { Vec::new() }; 3]);
    }
}
