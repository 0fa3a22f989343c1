//! The Hopper block: each launch of the plan with its tensor maps and its struct of arguments, as cuda/ declares them.

use super::kernels::Kernels;
use super::plan::product::Tile;
use super::plan::{self, FEW, FewWeights, Gemm, Kernel, Launch, direct, product};
use crate::cuda::block::{Buffers, Shape};
use crate::cuda::launch::{Arguments, Edge, Step, pair};
use crate::cuda::tensor_map::{Element, Promotion, Swizzle, TensorMap};
use crate::cuda::workspace::{packed, vectors};
use crate::dims::{D, FFN, QKV};
use crate::error::Error;
use crate::precision::SolvePrecision;
use crate::weights::{W_ATTN, W_FC, W_PROJ, W_QKV};

/// The steps of one forward.
pub fn forward(kernels: &Kernels, sms: usize, shape: Shape, buffers: &Buffers) -> Result<Vec<Step>, Error> {
    let launches = plan::forward(sms, shape, buffers.weights.is_multiple_of(16));
    // The statistics of a row lie as far apart as the attention projection has tiles in it.
    let row_tiles = launches.iter().find_map(|launch| match launch.kernel {
        Kernel::Gemm { gemm: Gemm::AttnProj, tile } => Some(D / product::tiles(Gemm::AttnProj)[tile].n),
        Kernel::Direct { gemm: Gemm::AttnProj, tile } => Some(D / direct::tiles(Gemm::AttnProj)[tile].n),
        _ => None,
    });
    let alarms = if shape.prepared { 0 } else { buffers.parts.alarms };
    let call = Call { buffers, shape, alarms, row_tiles: row_tiles.unwrap_or(0) as u32 };
    launches.iter().map(|launch| call.step(kernels, launch)).collect()
}

/// The steps that cast the weights. They raise no alarms: the exact kernel, which splits the same weights, does.
pub fn prepare(kernels: &Kernels, buffers: &Buffers) -> Result<Vec<Step>, Error> {
    let shape = Shape { batch: 0, seq_len: 0, causal: false, prepared: false, precision: SolvePrecision::Fast };
    let call = Call { buffers, shape, alarms: 0, row_tiles: 0 };
    let wanted = |launch: &&Launch| launch.kernel == Kernel::FewPrepare || buffers.parts.packed != 0;
    plan::prepare().iter().filter(wanted).map(|launch| call.step(kernels, launch)).collect()
}

/// What every launch of a call shares.
struct Call<'a> {
    buffers: &'a Buffers,
    shape: Shape,
    /// Where kernels that read the weights raise alarms, or 0
    alarms: u64,
    row_tiles: u32,
}

