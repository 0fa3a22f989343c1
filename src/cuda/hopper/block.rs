//! The Hopper block: each launch of the plan with its tensor maps and its struct of arguments, as cuda/ declares them.

use super::kernels::{self, Kernels};
use super::packed::Packed;
use super::plan::product::Tile;
use super::plan::qkv_attention::ROWS as ATTENDED_ROWS;
use super::plan::shared::{SHARED, SharedTile};
use super::plan::{
    self, ATTENTION, ATTENTION_PROJ, CHUNKS_ATTN, CHUNKS_QKV, Dealing, FEW, FEW_IN_FP32, FewTile, FewWeights, Gemm,
    Kernel, Launch, ROW_TILES,
};
use super::plan::{direct, product};
use super::views::{self, slab};
use crate::cuda::block::{Buffers, Shape};
use crate::cuda::exact::{self, Behind};
use crate::cuda::launch::{Arguments, Edge, Residency, Step, pair};
use crate::cuda::tensor_map::{Element, View};
use crate::cuda::workspace::vectors;
use crate::dims::{D, FFN, QKV};
use crate::error::Error;
use crate::precision::SolvePrecision;
use crate::weights::{B_ATTN, B_QKV, W_ATTN, W_FC, W_PROJ, W_QKV};

/// The steps of one forward, and what whoever judges its result comes behind.
pub fn forward(
    kernels: &Kernels,
    shape: Shape,
    buffers: &Buffers,
    waiting: Residency,
) -> Result<(Vec<Step>, Behind), Error> {
    let launches = plan::forward(kernels.chip, shape, buffers.weights.is_multiple_of(16));
    let behind = match launches.last() {
        Some(Launch { kernel: Kernel::Few { .. }, .. }) if plan::judges_itself(&shape) => Behind::Itself,
        Some(last @ Launch { kernel: Kernel::Direct { .. }, .. }) => Behind::Watching(direct::watchers(last)),
        _ => Behind::Settled,
    };
    Ok((steps(kernels, &launches, shape, buffers, waiting)?, behind))
}

/// The steps of these launches.
pub fn steps(
    kernels: &Kernels,
    launches: &[Launch],
    shape: Shape,
    buffers: &Buffers,
    waiting: Residency,
) -> Result<Vec<Step>, Error> {
    let call = Call::new(shape, buffers, launches, waiting);
    launches.iter().map(|launch| call.step(kernels, launch)).collect()
}

/// The steps that cast the weights. They raise no alarms of single weights: the exact kernel, which splits the same ones, does.
pub fn prepare(kernels: &Kernels, buffers: &Buffers) -> Result<Vec<Step>, Error> {
    let precision = SolvePrecision::Fast;
    let shape =
        Shape { batch: 0, seq_len: 0, causal: false, prepared: false, precision, guarded: false, rescued: false };
    let launches = plan::prepare();
    let packed = Packed::kept(&buffers.parts);
    let call = Call { alarms: 0, packed, ..Call::new(shape, buffers, &launches, Residency::Cooperative) };
    let wanted =
        |launch: &&Launch| matches!(launch.kernel, Kernel::FewPrepare | Kernel::FewMerge) || buffers.parts.packed != 0;
    launches.iter().filter(wanted).map(|launch| call.step(kernels, launch)).collect()
}

/// What every launch of a call shares.
struct Call<'a> {
    buffers: &'a Buffers,
    shape: Shape,
    /// Where kernels that read the weights raise alarms, or 0
    alarms: u64,
    packed: Packed,
    /// Tiles of a row in the attention projection, which is how far apart the statistics of a row lie, or 0
    row_tiles: u32,
    /// Tiles of a row in the attention projection where LN2 is folded into the weights and its blocks do not wait for each other, else 0
    apart: u32,
    /// Whether W_attn is cast before the attention projection begins, so that it may fetch it while attention runs
    attn_early: bool,
    /// Rows of W_proj that are cast before FC begins
    proj_rows: usize,
    /// How blocks of the attention projection come together
    waiting: Residency,
    /// Whether QKV and attention are one kernel, whose output lies where Q would
    fused: bool,
    /// Where QKV tells attention how long its queries and keys are, or 0
    longest_rows: u64,
}

