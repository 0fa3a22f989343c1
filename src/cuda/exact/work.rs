//! How the exact chain for many rows ([`super::long`]) deals out its work: tiles of QKV and FC, keys of attention, and slabs of weights, which blocks split
//! that have nothing else to do. Times are an H200's, in microseconds.

use super::long::{ROW_TILE, WIDE};
use crate::cuda::launch::pair;
use crate::dims::{D, FFN, HEADS, QKV};

/// Slabs of 768 x 32 weights in the order in which the stages need them: the first ones of `W_qkv`, `W_attn`, `W_fc` and `W_proj`, and how many there are.
pub const SLABS: [usize; 5] = {
    let [qkv, attn, fc, proj] = [QKV / 32, D / 32, FFN / 32, FFN / D * (D / 32)];
    [0, qkv, qkv + attn, qkv + attn + fc, qkv + attn + fc + proj]
};
/// What a block takes for a slab beside others that compute, and all blocks for one each in front of them.
const SLAB_TIME: usize = 4;
const FRONT_TIME: usize = 5;

/// Columns of a tile of QKV or FC, and how long a round of them takes.
pub const FORMS: [(usize, usize); 6] = [(64, 9), (80, 12), (96, 13), (128, 15), (144, 18), (WIDE, 22)];
const WIDEST: usize = FORMS.len() - 1;

/// A dealt-out unit of attention has about so many parts at most; and runs are worth it where a whole unit takes more than so many tiles longer.
const RUNS: usize = 4;
const WORTH: usize = 3;
/// Blocks that have room for parts of units (`LongParts`).
pub const RUN_BLOCKS: usize = 170;

/// How QKV or FC is cut: tiles of [`WIDE`] columns in whole rounds, and what is left in others, of which there is at most one for each SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Of the widest.
    pub wide: usize,
    /// Of the others.
    pub rest: usize,
    /// What those are, among [`FORMS`].
    pub form: usize,
}

impl Tiles {
    /// So many tiles of rows by n columns in the widest.
    fn widest(row_tiles: usize, n: usize) -> Self {
        Self { wide: row_tiles * n / WIDE, rest: 0, form: WIDEST }
    }

    /// All ways to cut them.
    fn choices(sms: usize, row_tiles: usize, n: usize) -> impl Iterator<Item = Self> {
        let widest = Self::widest(row_tiles, n);
        let left = widest.wide % sms;
        let others = FORMS.into_iter().enumerate().filter_map(move |(form, (columns, _))| {
            let wide = widest.wide - left;
            // They begin where the widest end, and make up whole rows. Where there are no others, the last one of a row may hang over its end.
            let (rest, meets) = if wide == 0 {
                (row_tiles * n.div_ceil(columns), true)
            } else {
                (left * WIDE / columns, n.is_multiple_of(columns) && (wide * WIDE).is_multiple_of(columns))
            };
            (meets && left > 0 && rest <= sms && form != WIDEST).then_some(Self { wide, rest, form })
        });
        others.chain([widest])
    }

    fn columns(self) -> usize {
        FORMS[self.form].0
    }

    fn time(self) -> usize {
        FORMS[self.form].1
    }

    /// Who has nothing to do in the last round.
    fn idle(self, sms: usize) -> Idle {
        let last = if self.rest > 0 { self.rest } else { self.wide };
        Idle::behind(last, sms, self.time())
    }

    /// As `LongTiles` of the kernels.
    #[must_use]
    pub fn words(self) -> [u64; 1] {
        [pair(self.wide as u32, (self.wide * WIDE / self.columns()) as u32)]
    }
}

/// How attention is dealt out: units of 128 rows of a head whole, or the first ones in runs of tiles of keys, where all units have the same and whole ones
/// would leave the last round half empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Units that are dealt out.
    pub dealt: usize,
    /// Tiles of keys of each.
    pub each: usize,
    /// Tiles of a run, of which a block has one.
    pub run: usize,
}

impl Runs {
    /// As `LongRuns` of the kernels.
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        [pair(self.dealt as u32, self.each as u32), pair(self.run as u32, 0)]
    }
}

/// Blocks that have nothing to do in the last round of a kernel, from the first one on, and how many slabs they have time for.
#[derive(Clone, Copy)]
struct Idle {
    first: usize,
    slabs: usize,
}

impl Idle {
    /// Behind so many units, whose last round takes so long.
    fn behind(units: usize, sms: usize, time: usize) -> Self {
        let first = units % sms;
        let blocks = if first == 0 { 0 } else { sms - first };
        Self { first, slabs: blocks * (time / SLAB_TIME) }
    }
}