impl Call<'_> {
    fn step(&self, kernels: &Kernels, launch: &Launch) -> Result<Step, Error> {
        let (what, arguments) = match launch.kernel {
            Kernel::CastLayernorm => ("launch of the weight cast and LN1", self.cast_layernorm(launch)),
            Kernel::Gemm { gemm, tile } => (product_name(gemm), self.gemm(launch, gemm, &product::tiles(gemm)[tile])?),
            Kernel::Direct { gemm, tile } => (product_name(gemm), self.direct(gemm, &direct::tiles(gemm)[tile])?),
            Kernel::Attention { causal, .. } => ("launch of attention", self.attention(launch, causal)?),
            Kernel::Few { weights, tile } => ("launch of the block for few tokens", self.few(weights, tile)?),
            Kernel::FewPrepare => {
                ("launch of the weight cast", Arguments::each(&[self.buffers.weights, self.buffers.parts.few_weights]))
            }
        };
        let first = matches!(launch.kernel, Kernel::CastLayernorm | Kernel::Few { .. } | Kernel::FewPrepare);
        Ok(Step {
            what,
            function: kernels.get(launch.kernel),
            grid: launch.grid,
            threads: launch.threads,
            shared: launch.shared,
            edge: if first { Edge::Full } else { Edge::Programmatic },
            cooperative: matches!(launch.kernel, Kernel::Few { .. }),
            arguments,
        })
    }

    fn rows(&self) -> u32 {
        self.buffers.rows as u32
    }

    fn vector(&self, floats: usize) -> u64 {
        self.buffers.parts.vectors + 4 * floats as u64
    }

    /// `CastArgs`
    fn cast(&self, launch: &Launch) -> [u64; 4] {
        let Buffers { weights, parts, .. } = self.buffers;
        [*weights, parts.packed, pair(launch.cast.start, launch.cast.end), self.alarms]
    }

    fn cast_layernorm(&self, launch: &Launch) -> Arguments {
        let Buffers { x, x_copy, parts, .. } = self.buffers;
        let [mut weights, packed, chunks, alarms] = self.cast(launch);
        if self.shape.prepared {
            // gamma1 and beta1 lie first, as in the weights.
            weights = self.vector(vectors::GAMMA1);
        }
        let rows = pair(self.rows(), self.row_tiles);
        let first = Arguments::new();
        first.words(&[*x, parts.h, parts.vectors, parts.statistics, rows, weights, packed, chunks, alarms, *x_copy])
    }

    fn gemm(&self, launch: &Launch, gemm: Gemm, tile: &Tile) -> Result<Arguments, Error> {
        let Buffers { x, output, parts: w, .. } = self.buffers;
        let rows = self.rows();
        let prepared = u32::from(self.shape.prepared);
        let matrix = match gemm {
            Gemm::Qkv => packed::QKV_,
            Gemm::AttnProj => packed::ATTN,
            Gemm::Fc => packed::FC,
            Gemm::Proj => packed::PROJ,
        };
        let maps = Arguments::new()
            .map(&left_map(self.left(gemm), gemm.depth(), self.buffers.rows, tile)?)
            .map(&right_map(w.packed + 2 * matrix as u64, gemm, tile)?);
        let maps = self.results(maps, gemm, tile)?;
        let bias = self.bias(gemm);
        Ok(match gemm {
            Gemm::Qkv => {
                let [weights, packed, chunks, alarms] = self.cast(launch);
                maps.words(&[bias, pair(rows, launch.working), pair(prepared, 0), weights, packed, chunks, alarms])
            }
            Gemm::AttnProj => {
                let gamma = self.vector(vectors::GAMMA2);
                maps.words(&[bias, *x, gamma, w.statistics, pair(rows, 0), pair(prepared, 0)])
            }
            Gemm::Fc => maps.words(&[bias, pair(rows, 1)]),
            Gemm::Proj => maps.words(&[bias, w.x1, *output, pair(rows, 1)]),
        })
    }

    /// A product that reads the caller's weights as they are.
    fn direct(&self, gemm: Gemm, tile: &Tile) -> Result<Arguments, Error> {
        let Buffers { x, output, weights, parts: w, .. } = self.buffers;
        let matrix = match gemm {
            Gemm::Qkv => W_QKV,
            Gemm::AttnProj => W_ATTN,
            Gemm::Fc => W_FC,
            Gemm::Proj => W_PROJ,
        };
        let matrix = weights + 4 * matrix.offset as u64;
        let left = direct_left_map(self.left(gemm), gemm.depth(), self.buffers.rows, tile)?;
        let maps = self.results(Arguments::new().map(&left), gemm, tile)?;
        let (bias, rows) = (self.bias(gemm), pair(self.rows(), 0));
        Ok(match gemm {
            Gemm::Qkv | Gemm::Fc => maps.words(&[bias, matrix]),
            Gemm::AttnProj => maps.words(&[bias, *x, self.vector(vectors::GAMMA2), w.statistics, rows, matrix]),
            Gemm::Proj => maps.words(&[bias, w.x1, *output, matrix, rows]),
        })
    }

    /// The left operand of a product.
    fn left(&self, gemm: Gemm) -> u64 {
        if gemm == Gemm::Proj { self.buffers.parts.f } else { self.buffers.parts.h }
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
        let half = |base| out_map(Element::F16, base, gemm.columns(), rows, slab(tile));
        Ok(match gemm {
            Gemm::Qkv => maps.map(&half(w.qkv)?),
            Gemm::AttnProj => {
                let maps = maps.map(&out_map(Element::F32, w.x1, D, rows, 32)?);
                maps.map(&out_map(Element::F16, w.h, D, rows, 32)?)
            }
            Gemm::Fc => maps.map(&half(w.f)?),
            Gemm::Proj => maps,
        })
    }

    fn attention(&self, launch: &Launch, causal: bool) -> Result<Arguments, Error> {
        let Buffers { parts, .. } = self.buffers;
        let maps = Arguments::new()
            .map(&sequences_map(parts.qkv, QKV, self.shape)?)
            .map(&sequences_map(parts.h, D, self.shape)?)
            .each_more(&[self.shape.seq_len as u64]);
        Ok(if causal { maps } else { maps.words(&self.cast(launch)) })
    }

    fn few(&self, weights: FewWeights, tile: usize) -> Result<Arguments, Error> {
        let Buffers { x, output, weights: from, parts, .. } = self.buffers;
        let from = if weights == FewWeights::Prepared { parts.few_weights } else { *from };
        let counts = [u64::from(self.rows()), self.shape.seq_len as u64, u64::from(self.shape.causal)];
        let arguments = Arguments::each(&[*x, *output, from, parts.few]).each_more(&counts);
        if weights != FewWeights::Aligned {
            return Ok(arguments);
        }
        let attn = if FEW[tile].rows > 16 { (24, 3) } else { (8, 4) };
        let maps = [
            stream_map(from, W_QKV.offset, D, QKV, 4, (24, 12))?,
            stream_map(from, W_ATTN.offset, D, D, 16, attn)?,
            stream_map(from, W_FC.offset, D, FFN, 4, (24, 12))?,
            stream_map(from, W_PROJ.offset, FFN, D, 8, (24, 6))?,
        ];
        Ok(arguments.maps(&maps.each_ref()))
    }
}

