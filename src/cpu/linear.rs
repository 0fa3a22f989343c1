//! A linear layer: out = a w + bias, with w stored (in, out).

use gemm::Parallelism;
use rayon::prelude::*;

use super::matmul::{Matrix, matmul};

/// Up to this many rows a product is bound by reading the weights, and every core should read its own columns.
const FEW_ROWS: usize = 32;
/// Fewest columns worth a task of their own.
const MIN_COLUMNS: usize = 64;
/// Inputs that one product sums. For one row the crate keeps a single running sum, whose error grows with its length.
const DEPTH: usize = 256;

/// a is (rows, in), w (in, out), bias (out), out (rows, out); the widths follow from the lengths.
///
/// # Panics
/// When the lengths do not fit together.
pub fn linear(a: &[f32], w: &[f32], bias: &[f32], out: &mut [f32]) {
    let n = bias.len();
    let k = w.len() / n;
    let rows = a.len() / k;
    assert!(w.len() == k * n && a.len() == rows * k && out.len() == rows * n);
    if rows <= FEW_ROWS {
        return linear_by_columns(a, w, bias, out);
    }
    out.par_chunks_exact_mut(n).for_each(|row| row.copy_from_slice(bias));
    matmul(out, true, 1.0, Matrix::new(a, rows, k, k), Matrix::new(w, k, n, n), Parallelism::Rayon(0));
}

/// One task for each block of columns, summed over the inputs in parts.
fn linear_by_columns(a: &[f32], w: &[f32], bias: &[f32], out: &mut [f32]) {
    let n = bias.len();
    let k = w.len() / n;
    let rows = a.len() / k;
    let columns = n.div_ceil(rayon::current_num_threads()).next_multiple_of(MIN_COLUMNS);
    let blocks: Vec<Vec<f32>> = bias
        .par_chunks(columns)
        .enumerate()
        .map(|(i, bias)| {
            let mut block = bias.repeat(rows);
            let mut part = vec![0.0; block.len()];
            for first in (0..k).step_by(DEPTH) {
                let depth = DEPTH.min(k - first);
                let w = Matrix::new(&w[first * n + i * columns..], depth, bias.len(), n);
                matmul(&mut part, false, 1.0, Matrix::new(&a[first..], rows, depth, k), w, Parallelism::None);
                block.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
            }
            block
        })
        .collect();
    for (i, block) in blocks.iter().enumerate() {
        let width = block.len() / rows;
        for (out, block) in out.chunks_exact_mut(n).zip(block.chunks_exact(width)) {
            out[i * columns..i * columns + width].copy_from_slice(block);
        }
    }
}
