//! A linear layer: out = a w + bias, with w stored (in, out).

use rayon::prelude::*;

use super::matmul::{Matrix, Output, add_product};

/// a is (rows, in), w (in, out), bias (out), out (rows, out); the widths follow from the lengths.
///
/// # Panics
/// When the lengths do not fit together.
pub fn linear(a: &[f32], w: &[f32], bias: &[f32], out: &mut [f32]) {
    let n = bias.len();
    let k = w.len() / n;
    let rows = a.len() / k;
    assert!(w.len() == k * n && a.len() == rows * k && out.len() == rows * n);
    out.par_chunks_exact_mut(n).for_each(|row| row.copy_from_slice(bias));
    add_product(Output::new(out, rows, n, n), Matrix::new(a, rows, k, k), Matrix::new(w, k, n, n));
}