/// For error messages.
fn product_name(gemm: Gemm) -> &'static str {
    match gemm {
        Gemm::Qkv => "launch of the QKV product",
        Gemm::AttnProj => "launch of the attention projection and LN2",
        Gemm::Fc => "launch of the first feed-forward product",
        Gemm::Proj => "launch of the second feed-forward product",
    }
}

/// Columns of a slab: the widest that a swizzle spans and the tile divides into.
fn slab(tile: &Tile) -> u32 {
    if tile.n.is_multiple_of(64) { 64 } else { 32 }
}

fn swizzle(bytes: u32) -> Swizzle {
    if bytes == 128 { Swizzle::B128 } else { Swizzle::B64 }
}

/// The left operand (rows, depth), in boxes of 64 columns and the rows of a tile.
fn left_map(base: u64, depth: usize, rows: usize, tile: &Tile) -> Result<TensorMap, Error> {
    let (depth, rows) = (depth as u64, rows as u64);
    TensorMap::new(Element::F16, base, [depth, rows], &[2 * depth], [64, tile.m as u32], Swizzle::B128, Promotion::B256)
}

/// The left operand of a direct product: slabs of 64 columns, in boxes of two slabs and the rows of a tile.
fn direct_left_map(base: u64, depth: usize, rows: usize, tile: &Tile) -> Result<TensorMap, Error> {
    let (depth, rows) = (depth as u64, rows as u64);
    let boxed = [64, tile.m as u32, 2];
    TensorMap::new(Element::F16, base, [64, rows, depth / 64], &[2 * depth, 128], boxed, Swizzle::B128, Promotion::B256)
}

/// The right operand (depth, columns), in boxes of 64 rows and the slabs of a tile.
fn right_map(base: u64, gemm: Gemm, tile: &Tile) -> Result<TensorMap, Error> {
    let (columns, wide) = (gemm.columns() as u64, slab(tile));
    let dims = [u64::from(wide), gemm.depth() as u64, columns / u64::from(wide)];
    let boxed = [wide, 64, tile.n as u32 / wide];
    TensorMap::new(
        Element::F16,
        base,
        dims,
        &[2 * columns, 2 * u64::from(wide)],
        boxed,
        swizzle(2 * wide),
        Promotion::B256,
    )
}

/// A result (rows, columns), in boxes of one warp's 16 rows.
fn out_map(element: Element, base: u64, columns: usize, rows: usize, wide: u32) -> Result<TensorMap, Error> {
    let bytes = if element == Element::F16 { 2 } else { 4 };
    let dims = [columns as u64, rows as u64];
    TensorMap::new(
        element,
        base,
        dims,
        &[bytes * columns as u64],
        [wide, 16],
        swizzle(bytes as u32 * wide),
        Promotion::B256,
    )
}

/// Rows of `columns` by sequence, in boxes of one head's 64 columns and 64 rows.
fn sequences_map(base: u64, columns: usize, shape: Shape) -> Result<TensorMap, Error> {
    let (columns, seq_len) = (columns as u64, shape.seq_len as u64);
    let dims = [columns, seq_len, shape.batch as u64];
    TensorMap::new(
        Element::F16,
        base,
        dims,
        &[2 * columns, 2 * columns * seq_len],
        [64, 64, 1],
        Swizzle::B128,
        Promotion::B256,
    )
}

/// A weight matrix (depth, columns) as the few-token kernel streams it: rows in `groups` interleaved groups of four.
fn stream_map(
    weights: u64,
    offset: usize,
    depth: usize,
    columns: usize,
    groups: u64,
    (wide, deep): (u32, u32),
) -> Result<TensorMap, Error> {
    let row = 4 * columns as u64;
    let dims = [columns as u64, 4, groups, depth as u64 / (4 * groups)];
    let base = weights + 4 * offset as u64;
    TensorMap::new(
        Element::F32,
        base,
        dims,
        &[groups * row, row, 4 * groups * row],
        [wide, 4, groups as u32, deep],
        Swizzle::None,
        Promotion::B128,
    )
}