impl<'a> Call<'a> {
    fn new(shape: Shape, buffers: &'a Buffers, launches: &[Launch], waiting: Residency) -> Self {
        let any = |has: fn(&Launch) -> bool| launches.iter().any(has);
        let row_tiles = launches.iter().find_map(|launch| match launch.kernel {
            Kernel::Gemm { gemm: Gemm::AttnProj, tile } => Some(D / product::tiles(Gemm::AttnProj)[tile].n),
            Kernel::AttentionProj { .. } => Some(ROW_TILES),
            _ => None,
        });
        let apart = launches.iter().find_map(|launch| match launch.kernel {
            Kernel::Apart { tile } => Some(D / product::tiles(Gemm::AttnProj)[tile].n),
            _ => None,
        });
        let fused = any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }));
        let attention_casts_others = any(|launch| {
            matches!(launch.kernel, Kernel::Attention { .. }) && launch.cast.start >= CHUNKS_QKV + CHUNKS_ATTN
        });
        let lengths =
            any(|launch| matches!(launch.kernel, Kernel::Attention { form, .. } if ATTENTION[form].wants_lengths()));
        Self {
            buffers,
            shape,
            alarms: if shape.prepared { 0 } else { buffers.parts.alarms },
            packed: if shape.prepared { Packed::kept(&buffers.parts) } else { Packed::of_call(buffers, launches) },
            row_tiles: row_tiles.unwrap_or(0) as u32,
            apart: apart.unwrap_or(0) as u32,
            attn_early: shape.prepared || fused || attention_casts_others,
            proj_rows: plan::proj_rows_before_fc(launches),
            waiting,
            fused,
            longest_rows: if lengths { buffers.parts.longest_rows } else { 0 },
        }
    }

    fn step(&self, kernels: &Kernels, launch: &Launch) -> Result<Step, Error> {
        Ok(Step {
            what: kernels::what(launch.kernel),
            function: kernels.get(launch.kernel),
            grid: launch.grid,
            threads: launch.threads,
            shared: launch.shared,
            pairs: plan::starts_in_pairs(launch, self.shape.rows()),
            edge: if launch.kernel.comes_first() { Edge::Full } else { Edge::Programmatic },
            residency: launch.kernel.residency(self.waiting),
            arguments: self.arguments(launch)?,
        })
    }

    fn arguments(&self, launch: &Launch) -> Result<Arguments, Error> {
        let Buffers { weights, parts, .. } = self.buffers;
        Ok(match launch.kernel {
            Kernel::CastLayernorm | Kernel::LayernormVectors | Kernel::Layernorm => self.cast_layernorm(launch),
            Kernel::Gemm { gemm, tile } => self.gemm(launch, gemm, tile)?,
            Kernel::FcScaled { tile } => self.gemm(launch, Gemm::Fc, tile)?,
            Kernel::Apart { tile } => self.gemm(launch, Gemm::AttnProj, tile)?,
            Kernel::Direct { gemm } => self.direct(gemm)?,
            Kernel::Shared { form } => self.shared(launch, &SHARED[form])?,
            Kernel::Attention { form, causal } => self.attention(launch, form, causal)?,
            Kernel::AttentionShort { .. } => {
                let Shape { batch, seq_len, causal, .. } = self.shape;
                let counts = [batch as u64, seq_len as u64, u64::from(causal)];
                Arguments::each(&[parts.qkv, self.att()]).each_more(&counts)
            }
            Kernel::QkvAttention { .. } => self.qkv_attention(launch)?,
            Kernel::AttentionProj { form } => self.attention_proj(launch, form)?,
            Kernel::Few { weights, tile } => self.few(weights, tile)?,
            Kernel::FewInFp32 { aligned, form } => self.few_in_fp32(aligned, form)?,
            Kernel::FewPrepare | Kernel::FewMerge => Arguments::each(&[*weights, parts.few_weights]),
            Kernel::TransposeQkv => Arguments::each(&[*weights, parts.qkv_transposed]),
            Kernel::FoldLayernorm2 => Arguments::each(&[*weights, parts.packed, parts.vectors, parts.alarms]),
        })
    }

    fn rows(&self) -> u32 {
        self.buffers.rows as u32
    }

    fn row_facts(&self) -> [u64; 2] {
        self.buffers.parts.row_facts(self.buffers.rows)
    }

    fn vector(&self, floats: usize) -> u64 {
        self.buffers.parts.vectors + 4 * floats as u64
    }

    /// `CastArgs`
    fn cast(&self, launch: &Launch) -> [u64; 6] {
        let [packed, qkv, attn] = self.packed.targets();
        [self.buffers.weights, packed, qkv, attn, pair(launch.cast.start, launch.cast.end), self.alarms]
    }

    fn cast_layernorm(&self, launch: &Launch) -> Arguments {
        let Buffers { x, output, x_copy, parts, .. } = self.buffers;
        let mut cast = self.cast(launch);
        if self.shape.prepared {
            // gamma1 and beta1 lie first, as in the weights.
            cast[0] = self.vector(vectors::GAMMA1);
        }
        let rows = pair(self.rows(), self.row_tiles);
        let output = if self.shape.prepared { 0 } else { *output };
        let facts = if self.apart > 0 { self.row_facts()[0] } else { 0 };
        // K and V of what is behind the last row are multiplied by zeros, which takes numbers.
        let filled = if self.fused { self.buffers.rows.next_multiple_of(ATTENDED_ROWS) } else { self.buffers.rows };
        let first = [*x, parts.h, parts.vectors, parts.statistics, rows];
        Arguments::new().words(&first).words(&cast).words(&[*x_copy, output, facts, self.longest_rows, filled as u64])
    }

    fn gemm(&self, launch: &Launch, gemm: Gemm, tile: usize) -> Result<Arguments, Error> {
        let tile = &product::tiles(gemm)[tile];
        let Buffers { x, output, parts: w, .. } = self.buffers;
        let rows = self.rows();
        let early = match gemm {
            Gemm::Proj => product::early_of_proj(self.buffers.rows, tile, self.proj_rows),
            _ => product::early(self.buffers.rows),
        };
        let left = match gemm {
            Gemm::AttnProj if self.fused => views::left_of(w.qkv, gemm.depth(), QKV, self.buffers.rows, tile.m),
            // Attention of sequences of one token is V.
            Gemm::AttnProj if self.shape.seq_len == 1 => {
                views::left(w.qkv + 4 * D as u64, gemm.depth(), QKV, self.buffers.rows, tile)
            }
            _ => views::left(self.left(gemm), gemm.depth(), gemm.depth(), self.buffers.rows, tile),
        };
        let right = match tile.transposed() {
            true => views::right_transposed(w.qkv_transposed, gemm, tile),
            false => views::right(self.packed.matrix(gemm), gemm, tile),
        };
        let maps = Arguments::new().map(&left.encode()?).map(&right.encode()?);
        let maps = self.results(maps, gemm, tile)?;
        let bias = self.bias(gemm);
        let words = match gemm {
            Gemm::Qkv => {
                // The caller's biases are there before the first kernel has copied them.
                let (bias, early, callers) = match self.shape.prepared {
                    true => (bias, early, 0),
                    false => (self.buffers.weights + 4 * B_QKV.offset as u64, 0, 1),
                };
                let first = [bias, pair(rows, launch.working), pair(early, callers)];
                [&first[..], &self.cast(launch), &[self.longest_rows, pair(rows, 0)]].concat()
            }
            Gemm::AttnProj if self.apart > 0 => {
                let [facts, row_parts] = self.row_facts();
                vec![bias, *x, facts, row_parts, pair(rows, 0), pair(early, 0)]
            }
            Gemm::AttnProj => {
                let early = pair(if self.attn_early { early } else { 0 }, launch.working);
                let gamma = self.vector(vectors::GAMMA2);
                let rows = pair(rows, 0);
                [&[bias, *x, gamma, w.statistics, rows, early][..], &self.cast(launch)].concat()
            }
            Gemm::Fc if self.apart > 0 => {
                let [facts, row_parts] = self.row_facts();
                vec![bias, pair(rows, early), facts, row_parts, pair(self.apart, 0)]
            }
            Gemm::Fc => [&[bias, pair(rows, early)][..], &self.cast(launch)].concat(),
            Gemm::Proj if tile.swapped => vec![bias, pair(rows, early)],
            Gemm::Proj => vec![bias, w.x1, *output, pair(rows, early)],
        };
        Ok(maps.words(&words))
    }

    /// A product that reads the caller's weights as they are: `DirectHalfArgs` or `ProjDirectArgs` behind its maps
    fn direct(&self, gemm: Gemm) -> Result<Arguments, Error> {
        let Buffers { output, parts: w, rows, .. } = self.buffers;
        let left = views::direct_left(self.left(gemm), gemm.depth(), gemm.depth(), *rows, direct::ROWS).encode()?;
        let maps = Arguments::new().map(&left);
        let (bias, matrix, alarms) = (self.bias(gemm), self.matrix(gemm), self.alarms);
        Ok(match gemm {
            Gemm::Proj => maps.words(&[bias, w.x1, *output, matrix, alarms, pair(self.rows(), 0)]),
            _ => maps.map(&self.half_result(gemm, 32).encode()?).words(&[bias, matrix, alarms]),
        })
    }

    /// The same where two blocks share the weights: `DirectHalfArgs` behind two maps, and `CastArgs` behind QKV's
    fn shared(&self, launch: &Launch, tile: &SharedTile) -> Result<Arguments, Error> {
        let SharedTile { gemm, m, .. } = *tile;
        let (from, depth, rows) = (self.left(gemm), gemm.depth(), self.buffers.rows);
        let left = match m {
            64 => views::direct_left(from, depth, depth, rows, m),
            _ => views::left_of(from, depth, depth, rows, m),
        };
        let maps = Arguments::new().map(&left.encode()?).map(&self.half_result(gemm, tile.slab()).encode()?);
        let arguments = maps.words(&[self.bias(gemm), self.matrix(gemm), self.alarms]);
        Ok(if launch.cast.is_empty() { arguments } else { arguments.words(&self.cast(launch)) })
    }

    /// Where the caller's matrix is.
    fn matrix(&self, gemm: Gemm) -> u64 {
        let matrix = match gemm {
            Gemm::Qkv => W_QKV,
            Gemm::AttnProj => W_ATTN,
            Gemm::Fc => W_FC,
            Gemm::Proj => W_PROJ,
        };
        self.buffers.weights + 4 * matrix.offset as u64
    }

    /// What QKV or FC stores, in boxes so wide.
    fn half_result(&self, gemm: Gemm, wide: u32) -> View {
        let Buffers { parts, rows, .. } = self.buffers;
        views::out(Element::F16, if gemm == Gemm::Fc { parts.f } else { parts.qkv }, gemm.columns(), *rows, wide)
    }

    /// The left operand of a product.
    fn left(&self, gemm: Gemm) -> u64 {
        match gemm {
            Gemm::Proj => self.buffers.parts.f,
            Gemm::AttnProj => self.att(),
            Gemm::Qkv | Gemm::Fc => self.buffers.parts.h,
        }
    }

    /// Attention's output
    fn att(&self) -> u64 {
        let Buffers { parts, rows, .. } = self.buffers;
        if self.apart > 0 { parts.behind_qkv(*rows) } else { parts.h }
    }

    fn bias(&self, gemm: Gemm) -> u64 {
        self.vector(match gemm {
            Gemm::Qkv => vectors::B_QKV,
            Gemm::AttnProj => vectors::B_ATTN,
            Gemm::Fc => vectors::B_FC,
            Gemm::Proj => vectors::B_PROJ,
        })
    }

    /// The maps of what a product stores by the copy engine.
    fn results(&self, maps: Arguments, gemm: Gemm, tile: &Tile) -> Result<Arguments, Error> {
        let Buffers { parts: w, rows, .. } = *self.buffers;
        let columns = gemm.columns();
        Ok(match gemm {
            Gemm::Qkv if tile.swapped => {
                maps.map(&views::out_in(Element::F16, w.qkv, columns, rows, [64, tile.swapped_box() as u32]).encode()?)
            }
            Gemm::Qkv => {
                let maps = maps.map(&views::out(Element::F16, w.qkv, columns, rows, slab(tile)).encode()?);
                let rest = tile.n as u32 % slab(tile);
                match tile.transposed() {
                    true => maps.map(&views::out(Element::F16, w.qkv, columns, rows, rest).encode()?),
                    false => maps,
                }
            }
            Gemm::AttnProj => {
                let maps = maps.map(&views::out(Element::F32, w.x1, columns, rows, 32).encode()?);
                maps.map(&views::out(Element::F16, w.h, columns, rows, 32).encode()?)
            }
            Gemm::Fc if tile.swapped => {
                maps.map(&views::out_in(Element::F16, w.f, columns, rows, [64, tile.swapped_box() as u32]).encode()?)
            }
            Gemm::Fc => maps.map(&views::out(Element::F16, w.f, columns, rows, slab(tile)).encode()?),
            Gemm::Proj if tile.swapped => {
                let boxes = |base| views::out_in(Element::F32, base, columns, rows, [32, tile.m as u32]).encode();
                maps.map(&boxes(w.x1)?).map(&boxes(self.buffers.output)?)
            }
            Gemm::Proj => maps,
        })
    }

    fn attention(&self, launch: &Launch, form: usize, causal: bool) -> Result<Arguments, Error> {
        let Buffers { parts, .. } = self.buffers;
        let maps = Arguments::new().map(&views::sequences(parts.qkv, QKV, self.shape).encode()?);
        if ATTENTION[form].blocks > 1 {
            let seq_len = self.shape.seq_len;
            let (groups, inverse) = plan::row_groups(seq_len);
            let cast = self.cast(launch);
            return Ok(maps.words(
                &[&[self.att(), pair(seq_len as u32, groups), pair(inverse, 0)][..], &cast, &[self.longest_rows]]
                    .concat(),
            ));
        }
        if ATTENTION[form].dealt {
            let Dealing { rows, key_tiles, share, longer } =
                plan::dealing(launch.working as usize, self.shape, &ATTENTION[form]);
            let maps = maps.map(&views::sequences(self.att(), D, self.shape).encode()?);
            let dealing = [pair(self.shape.seq_len as u32, rows), pair(key_tiles, share), pair(longer, 0)];
            let memory = [parts.flags, parts.shares];
            return Ok(maps.words(&[&dealing[..], &memory, &self.cast(launch), &[self.longest_rows]].concat()));
        }
        let maps =
            maps.map(&views::sequences(self.att(), D, self.shape).encode()?).each_more(&[self.shape.seq_len as u64]);
        let maps = if causal { maps } else { maps.words(&self.cast(launch)) };
        Ok(maps.each_more(&[self.longest_rows]))
    }

    /// `QkvAttentionArgs` behind three maps
    fn qkv_attention(&self, launch: &Launch) -> Result<Arguments, Error> {
        let Buffers { parts, rows, .. } = self.buffers;
        let maps = Arguments::new()
            .map(&views::left_of(parts.h, D, D, *rows, ATTENDED_ROWS).encode()?)
            .map(&views::qkv_head(self.packed.matrix(Gemm::Qkv)).encode()?)
            .map(&views::sequences(parts.qkv, QKV, self.shape).encode()?);
        let lengths = pair(self.shape.seq_len as u32, launch.working);
        Ok(maps.words(&[&[lengths][..], &self.cast(launch)].concat()))
    }

    /// `AttentionProjArgs` behind one or two maps, and `CastArgs` behind those of the form that casts
    fn attention_proj(&self, launch: &Launch, form: usize) -> Result<Arguments, Error> {
        let Buffers { x, weights, parts: w, .. } = self.buffers;
        let rows = self.buffers.rows;
        let maps = Arguments::new().map(&views::rows(w.qkv, QKV, rows).encode()?);
        let (maps, matrix) = if ATTENTION_PROJ[form].packed {
            (maps.map(&views::attention_proj_right(self.packed.matrix(Gemm::AttnProj)).encode()?), 0)
        } else {
            (maps, self.matrix(Gemm::AttnProj))
        };
        // b_attn, gamma2 and beta2 lie together in both.
        let vectors =
            if self.shape.prepared { self.vector(vectors::B_ATTN) } else { weights + 4 * B_ATTN.offset as u64 };
        let pointers = [*x, vectors, matrix, w.x1, w.h, w.statistics, self.alarms];
        let shape = [pair(self.rows(), self.shape.seq_len as u32), pair(u32::from(self.shape.causal), 0)];
        let arguments = maps.words(&[&pointers[..], &shape].concat());
        Ok(if launch.cast.is_empty() { arguments } else { arguments.words(&self.cast(launch)) })
    }

    fn few(&self, weights: FewWeights, tile: usize) -> Result<Arguments, Error> {
        let Buffers { x, output, weights: from, x_copy, parts, .. } = self.buffers;
        let from = if weights == FewWeights::Prepared { parts.few_weights } else { *from };
        let counts = [u64::from(self.rows()), self.shape.seq_len as u64, u64::from(self.shape.causal)];
        let arguments = Arguments::each(&[*x, *output, from, parts.few]).each_more(&counts).each_more(&[*x_copy]);
        Ok(match weights {
            FewWeights::Aligned => streamed(arguments, from, &FEW[tile])?,
            FewWeights::Prepared if !plan::judges_itself(&self.shape) => arguments.words(&[0; exact::WORDS]),
            _ => arguments,
        })
    }

    fn few_in_fp32(&self, aligned: bool, form: usize) -> Result<Arguments, Error> {
        let Buffers { x, output, weights, parts, .. } = self.buffers;
        let from = if self.shape.prepared { parts.exact + exact::PLAIN as u64 } else { *weights };
        let counts = [u64::from(self.rows()), self.shape.seq_len as u64, u64::from(self.shape.causal)];
        let arguments = Arguments::each(&[*x, *output, from, parts.few]).each_more(&counts);
        if aligned { streamed(arguments, from, &FEW_IN_FP32[form]) } else { Ok(arguments) }
    }
}

/// With the maps of fp32 weights.
fn streamed(arguments: Arguments, from: u64, tile: &FewTile) -> Result<Arguments, Error> {
    let [qkv, attn, fc, proj] = tile.boxes();
    let maps = [
        views::stream(from, W_QKV.offset, D, QKV, qkv).encode()?,
        views::stream(from, W_ATTN.offset, D, D, attn).encode()?,
        views::stream(from, W_FC.offset, D, FFN, fc).encode()?,
        views::stream(from, W_PROJ.offset, FFN, D, proj).encode()?,
    ];
    Ok(arguments.maps(&maps.each_ref()))
}
