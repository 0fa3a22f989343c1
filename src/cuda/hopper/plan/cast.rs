//! The cast of the weights: what the first kernel does of it, what the blocks of attention and of FC do beside their own work, and what SMs that products
//! leave idle do.

use std::ops::{Range, RangeInclusive};

use super::attention::{self, ATTENTION, AttentionForm};
use super::product::{self, product_in, tiles};
use super::{Chip, Kernel, Launch, count};
use crate::cuda::block::{Gemm, Shape};
use crate::dims::{D, FFN, QKV};

/// Chunks of 4096 weights, as the cast counts them (cuda/cast/cast_sm90a.cuh): W_qkv, W_attn, W_fc, W_proj.
pub const CHUNKS: u32 = CHUNKS_QKV + ((D * D + 2 * D * FFN) / 4096) as u32;
/// The chunks of W_qkv.
pub const CHUNKS_QKV: u32 = (D * QKV / 4096) as u32;
/// The chunks of W_attn.
pub const CHUNKS_ATTN: u32 = (D * D / 4096) as u32;
/// The chunks of W_proj.
pub(super) const CHUNKS_PROJ: u32 = (D * FFN / 4096) as u32;
/// Blocks of the first kernel that copy the small parameters.
const VECTOR_BLOCKS: usize = 10;

/// No chunks.
pub(super) const NOTHING: Range<u32> = CHUNKS..CHUNKS;

/// Chunks that one idle SM casts in 100 us beside a product (H200), and all of them together in the first kernel (H100).
const CAST_RATE: usize = 300;
const CAST_RATE_ALL: usize = 21_300;

/// Chunks that each SM casts beside its block of attention in 100 us, by the block's groups of 64 rows (H100).
const CAST_BESIDE_RATE: [usize; 3] = [240, 80, 55];
/// Where attention casts so what is left, the most that an SM casts beside the QKV product: more makes that longer than it makes attention shorter. In whole
/// rounds, as beside wide tiles all warps of an SM cast a chunk together (H100).
const CAST_BESIDE_QKV: usize = 12;
/// What a chunk that each SM casts beside its block of attention adds to that, in 0.01 us, likewise. To larger blocks it adds too little to choose QKV's tile
/// by it (H100, 520 to 2112 rows).
const CAST_BESIDE_COST: [usize; 3] = [32, 0, 0];
/// Chunks that two SMs cast beside attention in clusters, where that and the QKV product get their share (H100, by 641 to 896 rows).
const CAST_IN_CLUSTERS: usize = 11;

/// Rows of a call whose first kernel's blocks start two by two.
pub(super) const PAIRED_ROWS: RangeInclusive<usize> = 65..=640;

/// The last chunks of W_proj, which warps of FC's blocks cast, by the rows of a call. Then each of attention's warps casts [`CHUNKS_A_WARP`], so that they need
/// no third round, and the idle SMs of the QKV product what is left over. As measured on an H200: at 449 to 576 rows it gains nothing, beyond 896 neither.
const fn chunks_beside_fc(rows: usize) -> u32 {
    match rows {
        257..=320 => 288,
        321..=448 | 577..=896 => 216,
        _ => 0,
    }
}
const CHUNKS_A_WARP: usize = 2;

/// Whether W_qkv is cast and may lie where the last of W_proj will: as much of W_proj is cast when the QKV product has had its weights, by attention, which
/// waits for that, or behind it; in one kernel with QKV for the blocks that read it.
#[must_use]
pub fn qkv_makes_room(launches: &[Launch]) -> bool {
    let attends = |launch: &&Launch| matches!(launch.kernel, Kernel::Attention { .. } | Kernel::QkvAttention { .. });
    let before = launches.iter().take_while(|launch| !attends(launch));
    let mut casts = before.filter(|launch| !launch.cast.is_empty()).map(|launch| launch.cast.clone()).peekable();
    casts.peek().is_some_and(|first| first.start == 0) && casts.all(|chunks| chunks.end <= CHUNKS - CHUNKS_QKV)
}

/// Fewer idle SMs than these cast nothing beside the attention projection, or in front of it: they would outlast it.
pub(super) const FEWEST_WORKERS: u32 = 16;

/// The launches in front of proj with the cast of all weights. The attention projection and FC cast the last ([`casting_projection`], [`casting_fc`]); of the
/// rest, what the SMs that the QKV product leaves idle and the blocks of attention can do in that time, they do, and the first kernel what is left. The QKV
/// product takes the tile with which all this would be over first.
pub(super) fn casting(chip: Chip, shape: Shape) -> [Launch; 5] {
    let rows = shape.rows();
    let attention = attention::attention(chip, shape);
    let fc = casting_fc(chip, rows);
    let projection = casting_projection(chip, rows, &attention, fc.cast.start);
    let rest = Rest { last: projection.cast.start, fc_casts: !fc.cast.is_empty() };
    let all = product::eligible(Gemm::Qkv, rows, false).map(|tile| Shares::new(chip, shape, tile, &attention, rest));
    let best = all.min_by_key(|shares| shares.time);
    let shares = best.unwrap_or_else(|| Shares::new(chip, shape, 0, &attention, rest));
    let [first, qkv, attention] = shares.launches(chip, rows, attention, rest.last);
    [first, qkv, attention, projection, fc]
}