/// The slabs of a kernel, and from which block on they are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    /// The first block.
    pub block: usize,
    /// The first slab.
    pub begin: usize,
    /// The one behind the last.
    pub end: usize,
}

impl Slabs {
    /// As `LongSlabs` of the kernels.
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        [pair(self.block as u32, self.begin as u32), pair(self.end as u32, 0)]
    }
}

/// What is to be computed.
#[derive(Clone, Copy)]
pub struct Call {
    /// Of the device.
    pub sms: usize,
    /// Clusters of four blocks that run at the same time there.
    pub fours: usize,
    /// Of x.
    pub rows: usize,
    /// Rows of a sequence.
    pub seq_len: usize,
    /// Token i attends to tokens 0..=i only.
    pub causal: bool,
    /// The weights come with the call.
    pub casts: bool,
}

/// What the kernels do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Tiles of QKV.
    pub qkv: Tiles,
    /// Tiles of FC.
    pub fc: Tiles,
    /// Runs of attention.
    pub runs: Runs,
    /// Slabs in front of QKV, beside it, beside attention and beside FC.
    pub slabs: [Slabs; 4],
}

impl Call {
    /// Tiles of its rows.
    #[must_use]
    pub fn row_tiles(self) -> usize {
        self.rows.div_ceil(ROW_TILE)
    }

    /// Tiles of keys of a unit of attention.
    fn key_tiles(self) -> usize {
        self.seq_len.min(self.rows).div_ceil(ROW_TILE)
    }

    /// Whether a block has 64 rows of a head, not 128, as there are few.
    #[must_use]
    pub fn halves(self) -> bool {
        2 * HEADS * self.row_tiles() <= self.sms
    }

    fn runs(self) -> Runs {
        let (each, dealt) = (self.key_tiles(), self.row_tiles() * HEADS % self.sms);
        let run = (dealt * each).div_ceil(self.sms).max(each.div_ceil(RUNS));
        let alike = !self.causal && (self.seq_len >= self.rows || self.seq_len.is_multiple_of(ROW_TILE));
        let deals = alike && self.sms <= RUN_BLOCKS && each > run + WORTH;
        Runs { dealt: if deals { dealt } else { 0 }, each, run }
    }

    fn idle_in_attention(self) -> Idle {
        let units = self.row_tiles() * HEADS * if self.halves() { 2 } else { 1 };
        let dealt = self.runs().dealt > 0;
        Idle::behind(if dealt { 0 } else { units }, self.sms, 2 + 2 * self.key_tiles())
    }

    /// Who splits which slabs.
    fn slabs(self, qkv: Tiles, fc: Tiles) -> [Slabs; 4] {
        let [_, first_attn, first_fc, first_proj, all] = SLABS;
        let idle = [qkv.idle(self.sms), self.idle_in_attention(), fc.idle(self.sms)];
        // Where QKV's idle blocks leave at most one each for all blocks in front of it, that is best: beside attention and FC they cost more.
        let few = all.saturating_sub(idle[0].slabs) <= self.sms;
        let room = if few { [idle[0].slabs, 0, 0] } else { idle.map(|idle| idle.slabs) };
        let in_fc = first_proj.max(all - room[2].min(all));
        let in_attention = first_fc.max(in_fc - room[1].min(in_fc));
        let in_qkv = first_attn.max(in_attention - room[0].min(in_attention));
        let ends = [0, in_qkv, in_attention, in_fc, all].map(|end| if self.casts { end } else { 0 });
        let blocks = [0, idle[0].first, idle[1].first, idle[2].first];
        std::array::from_fn(|i| Slabs { block: blocks[i], begin: ends[i], end: ends[i + 1] })
    }

    /// How it is dealt out: the tiles that take the least time together with the rounds of slabs in front of them.
    #[must_use]
    pub fn work(self) -> Work {
        let choices = |n| Tiles::choices(self.sms, self.row_tiles(), n);
        let [mut qkv, mut fc] = [QKV, FFN].map(|n| Tiles::widest(self.row_tiles(), n));
        let time =
            |qkv: Tiles, fc: Tiles| qkv.time() + fc.time() + self.slabs(qkv, fc)[0].end.div_ceil(self.sms) * FRONT_TIME;
        for (a, b) in choices(QKV).flat_map(|a| choices(FFN).map(move |b| (a, b))) {
            if time(a, b) < time(qkv, fc) {
                (qkv, fc) = (a, b);
            }
        }
        Work { qkv, fc, runs: self.runs(), slabs: self.slabs(qkv, fc) }
    }
}
