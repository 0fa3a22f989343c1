//! Matrix products, in steps of fixed sizes: what comes out depends neither on the machine's caches, nor on how many threads there are, nor on the other rows.
//! Nothing is allocated.
//!
//! A tile of `out`, `TILE_ROWS` rows by some registers, is held in registers while `DEPTH` inputs are summed; where more than a few tiles read it, a panel
//! of b is first laid end to end. Every number of `out` is the sum, in the order of the inputs, of sums over `DEPTH` of them.

use std::array;
use std::marker::PhantomData;
use std::slice;

use pulp::bytemuck::cast_slice;
use pulp::{Arch, Simd, WithSimd};

/// Rows of a tile: 6 by 4 registers where there are 32, and by 2 where there are 16, leave room for a row of b and a number of a.
const TILE_ROWS: usize = 6;
/// Up to this many rows b is read where it is.
const DIRECT_ROWS: usize = 3 * TILE_ROWS;
/// Inputs that one running sum takes: its error grows with its length, and a panel of them, 64 KB at most, stays in a core's L2.
const DEPTH: usize = 256;
/// Columns of the widest tile: 4 registers of AVX-512.
const MOST_COLUMNS: usize = 64;
/// Most rows of one task: with `DEPTH` inputs each they take 128 KB of a core's L2.
const TASK_ROWS: usize = 128;
/// Most columns of one task.
const TASK_COLUMNS: usize = 256;

/// A read-only matrix inside a slice.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Rows of `cols` floats that start `stride` floats apart.
    pub fn new(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(extent(rows, cols, stride) <= data.len());
        Self { data, rows, cols, stride, transposed: false }
    }

    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, transposed: !self.transposed, ..self }
    }

    /// From this element on, in the order of memory.
    #[inline(always)]
    fn from(&self, row: usize, col: usize) -> &'a [f32] {
        let (row, col) = if self.transposed { (col, row) } else { (row, col) };
        &self.data[row * self.stride + col..]
    }

    fn rows_from(self, first: usize, rows: usize) -> Self {
        assert!(!self.transposed && first + rows <= self.rows);
        Self { data: self.from(first, 0), rows, ..self }
    }

    fn columns_from(self, first: usize, cols: usize) -> Self {
        assert!(!self.transposed && first + cols <= self.cols);
        Self { data: self.from(0, first), cols, ..self }
    }
}

/// A matrix inside a slice to be written. Parts of it that share no element may be written at the same time, although they lie between each other's rows.
pub struct Output<'a> {
    data: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is the only way to its elements, as a `&mut [f32]` is.
unsafe impl Send for Output<'_> {}

impl<'a> Output<'a> {
    /// Rows of `cols` floats that start `stride` floats apart.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && extent(rows, cols, stride) <= data.len());
        Self { data: data.as_mut_ptr(), rows, cols, stride, slice: PhantomData }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        // SAFETY: `new` checked that all rows lie in the slice, and nothing else reaches these elements while `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(self.data.add(row * self.stride), self.cols) }
    }

    pub fn borrow(&mut self) -> Output<'_> {
        Output { ..*self }
    }

    pub fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.rows);
        let below = self.data.wrapping_add(at * self.stride);
        (Self { rows: at, ..self }, Self { data: below, rows: self.rows - at, ..self })
    }

    pub fn split_columns(self, at: usize) -> (Self, Self) {
        assert!(at <= self.cols);
        let right = self.data.wrapping_add(at);
        (Self { cols: at, ..self }, Self { data: right, cols: self.cols - at, ..self })
    }
}

/// Floats from the first to the last of a matrix.
fn extent(rows: usize, cols: usize, stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * stride + cols }
}

/// out += a b, by all threads.
pub fn add_product(out: Output<'_>, a: Matrix<'_>, b: Matrix<'_>) {
    // Few rows are bound by reading b: every thread should have columns of its own.
    let columns = out.cols.div_ceil(rayon::current_num_threads()).next_multiple_of(MOST_COLUMNS).min(TASK_COLUMNS);
    share(out, a, b, columns);
}

fn share(out: Output<'_>, a: Matrix<'_>, b: Matrix<'_>, columns: usize) {
    if out.rows > TASK_ROWS {
        let half = (out.rows / 2).next_multiple_of(TILE_ROWS);
        let (upper, lower) = (a.rows_from(0, half), a.rows_from(half, a.rows - half));
        let (top, bottom) = out.split_rows(half);
        rayon::join(|| share(top, upper, b, columns), || share(bottom, lower, b, columns));
    } else if out.cols > columns {
        let half = (out.cols / 2).next_multiple_of(columns);
        let half = if half < out.cols { half } else { columns };
        let (before, after) = (b.columns_from(0, half), b.columns_from(half, b.cols - half));
        let (left, right) = out.split_columns(half);
        rayon::join(|| share(left, a, before, columns), || share(right, a, after, columns));
    } else {
        matmul(out, true, 1.0, a, b);
    }
}

