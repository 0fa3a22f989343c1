//! Matrix products on the `gemm` crate, in float64 or fp32: a wrapper that takes strides, and the float64 linear layer.

use std::ops::Range;

use rayon::prelude::*;

use super::round::Rounding;
use crate::dims::D;

/// A matrix inside a slice: where it starts, and how far apart its rows and columns are.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    pub data: &'a [T],
    pub start: usize,
    pub row: usize,
    pub col: usize,
}

/// The numbers that the crate multiplies.
pub trait Number: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
}

impl Number for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

impl Number for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

/// out (m, n), row-major = a (m, k) b (k, n).
pub fn product<T: Number>(
    out: &mut [T],
    a: View<'_, T>,
    b: View<'_, T>,
    (m, n, k): (usize, usize, usize),
    parallel: bool,
) {
    let last = |v: View<'_, T>, rows: usize, cols: usize| v.start + (rows - 1) * v.row + (cols - 1) * v.col;
    assert!(out.len() >= m * n && last(a, m, k) < a.data.len() && last(b, k, n) < b.data.len());
    let parallelism = if parallel { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // SAFETY: the assertion above puts every element that the strides reach inside its slice.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.data.as_ptr().add(a.start),
            a.col as isize,
            a.row as isize,
            b.data.as_ptr().add(b.start),
            b.col as isize,
            b.row as isize,
            T::ZERO,
            T::ONE,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// a (rows, inputs) times the columns `cols` of w (inputs, width), plus a bias per column.
pub fn linear(
    a: &[f64],
    inputs: usize,
    w: &[f32],
    width: usize,
    cols: Range<usize>,
    bias: &[f64],
    rounding: Rounding,
) -> Vec<f64> {
    let (rows, n) = (a.len() / inputs, cols.len());
    let a: Vec<f64> = a.par_iter().map(|&v| rounding.apply(v)).collect();
    let mut b = vec![0.0; inputs * n];
    b.par_chunks_exact_mut(n).zip(w.par_chunks_exact(width)).for_each(|(to, from)| {
        to.iter_mut().zip(&from[cols.clone()]).for_each(|(t, &f)| *t = rounding.apply(f64::from(f)));
    });
    let mut out = vec![0.0; rows * n];
    let view = |data, row| View { data, start: 0, row, col: 1 };
    product(&mut out, view(&a, inputs), view(&b, n), (rows, n, inputs), rows >= D / 16);
    out.par_chunks_exact_mut(n).for_each(|row| row.iter_mut().zip(bias).for_each(|(v, b)| *v += b));
    out
}
