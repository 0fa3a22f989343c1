//! Attention: softmax(Q K^T / sqrt(64)) V for each head, over all keys or, when causal, over the keys up to the query.
//!
//! A task takes one head and one tile of queries past the keys, tile by tile, and keeps per query the largest score so far,
//! the sum of e^(score - largest) and the unnormalised output (the online softmax). No more than a tile of scores exists.

use pulp::Arch;
use rayon::prelude::*;

use super::exp::exp;
use super::matmul::{Matrix, Output, matmul};
use super::reduce::{max, sum};
use crate::dims::{D, HEAD_DIM, QKV};

/// Queries in a tile.
const QUERIES: usize = 128;
/// Keys in a tile: 128 x 256 scores are 128 KB and stay in a core's L2 beside the tiles of Q, K and V.
const KEYS: usize = 256;
/// 1 / sqrt(HEAD_DIM)
const SCALE: f32 = 0.125;

/// qkv is (rows, 3 D) with Q | K | V side by side and head i at columns 64 i of each; out is (rows, D), heads side by side.
/// The rows are sequences of `seq_len`, each of which attends to itself only.
///
/// # Panics
/// When the lengths do not fit together.
pub fn attention(qkv: &[f32], out: &mut [f32], seq_len: usize, causal: bool) {
    assert!(qkv.len() == 3 * out.len() && out.len().is_multiple_of(seq_len * D));
    qkv.par_chunks_exact(seq_len * QKV).zip(out.par_chunks_exact_mut(seq_len * D)).for_each(|(qkv, out)| {
        out.par_chunks_mut(QUERIES * D).enumerate().for_each(|(tile, out)| {
            let out = Output::new(out, out.len() / D, D, D);
            attend_heads(qkv, 0, tile * QUERIES, out, causal);
        });
    });
}

/// The heads from `head` on that `out` has columns for.
fn attend_heads(qkv: &[f32], head: usize, first: usize, out: Output<'_>, causal: bool) {
    let heads = out.cols() / HEAD_DIM;
    if heads == 1 {
        return attend(qkv, head, first, out, causal);
    }
    let half = heads / 2;
    let (left, right) = out.split_columns(half * HEAD_DIM);
    let right = || attend_heads(qkv, head + half, first, right, causal);
    rayon::join(|| attend_heads(qkv, head, first, left, causal), right);
}

/// One head's output, (count, HEAD_DIM), for the queries from `first` on.
// Its tile of scores must not be part of the frames above: those that wait for other tasks lie on one stack in any number.
#[inline(never)]
fn attend(qkv: &[f32], head: usize, first: usize, mut out: Output<'_>, causal: bool) {
    let (seq_len, count) = (qkv.len() / QKV, out.rows());
    let keys = if causal { first + count } else { seq_len };
    // Columns of the head in part 0, 1 or 2 of Q | K | V, as a matrix of `rows` rows.
    let part = |part: usize, row: usize, rows: usize| {
        Matrix::new(&qkv[row * QKV + part * D + head * HEAD_DIM..], rows, HEAD_DIM, QKV)
    };
    let q = part(0, first, count);
    // How many of the tile's keys from `start` on query i sees.
    let visible = |i: usize, start: usize, width: usize| {
        if causal { (first + i + 1).saturating_sub(start).min(width) } else { width }
    };
    let arch = Arch::new();

    let mut state = [Softmax { max: f32::NEG_INFINITY, sum: 0.0 }; QUERIES];
    let mut scores = [0.0; QUERIES * KEYS];
    (0..count).for_each(|i| out.row(i).fill(0.0));
    for start in (0..keys).step_by(KEYS) {
        let width = KEYS.min(keys - start);
        let scores = &mut scores[..count * width];
        let k = part(1, start, width).transposed();
        matmul(Output::new(scores, count, width, width), false, SCALE, q, k);
        arch.dispatch(|| {
            for (i, (scores, state)) in scores.chunks_exact_mut(width).zip(&mut state).enumerate() {
                state.update(&mut scores[..visible(i, start, width)], out.row(i));
            }
        });
        if visible(0, start, width) == width {
            matmul(out.borrow(), true, 1.0, Matrix::new(scores, count, width, width), part(2, start, width));
            continue;
        }
        // What is hidden is left out rather than weighed with 0, which times an infinity or a NaN would be NaN.
        for (i, scores) in scores.chunks_exact(width).enumerate() {
            let seen = visible(i, start, width);
            let weights = Matrix::new(scores, 1, seen, seen);
            matmul(Output::new(out.row(i), 1, HEAD_DIM, HEAD_DIM), true, 1.0, weights, part(2, start, seen));
        }
    }
    for (i, state) in state[..count].iter().enumerate() {
        for o in out.row(i) {
            *o /= state.sum;
        }
    }
}

/// What the online softmax remembers of the keys that one query has seen.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

impl Softmax {
    /// Turns a tile's scores into weights relative to the new largest score, and brings the output so far to that scale.
    #[inline(always)]
    fn update(&mut self, scores: &mut [f32], out: &mut [f32]) {
        let tile = max(scores);
        let largest = if tile > self.max { tile } else { self.max };
        for s in &mut *scores {
            *s = exp(*s - largest);
        }
        let rescale = exp(self.max - largest);
        for o in out {
            *o *= rescale;
        }
        self.sum = self.sum * rescale + sum(scores);
        self.max = largest;
    }
}
