//! Attention: its forms, and for each call the one that takes the least time.

use super::{Chip, Kernel, Launch, NOTHING, count};
use crate::cuda::block::Shape;
use crate::dims::HEADS;

/// One form of attention: a block takes so many groups of 64 query rows, and shares the keys among so many groups of warps, or the blocks of a
/// cluster share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForm {
    /// Groups of 64 query rows.
    pub rows: usize,
    /// Groups of keys.
    pub keys: usize,
    /// Blocks of a cluster. Not for causal attention if more than one.
    pub blocks: usize,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of a block for 1024 keys in 0.01 us, and what it takes beside that, where it is not the first of its multiprocessor; dealt out, of a unit.
    /// With these the fastest form is found for nearly all of 424 batches and lengths that were measured in every form (H100; dealt out: of 163, H200).
    cost: usize,
    start: usize,
    /// The longest sequence for which that holds, where attention is not causal. Beyond, clusters are faster, above all beside the cast (H100).
    most: usize,
    /// Whether a block for each multiprocessor gets an even share of all tiles of keys. Not for causal attention.
    pub dealt: bool,
}

/// Time of attention beside that of its blocks, in 0.01 us (H100); and what more it takes if dealt out (H200).
const ATTENTION_COST: usize = 250;
const DEALT_COST: usize = 100;
/// Keys of a tile of dealt work.
pub const DEALT_KEYS: usize = 128;
/// The most blocks among which work is dealt out: the workspace has room for a flag and a part of each.
pub const MOST_SHARES: usize = 144;
/// Bytes of all flags.
pub const FLAG_BYTES: usize = 1024;
/// Bytes of a part (cuda/attention/attention_dealt_tile_sm90a.cuh).
pub const PART_BYTES: usize = 3 * (64 * 64 * 2 + 128 * 16);
/// Rows of a call up to which work is not dealt out: it would gain nothing.
pub const UNDEALT_ROWS: usize = 2048;
/// Rows beyond which it is not either: tiles are counted by 31 bits.
const MOST_DEALT_ROWS: usize = 1 << 20;
const _: () = assert!(4 * MOST_SHARES <= FLAG_BYTES);

/// The forms that attention is compiled for.
pub const ATTENTION: [AttentionForm; 5] = [
    AttentionForm { most: 640, ..AttentionForm::of(1, 2, 226_920, 520, 120) },
    AttentionForm::of(2, 1, 214_456, 860, 120),
    AttentionForm::of(3, 1, 215_024, 1100, 120),
    AttentionForm { blocks: 2, ..AttentionForm::of(3, 1, 184_808, 640, 200) },
    AttentionForm { dealt: true, ..AttentionForm::of(3, 1, 223_008, 1100, 20) },
];

impl AttentionForm {
    const fn of(rows: usize, keys: usize, shared: u32, cost: usize, start: usize) -> Self {
        Self { rows, keys, blocks: 1, shared, cost, start, most: usize::MAX, dealt: false }
    }

    /// Warps of a block that cast, if it is not causal (`CAST_WARPS` in cuda/attention/attention_tile_sm90a.cuh).
    #[must_use]
    pub fn casting_warps(&self) -> usize {
        if self.blocks > 1 || self.dealt || self.rows == 2 { 2 } else { 3 }
    }

    /// Whether QKV has to tell it how long its queries and keys are (`LENGTHS` in cuda/attention/attention_tile_sm90a.cuh).
    #[must_use]
    pub fn wants_lengths(&self) -> bool {
        self.keys == 1
    }

    /// Whether it can take such sequences: dealt out, of more than 64 tokens, as a unit of shorter ones would have rows of three heads.
    #[must_use]
    pub fn takes(&self, shape: Shape) -> bool {
        let rows = shape.rows();
        !self.dealt || (UNDEALT_ROWS < rows && rows <= MOST_DEALT_ROWS && shape.seq_len > 64)
    }

    fn suits(&self, chip: Chip, shape: Shape) -> bool {
        // Dealt out, no multiprocessor may be left without a share.
        let fits = self.takes(shape) && (!self.dealt || dealing(shares(chip), shape, self).share > 0);
        fits && (shape.causal || shape.seq_len <= self.most)
    }
}

/// Groups of 64 rows of a sequence, and by what clusters divide by that (`RowGroups` in cuda/attention/attention_tile_sm90a.cuh).
#[must_use]
pub fn row_groups(seq_len: usize) -> (u32, u32) {
    let groups = count(seq_len.div_ceil(64));
    (groups, (1u32 << 31).div_ceil(groups))
}

/// Those that there are for causal attention or not.
pub fn attention_forms(causal: bool) -> impl Iterator<Item = usize> {
    (0..ATTENTION.len()).filter(move |&form| !causal || (ATTENTION[form].blocks == 1 && !ATTENTION[form].dealt))
}

/// Those that can do this.
fn forms_for(chip: Chip, shape: Shape) -> impl Iterator<Item = usize> {
    attention_forms(shape.causal).filter(move |&form| ATTENTION[form].suits(chip, shape))
}

pub(super) fn attention(chip: Chip, shape: Shape) -> Launch {
    let time = |form: &usize| form_time(chip, shape, &ATTENTION[*form]);
    let form = forms_for(chip, shape).min_by_key(time).unwrap_or(0);
    attention_in(chip, shape, form)
}

/// Longest sequences in each form of the kernel for short ones (cuda/attention/attention_short_sm90a.cu).
pub const SHORT: [usize; 2] = [16, 32];
/// Warps of a block there, each of which has 16 queries of a head.
const SHORT_WARPS: usize = 4;

