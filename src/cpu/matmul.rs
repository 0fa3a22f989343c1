//! The one way to the GEMM crate: views that know their extent, so that what is unsafe about it stays in this file.

use gemm::Parallelism;

/// A read-only matrix inside a slice; transposing swaps the strides.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `cols` floats that start `stride` floats apart.
    pub fn new(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(extent(rows, cols, stride) <= data.len());
        Self { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    pub fn transposed(self) -> Self {
        let Self { data, rows, cols, row_stride, col_stride } = self;
        Self { data, rows: cols, cols: rows, row_stride: col_stride, col_stride: row_stride }
    }
}

/// Floats from the first to the last of a matrix.
fn extent(rows: usize, cols: usize, stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * stride + cols }
}

/// out (a.rows, b.cols) = scale a b, or out += scale a b when `accumulate`. `out` is packed.
#[rustfmt::skip] // one operand a line
pub fn matmul(out: &mut [f32], accumulate: bool, scale: f32, a: Matrix<'_>, b: Matrix<'_>, parallelism: Parallelism) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert!(k == b.rows && m * n == out.len());
    let (out_columns, out_rows) = (1, n as isize);
    let (a_columns, a_rows) = (a.col_stride as isize, a.row_stride as isize);
    let (b_columns, b_rows) = (b.col_stride as isize, b.row_stride as isize);
    let (out_scale, conjugate) = (1.0, false);
    // SAFETY: `Matrix::new` checked that a and b lie inside their slices and the assertion above that out is (m, n);
    // `out` is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m, n, k,
            out.as_mut_ptr(), out_columns, out_rows, accumulate,
            a.data.as_ptr(), a_columns, a_rows,
            b.data.as_ptr(), b_columns, b_rows,
            out_scale, scale, conjugate, conjugate, conjugate, parallelism,
        );
    }
}
