//! Attention: its forms, and for each call the one that takes the least time.

use super::{Kernel, Launch, NOTHING, count};
use crate::cuda::block::Shape;
use crate::dims::HEADS;

/// One form of attention: a block takes so many groups of 64 query rows, and shares the keys among so many groups of warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForm {
    /// Groups of 64 query rows.
    pub rows: usize,
    /// Groups of keys.
    pub keys: usize,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Time of a block for 1024 keys in 0.01 us, measured on an H200.
    cost: usize,
}

/// Time of attention beside that of its blocks, in 0.01 us.
const ATTENTION_COST: usize = 250;

/// The forms that attention is compiled for.
pub const ATTENTION: [AttentionForm; 3] = [
    AttentionForm { rows: 1, keys: 2, shared: 177_352, cost: 520 },
    AttentionForm { rows: 2, keys: 1, shared: 181_376, cost: 860 },
    AttentionForm { rows: 3, keys: 1, shared: 189_568, cost: 1060 },
];

pub(super) fn attention(sms: usize, shape: Shape) -> Launch {
    let form = (0..ATTENTION.len()).min_by_key(|&form| form_time(sms, shape, &ATTENTION[form])).unwrap_or(0);
    attention_in(shape, form)
}

pub(super) fn time(sms: usize, shape: Shape) -> usize {
    ATTENTION.iter().map(|form| form_time(sms, shape, form)).min().unwrap_or(0)
}

/// Time of attention in this form, in 0.01 us.
fn form_time(sms: usize, shape: Shape, form: &AttentionForm) -> usize {
    let blocks = shape.seq_len.div_ceil(64 * form.rows) * HEADS * shape.batch;
    let thousandths = if shape.causal {
        // The blocks with the most keys come first and the others, half as long in the mean, fill the gaps, but not wholly.
        (blocks * 500 / sms + 300).max(1000)
    } else {
        blocks.div_ceil(sms) * 1000
    };
    ATTENTION_COST + thousandths * shape.seq_len / 1024 * form.cost / 1000
}

/// The launch of attention in this form.
#[must_use]
pub fn attention_in(shape: Shape, form: usize) -> Launch {
    let AttentionForm { rows, keys, shared, .. } = ATTENTION[form];
    let (groups, heads) = (count(shape.seq_len.div_ceil(64 * rows)), count(HEADS));
    let batch = count(shape.batch);
    Launch {
        kernel: Kernel::Attention { form, causal: shape.causal },
        grid: if shape.causal { [heads, groups, batch] } else { [groups, heads, batch] },
        threads: 128 * (rows * keys + 1) as u32,
        shared,
        working: groups * heads * batch,
        cast: NOTHING,
    }
}