/// Attention of short sequences. None: they are longer. A block of the other forms would have one sequence's head, which took 2.3 us however short (H200).
pub(super) fn short(shape: Shape) -> Option<Launch> {
    let form = SHORT.iter().position(|&most| shape.seq_len <= most)?;
    let tiles = shape.batch.div_ceil(SHORT[form] / shape.seq_len) * (SHORT[form] / 16);
    let blocks = count((tiles * HEADS).div_ceil(SHORT_WARPS));
    Some(Launch {
        kernel: Kernel::AttentionShort { form },
        grid: [blocks, 1, 1],
        threads: 32 * SHORT_WARPS as u32,
        shared: 0,
        working: blocks,
        cast: NOTHING,
    })
}

pub(super) fn time(chip: Chip, shape: Shape) -> usize {
    forms_for(chip, shape).map(|form| form_time(chip, shape, &ATTENTION[form])).min().unwrap_or(0)
}

/// Time of attention in this form, in 0.01 us.
fn form_time(chip: Chip, shape: Shape, form: &AttentionForm) -> usize {
    if form.dealt {
        let dealing = dealing(shares(chip), shape, form);
        let (tiles, units) = (dealing.most() as usize, dealing.share / dealing.key_tiles);
        return ATTENTION_COST + DEALT_COST + tiles * DEALT_KEYS * form.cost / 1024 + units as usize * form.start;
    }
    let blocks = blocks(shape, form);
    if shape.causal {
        // The blocks with the most keys come first and the others, half as long in the mean, fill the gaps, but not wholly.
        let of_keys = |keys: usize| keys * form.cost / 1024 + form.start;
        let (longest, mean) = (of_keys(shape.seq_len), of_keys(shape.seq_len / 2 + 64 * form.rows));
        return ATTENTION_COST + longest.max(blocks * mean / chip.sms + longest / 8);
    }
    let resident = if form.blocks > 1 { form.blocks * chip.clusters[0].max(1) } else { chip.sms };
    let waves = blocks.div_ceil(resident);
    ATTENTION_COST + waves * shape.seq_len * form.cost / 1024 + (waves - 1) * form.start
}

/// Row groups are those of a head, but clusters take theirs from all heads.
fn blocks(shape: Shape, form: &AttentionForm) -> usize {
    match form.blocks {
        1 => shape.seq_len.div_ceil(64 * form.rows) * HEADS * shape.batch,
        blocks => (shape.seq_len.div_ceil(64) * HEADS * shape.batch).div_ceil(form.rows) * blocks,
    }
}

/// How the tiles of all units, each so many rows and all keys of their heads, are dealt out.
#[derive(Clone, Copy, Debug)]
pub struct Dealing {
    /// Rows of a head, those that there are not included.
    pub rows: u32,
    /// Tiles of a unit.
    pub key_tiles: u32,
    /// Tiles of a block.
    pub share: u32,
    /// Blocks that have one more.
    pub longer: u32,
}

impl Dealing {
    /// With a head filled up to a multiple of so many rows.
    fn of(filled_to: usize, shares: usize, shape: Shape, form: &AttentionForm) -> Self {
        let (rows, key_tiles) = (shape.seq_len.next_multiple_of(filled_to), shape.seq_len.div_ceil(DEALT_KEYS));
        let tiles = rows * HEADS * shape.batch / (64 * form.rows) * key_tiles;
        Self {
            rows: count(rows),
            key_tiles: count(key_tiles),
            share: count(tiles / shares),
            longer: count(tiles % shares),
        }
    }

    /// The most tiles that a block has.
    fn most(&self) -> u32 {
        self.share + self.longer.min(1)
    }

    /// Whether each block has whole units, so that none has to wait for what another does.
    fn whole(&self) -> bool {
        self.longer == 0 && self.share.is_multiple_of(self.key_tiles)
    }
}

/// Blocks among which work is dealt out, one a multiprocessor.
fn shares(chip: Chip) -> usize {
    chip.sms.min(MOST_SHARES)
}

/// How a call's attention is dealt out among so many blocks: units have rows of two heads where one ends within a unit, but not where all blocks have whole
/// units without that, and a tile more at most (4096 rows: 1 to 2 us less, H200).
#[must_use]
pub fn dealing(shares: usize, shape: Shape, form: &AttentionForm) -> Dealing {
    let [groups, units] = [64, 64 * form.rows].map(|rows| Dealing::of(rows, shares, shape, form));
    if units.whole() && units.most() <= groups.most() + 1 { units } else { groups }
}

/// The launch of attention in this form.
#[must_use]
pub fn attention_in(chip: Chip, shape: Shape, form: usize) -> Launch {
    let AttentionForm { rows, keys, shared, dealt, .. } = ATTENTION[form];
    let (groups, heads) = (count(shape.seq_len.div_ceil(64 * rows)), count(HEADS));
    let batch = count(shape.batch);
    let working = match dealt {
        true => count(shares(chip)),
        false => count(blocks(shape, &ATTENTION[form])),
    };
    let grid = match (ATTENTION[form].blocks, shape.causal) {
        (1, false) if !dealt => [groups, heads, batch],
        (1, true) => [heads, groups, batch],
        _ => [working, 1, 1],
    };
    Launch {
        kernel: Kernel::Attention { form, causal: shape.causal },
        grid,
        threads: 128 * (rows * keys + 1) as u32,
        shared,
        working,
        cast: NOTHING,
    }
}
