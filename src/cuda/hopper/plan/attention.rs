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
    /// The most last rows of a sequence, behind a multiple of 64, that blocks of their own take; only for sequences that have such rows, and no more.
    pub tail: usize,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of a block for 1024 keys in 0.01 us, measured on an H200.
    cost: usize,
    /// The longest sequence for which that holds, where attention is not causal. Beyond, clusters are faster, above all beside the cast (H100).
    most: usize,
    /// Whether each block can cast beside its own work, where attention is not causal.
    pub casts: bool,
}

/// Time of attention beside that of its blocks, in 0.01 us.
const ATTENTION_COST: usize = 250;

/// The forms that attention is compiled for.
pub const ATTENTION: [AttentionForm; 5] = [
    AttentionForm { most: 640, ..AttentionForm::of(1, 2, 177_352, 520) },
    AttentionForm { casts: true, ..AttentionForm::of(2, 1, 214_456, 860) },
    AttentionForm { casts: true, ..AttentionForm::of(3, 1, 222_672, 1060) },
    AttentionForm { blocks: 2, casts: true, ..AttentionForm::of(3, 1, 184_808, 610) },
    AttentionForm { blocks: 2, casts: true, tail: 16, ..AttentionForm::of(3, 1, 184_784, 610) },
];

impl AttentionForm {
    const fn of(rows: usize, keys: usize, shared: u32, cost: usize) -> Self {
        Self { rows, keys, blocks: 1, tail: 0, shared, cost, most: usize::MAX, casts: false }
    }

    /// Whether QKV has to tell it how long its queries and keys are (`LENGTHS` in cuda/attention/attention_tile_sm90a.cuh).
    #[must_use]
    pub fn wants_lengths(&self) -> bool {
        self.keys == 1 && self.tail == 0
    }

    /// Whether it can take sequences of this length.
    #[must_use]
    pub fn takes(&self, seq_len: usize) -> bool {
        self.tail == 0 || (seq_len > 64 && (1..=self.tail).contains(&(seq_len % 64)))
    }

    fn suits(&self, shape: Shape) -> bool {
        self.takes(shape.seq_len) && (shape.causal || shape.seq_len <= self.most)
    }

    /// Groups of 64 rows of a sequence, without its tail.
    #[must_use]
    pub fn groups(&self, seq_len: usize) -> usize {
        if self.tail > 0 { seq_len / 64 } else { seq_len.div_ceil(64) }
    }

    /// By which clusters divide by that (`RowGroups` in cuda/attention/attention_tile_sm90a.cuh).
    #[must_use]
    pub fn inverse_groups(&self, seq_len: usize) -> u32 {
        (1u32 << 31).div_ceil(count(self.groups(seq_len)))
    }
}

/// Those that there are for causal attention or not.
pub fn attention_forms(causal: bool) -> impl Iterator<Item = usize> {
    (0..ATTENTION.len()).filter(move |&form| !causal || ATTENTION[form].blocks == 1)
}

/// Those that can do this.
fn forms_for(shape: Shape) -> impl Iterator<Item = usize> {
    attention_forms(shape.causal).filter(move |&form| ATTENTION[form].suits(shape))
}

pub(super) fn attention(chip: Chip, shape: Shape) -> Launch {
    let time = |form: &usize| form_time(chip, shape, &ATTENTION[*form]);
    let form = forms_for(shape).min_by_key(time).unwrap_or(0);
    attention_in(shape, form)
}

pub(super) fn time(chip: Chip, shape: Shape) -> usize {
    forms_for(shape).map(|form| form_time(chip, shape, &ATTENTION[form])).min().unwrap_or(0)
}

/// Time of attention in this form, in 0.01 us.
fn form_time(chip: Chip, shape: Shape, form: &AttentionForm) -> usize {
    let blocks = blocks(shape, form);
    let thousandths = if shape.causal {
        // The blocks with the most keys come first and the others, half as long in the mean, fill the gaps, but not wholly.
        (blocks * 500 / chip.sms + 300).max(1000)
    } else {
        let resident = if form.blocks > 1 { form.blocks * chip.clusters[0].max(1) } else { chip.sms };
        blocks.div_ceil(resident) * 1000
    };
    ATTENTION_COST + thousandths * shape.seq_len / 1024 * form.cost / 1000
}

/// Row groups are those of a head, but clusters take theirs from all heads, and so do the blocks of tails.
fn blocks(shape: Shape, form: &AttentionForm) -> usize {
    match form.blocks {
        1 => shape.seq_len.div_ceil(64 * form.rows) * HEADS * shape.batch,
        blocks => {
            let tails = if form.tail > 0 { HEADS * shape.batch / form.rows } else { 0 };
            (form.groups(shape.seq_len) * HEADS * shape.batch).div_ceil(form.rows) * blocks + tails
        }
    }
}

/// The launch of attention in this form.
#[must_use]
pub fn attention_in(shape: Shape, form: usize) -> Launch {
    let AttentionForm { rows, keys, shared, .. } = ATTENTION[form];
    let (groups, heads) = (count(shape.seq_len.div_ceil(64 * rows)), count(HEADS));
    let (batch, working) = (count(shape.batch), count(blocks(shape, &ATTENTION[form])));
    let grid = match (ATTENTION[form].blocks, shape.causal) {
        (1, false) => [groups, heads, batch],
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
