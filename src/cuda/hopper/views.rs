//! The matrices of the block as the copy engine moves them, in the boxes that the kernels' tiles are made of.

use super::plan::PartBox;
use super::plan::product::Tile;
use crate::cuda::block::{Gemm, Shape};
use crate::cuda::tensor_map::{Element, Swizzle, View};
use crate::dims::D;

/// Columns of a slab: the widest that a swizzle spans and the tile divides into, or of which the tile stores most of its results.
pub fn slab(tile: &Tile) -> u32 {
    if tile.n.is_multiple_of(64) || tile.transposed() { 64 } else { 32 }
}

fn swizzle(bytes: u32) -> Swizzle {
    match bytes {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        _ => Swizzle::None,
    }
}

/// Rows of whole boxes. A box that hangs over the end of its matrix takes the copy engine longer, for every row that is not there: prepared 897, 961 and 992
/// rows took 43.9, 44.6 and 43.5 us, and 42.1, 42.9 and 42.6 with room behind the end (H200). What lies there becomes rows that nobody stores.
fn whole(rows: usize, high: usize) -> u64 {
    rows.next_multiple_of(high) as u64
}

/// The left operand, `depth` columns of rows of `pitch`, in boxes of 64 columns and the rows of a tile, or as for a direct product.
pub fn left(base: u64, depth: usize, pitch: usize, rows: usize, tile: &Tile) -> View {
    match tile.depth() {
        128 => direct_left(base, depth, pitch, rows, tile.m),
        _ => left_of(base, depth, pitch, rows, tile.m),
    }
}

/// Rows of `pitch`, of which it is the first `depth` columns, in boxes `high`.
pub fn left_of(base: u64, depth: usize, pitch: usize, rows: usize, high: usize) -> View {
    let dims = [depth as u64, whole(rows, high)];
    View::new(Element::F16, base, dims, &[2 * pitch as u64], [64, high as u32], Swizzle::B128)
}

/// W_qkv in boxes of 64 rows and a head's columns of Q, K and V.
pub fn qkv_head(base: u64) -> View {
    let d = D as u64;
    let dims = [64, d, d / 64, 3];
    View::new(Element::F16, base, dims, &[6 * d, 128, 2 * d], [64, 64, 1, 3], Swizzle::B128)
}

/// The left operand of a direct product: slabs of 64 columns, in boxes of two slabs and the rows of a tile.
pub fn direct_left(base: u64, depth: usize, pitch: usize, rows: usize, high: usize) -> View {
    let (dims, boxed) = ([64, whole(rows, high), depth as u64 / 64], [64, high as u32, 2]);
    View::new(Element::F16, base, dims, &[2 * pitch as u64, 128], boxed, Swizzle::B128)
}

/// The right operand (depth, columns), in boxes of 64 rows and the slabs of a tile.
pub fn right(base: u64, gemm: Gemm, tile: &Tile) -> View {
    let (columns, wide) = (gemm.columns() as u64, slab(tile));
    let dims = [u64::from(wide), gemm.depth() as u64, columns / u64::from(wide)];
    let boxed = [wide, tile.depth(), tile.n as u32 / wide];
    View::new(Element::F16, base, dims, &[2 * columns, 2 * u64::from(wide)], boxed, swizzle(2 * wide))
}

/// The transposed right operand (columns, depth), in boxes of 64 of the depth and a tile's columns.
pub fn right_transposed(base: u64, gemm: Gemm, tile: &Tile) -> View {
    let (depth, columns) = (gemm.depth() as u64, gemm.columns() as u64);
    let boxed = [tile.depth(), tile.n as u32];
    View::new(Element::F16, base, [depth, columns], &[2 * depth], boxed, Swizzle::B128)
}

/// A result (rows, columns), in boxes of one warp's 16 rows.
pub fn out(element: Element, base: u64, columns: usize, rows: usize, wide: u32) -> View {
    out_in(element, base, columns, rows, [wide, 16])
}

/// The same in these boxes.
pub fn out_in(element: Element, base: u64, columns: usize, rows: usize, [wide, high]: [u32; 2]) -> View {
    let bytes = if element == Element::F16 { 2 } else { 4 };
    let (dims, row) = ([columns as u64, rows as u64], bytes * columns as u64);
    View::new(element, base, dims, &[row], [wide, high], swizzle(bytes as u32 * wide))
}

/// Rows of `columns`, in boxes of one head's 64 columns and 64 rows.
pub fn rows(base: u64, columns: usize, rows: usize) -> View {
    let (columns, rows) = (columns as u64, rows as u64);
    View::new(Element::F16, base, [columns, rows], &[2 * columns], [64, 64], Swizzle::B128)
}

/// W_attn in boxes of the 32 columns of a warpgroup and three heads' rows.
pub fn attention_proj_right(base: u64) -> View {
    let d = D as u64;
    View::new(Element::F16, base, [d, d], &[2 * d], [32, 192], Swizzle::B64)
}

/// Rows of `columns` by sequence, in boxes of one head's 64 columns and 64 rows.
pub fn sequences(base: u64, columns: usize, shape: Shape) -> View {
    let (columns, seq_len) = (columns as u64, shape.seq_len as u64);
    let dims = [columns, seq_len, shape.batch as u64];
    View::new(Element::F16, base, dims, &[2 * columns, 2 * columns * seq_len], [64, 64, 1], Swizzle::B128)
}

/// A weight matrix (depth, columns) as the few-token kernel streams it: rows by their place in four, in a group and among such runs. Those of 64 bytes are
/// swizzled.
pub fn stream(weights: u64, offset: usize, depth: usize, columns: usize, part: PartBox) -> View {
    let (row, group) = (4 * columns as u64, u64::from(part.group));
    let dims = [columns as u64, 4, group, depth as u64 / (4 * group)];
    let strides = [group * row, row, 4 * group * row];
    let base = weights + 4 * offset as u64;
    View::new(Element::F32, base, dims, &strides, [part.columns, 4, part.group, part.runs], swizzle(4 * part.columns))
}