/// What is cast before the attention projection.
#[derive(Clone, Copy)]
struct Rest {
    /// The first chunk that is not.
    last: u32,
    /// Whether FC casts, too.
    fc_casts: bool,
}

/// How many chunks the QKV product's idle SMs and attention can cast at most, and how they share what is to be hidden.
struct Capacities {
    beside_qkv: usize,
    beside_attention: usize,
    order: Order,
    /// What a chunk that each SM casts adds to attention, in 0.01 us.
    cost: usize,
}

/// Who gets a share of what is to be hidden, and who what is left.
enum Order {
    QkvFirst,
    /// Attention gets so many chunks first.
    AttentionFirst(usize),
    /// Both get their share.
    Together,
}

impl Capacities {
    fn new(chip: Chip, shape: Shape, attention: &Launch, idle: u32, qkv_time: usize, fc_casts: bool) -> Self {
        let beside_qkv = capacity(idle, qkv_time);
        let blocks = working_sms(chip, attention);
        match casting_form(attention) {
            Some(form) if form.blocks > 1 => {
                Self { beside_qkv, beside_attention: CAST_IN_CLUSTERS * blocks / 2, order: Order::Together, cost: 0 }
            }
            Some(form) => Self {
                beside_qkv: beside_qkv.min(CAST_BESIDE_QKV * idle as usize),
                beside_attention: blocks * attention::time(chip, shape) * CAST_BESIDE_RATE[form.rows - 1] / 10_000,
                order: match fc_casts {
                    true => Order::AttentionFirst(CHUNKS_A_WARP * form.casting_warps() * blocks),
                    false => Order::QkvFirst,
                },
                cost: CAST_BESIDE_COST[form.rows - 1],
            },
            None => Self { beside_qkv, beside_attention: 0, order: Order::QkvFirst, cost: 0 },
        }
    }

    fn all(&self) -> usize {
        self.beside_qkv + self.beside_attention
    }

    /// Of so many chunks, those beside the QKV product.
    fn beside_qkv_of(&self, hidden: usize) -> usize {
        match self.order {
            Order::QkvFirst => hidden.min(self.beside_qkv),
            Order::AttentionFirst(chunks) => hidden.saturating_sub(chunks).min(self.beside_qkv),
            Order::Together => hidden * self.beside_qkv / self.all().max(1),
        }
    }
}

/// Who casts the chunks in front of the fourth launch's if the QKV product takes this form.
struct Shares {
    qkv: Launch,
    /// The first chunk that is cast beside the QKV product, and beside attention.
    start: u32,
    middle: u32,
    /// Of the QKV product, of what is cast before, and what the rest of the cast adds to attention, in 0.01 us.
    time: usize,
}

impl Shares {
    fn new(chip: Chip, shape: Shape, tile: usize, attention: &Launch, rest: Rest) -> Self {
        let Rest { last, fc_casts } = rest;
        let (rows, form) = (shape.rows(), &tiles(Gemm::Qkv)[tile]);
        let (qkv, qkv_time) = (product_in(chip, Gemm::Qkv, tile, rows), product::time(chip, Gemm::Qkv, form, rows));
        let capacities = Capacities::new(chip, shape, attention, idle_sms(chip.sms, &qkv), qkv_time, fc_casts);
        let before = ((CHUNKS - CHUNKS_QKV) as usize).saturating_sub(capacities.all());
        let start = CHUNKS_QKV + count(before).saturating_sub(CHUNKS - last);
        let hidden = (last - start) as usize;
        let beside_qkv = capacities.beside_qkv_of(hidden);
        let beside_attention = capacities.cost * (hidden - beside_qkv) / working_sms(chip, attention);
        let time = qkv_time + 10_000 * before / CAST_RATE_ALL + beside_attention;
        Self { qkv, start, middle: start + count(beside_qkv), time }
    }

    fn launches(self, chip: Chip, rows: usize, attention: Launch, last: u32) -> [Launch; 3] {
        let Self { start, middle, .. } = self;
        let mut launches = [cast_layernorm(rows, 0..start), self.qkv, attention];
        if middle > start {
            launches[1].grid[0] += idle_sms(chip.sms, &launches[1]);
            launches[1].cast = start..middle;
        }
        if last > middle {
            launches[2].cast = middle..last;
        }
        launches
    }
}