/// out (a.rows, b.cols) = scale a b, or out += scale a b when `accumulate`, by this thread alone.
// Its panel must not be part of the frames above: those that wait for other tasks lie on one stack in any number.
#[inline(never)]
pub fn matmul(out: Output<'_>, accumulate: bool, scale: f32, a: Matrix<'_>, b: Matrix<'_>) {
    assert!(a.cols == b.rows && (a.rows, b.cols) == (out.rows, out.cols) && !a.transposed);
    Arch::new().dispatch(Product { out, accumulate, scale, a, b });
}

struct Product<'a> {
    out: Output<'a>,
    accumulate: bool,
    scale: f32,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 4>(simd) } else { self.run::<S, 2>(simd) }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn run<S: Simd, const REGISTERS: usize>(mut self, simd: S) {
        let columns = REGISTERS * S::F32_LANES;
        let direct = self.a.rows <= DIRECT_ROWS && self.b.cols.is_multiple_of(columns) && !self.b.transposed;
        let mut panel = if direct { None } else { Some([0.0; DEPTH * MOST_COLUMNS]) };
        for first in (0..self.a.cols).step_by(DEPTH) {
            let depth = DEPTH.min(self.a.cols - first);
            for column in (0..self.b.cols).step_by(columns) {
                let width = columns.min(self.b.cols - column);
                let (b, stride) = match &mut panel {
                    None => (self.b.from(first, column), self.b.stride),
                    Some(panel) => {
                        pack(self.b, (first, depth), (column, width), columns, panel);
                        (&panel[..depth * columns], columns)
                    }
                };
                for row in (0..self.a.rows).step_by(TILE_ROWS) {
                    let rows = TILE_ROWS.min(self.a.rows - row);
                    self.tile::<S, REGISTERS>(simd, (row, rows), (first, depth), (column, width), b, stride);
                }
            }
        }
    }

    /// `rows` from `row` on of one panel of b.
    #[inline(always)]
    fn tile<S: Simd, const REGISTERS: usize>(
        &mut self,
        simd: S,
        (row, rows): (usize, usize),
        (first, depth): (usize, usize),
        (column, width): (usize, usize),
        b: &[f32],
        stride: usize,
    ) {
        let a = self.a.rows_from(row, rows);
        let a = |row| &a.from(row, first)[..depth];
        let accumulate = self.accumulate || first > 0;
        let mut store = |r: usize, sums: [S::f32s; REGISTERS]| {
            let out = &mut self.out.row(row + r)[column..column + width];
            for (out, sum) in out.iter_mut().zip(cast_slice::<S::f32s, f32>(&sums)) {
                *out = if accumulate { *out + self.scale * sum } else { self.scale * sum };
            }
        };
        match rows {
            1 => sums::<S, 1, REGISTERS>(simd, a, b, stride, &mut store),
            2 => sums::<S, 2, REGISTERS>(simd, a, b, stride, &mut store),
            3 => sums::<S, 3, REGISTERS>(simd, a, b, stride, &mut store),
            4 => sums::<S, 4, REGISTERS>(simd, a, b, stride, &mut store),
            5 => sums::<S, 5, REGISTERS>(simd, a, b, stride, &mut store),
            _ => sums::<S, TILE_ROWS, REGISTERS>(simd, a, b, stride, &mut store),
        }
    }
}

/// Each row of a, times the rows of b that start `stride` floats apart.
#[inline(always)]
fn sums<'a, S: Simd, const ROWS: usize, const REGISTERS: usize>(
    simd: S,
    a: impl Fn(usize) -> &'a [f32],
    b: &[f32],
    stride: usize,
    store: &mut impl FnMut(usize, [S::f32s; REGISTERS]),
) {
    let a: [&[f32]; ROWS] = array::from_fn(a);
    let mut sums = [[simd.splat_f32s(0.0); REGISTERS]; ROWS];
    for (i, b) in b.chunks(stride).enumerate().take(a[0].len()) {
        let b = &S::as_simd_f32s(b).0[..REGISTERS];
        for (sums, a) in sums.iter_mut().zip(&a) {
            let a = simd.splat_f32s(a[i]);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = simd.mul_add_e_f32s(a, *b, *sum);
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        store(row, sums);
    }
}

/// Rows of `columns` floats end to end, of which b has `width`.
#[inline(always)]
fn pack(
    b: Matrix<'_>,
    (first, depth): (usize, usize),
    (column, width): (usize, usize),
    columns: usize,
    to: &mut [f32],
) {
    if width < columns {
        to.fill(0.0);
    }
    if b.transposed {
        for i in 0..width {
            for (to, b) in to.chunks_exact_mut(columns).zip(&b.from(first, column + i)[..depth]) {
                to[i] = *b;
            }
        }
    } else {
        for (i, to) in to.chunks_exact_mut(columns).take(depth).enumerate() {
            to[..width].copy_from_slice(&b.from(first + i, column)[..width]);
        }
    }
}