/// The attention projection with what the SMs that it leaves idle cast in front of chunk `end`. That is of W_proj alone: the product after it fetches W_fc
/// before it has ended. Half of W_proj at most, a quarter behind attention in clusters, and half of what they could, because they start when attention has
/// left them; as measured on an H200.
pub(super) fn casting_projection(chip: Chip, rows: usize, attention: &Launch, end: u32) -> Launch {
    let tile = product::fastest(chip, Gemm::AttnProj, rows, false);
    let mut launch = product_in(chip, Gemm::AttnProj, tile, rows);
    let idle = idle_sms(chip.sms, &launch);
    launch.cast = end..end;
    if idle >= FEWEST_WORKERS {
        let time = product::time(chip, Gemm::AttnProj, &tiles(Gemm::AttnProj)[tile], rows);
        launch.grid[0] += idle;
        let clusters = casting_form(attention).is_some_and(|form| form.blocks > 1);
        let most = if clusters { CHUNKS_PROJ / 4 } else { (CHUNKS_PROJ / 2).min(CHUNKS_PROJ - (CHUNKS - end)) };
        launch.cast.start -= count(capacity(idle, time) / 2).min(most);
    }
    launch
}

/// FC with what warps beside those that multiply cast of W_proj, where it has any.
pub(super) fn casting_fc(chip: Chip, rows: usize) -> Launch {
    let tile = product::fastest(chip, Gemm::Fc, rows, false);
    let mut launch = product_in(chip, Gemm::Fc, tile, rows);
    let warps = tiles(Gemm::Fc)[tile].casting_warps();
    if warps > 0 && chunks_beside_fc(rows) > 0 {
        launch.threads += 32 * warps;
        launch.cast = CHUNKS - chunks_beside_fc(rows)..CHUNKS;
    }
    launch
}

/// Rows of W_proj that are cast before FC begins, or all.
#[must_use]
pub fn proj_rows_before_fc(launches: &[Launch]) -> usize {
    let is_fc = |launch: &&Launch| matches!(launch.kernel, Kernel::Gemm { gemm: Gemm::Fc, .. });
    let cast = launches.iter().find(is_fc).map_or(NOTHING, |fc| fc.cast.clone());
    cast.start.saturating_sub(CHUNKS - CHUNKS_PROJ) as usize * 4096 / D
}

/// The form of this attention if its blocks can cast beside their own work. Causal ones cannot: only a prepared block is causal.
fn casting_form(attention: &Launch) -> Option<&'static AttentionForm> {
    match attention.kernel {
        Kernel::Attention { form, causal: false } => Some(&ATTENTION[form]),
        _ => None,
    }
}

/// SMs that attention works on.
fn working_sms(chip: Chip, attention: &Launch) -> usize {
    chip.sms.min(attention.working as usize)
}

/// SMs without a block in the last wave.
fn idle_sms(sms: usize, launch: &Launch) -> u32 {
    match launch.working as usize % sms {
        0 => 0,
        last_wave => count(sms - last_wave),
    }
}

/// Chunks that so many SMs cast in this time, in 0.01 us.
fn capacity(workers: u32, time: usize) -> usize {
    workers as usize * time * CAST_RATE / 10_000
}

/// The first kernel's blocks where so many have work: in pairs one more may have none.
fn started(rows: usize, blocks: u32) -> u32 {
    if PAIRED_ROWS.contains(&rows) { blocks.next_multiple_of(2) } else { blocks }
}

pub(super) fn cast_layernorm(rows: usize, cast: Range<u32>) -> Launch {
    let blocks = started(rows, count(rows.div_ceil(8) + VECTOR_BLOCKS) + cast.len() as u32);
    Launch { kernel: Kernel::CastLayernorm, grid: [blocks, 1, 1], threads: 256, shared: 0, working: blocks, cast }
}

/// The same where nothing is cast, in larger blocks.
pub(super) fn layernorm_vectors(rows: usize) -> Launch {
    let blocks = started(rows, count(rows.div_ceil(16) + VECTOR_BLOCKS / 2));
    Launch {
        kernel: Kernel::LayernormVectors,
        grid: [blocks, 1, 1],
        threads: 512,
        shared: 0,
        working: blocks,
        cast: NOTHING,
    }
}

/// The attention projection of 129 to 256 rows, beside which the rest of W_proj is cast, from this chunk on, where FC's blocks will start. None: there are not
/// enough SMs for both.
pub(super) fn casting_rest(chip: Chip, rows: usize, first: u32, fc: &Launch) -> Option<Launch> {
    let launch = product::product(chip, Gemm::AttnProj, rows, false);
    if launch.working + fc.working > count(chip.sms) {
        return None;
    }
    Some(Launch { grid: [count(chip.sms), 1, 1], cast: first..CHUNKS, ..launch })
}

/// The first kernel of a prepared block, which has the small parameters already.
pub(super) fn layernorm(rows: usize) -> Launch {
    let blocks = count(rows.div_ceil(8));
    Launch { kernel: Kernel::Layernorm, grid: [blocks, 1, 1], threads: 256, shared: 0, working: blocks, cast: NOTHING }
}
