//! Attention of the asked rows over all tokens: one head at a time, a block of query rows at a time, so memory
//! stays at (block, tokens) per worker.

use rayon::prelude::*;

use super::matmul::{View, product};
use super::round::Rounding;
use crate::dims::{D, HEAD, HEADS};

const BLOCK: usize = 64;

/// q (rows, D) attends to kv (tokens, K | V); the heads come back side by side, (rows, D).
pub fn attend(mut q: Vec<f64>, mut kv: Vec<f64>, rounding: Rounding) -> Vec<f64> {
    let (rows, tokens) = (q.len() / D, kv.len() / (2 * D));
    q.par_iter_mut().for_each(|v| *v = rounding.apply(*v));
    kv.par_iter_mut().for_each(|v| *v = rounding.apply(*v));

    let mut out = vec![0.0; rows * D];
    out.par_chunks_mut(BLOCK * D).enumerate().for_each(|(block, out)| {
        let m = out.len() / D;
        let mut scores = vec![0.0; m * tokens];
        let mut mixed = vec![0.0; m * HEAD];
        for head in 0..HEADS {
            let queries = View { data: &q, start: block * BLOCK * D + head * HEAD, row: D, col: 1 };
            let keys = View { data: &kv, start: head * HEAD, row: 1, col: 2 * D };
            let values = View { data: &kv, start: D + head * HEAD, row: 2 * D, col: 1 };
            product(&mut scores, queries, keys, (m, tokens, HEAD), false);
            scores.chunks_exact_mut(tokens).for_each(softmax);
            scores.iter_mut().for_each(|p| *p = rounding.apply(*p));
            let weights = View { data: &scores, start: 0, row: tokens, col: 1 };
            product(&mut mixed, weights, values, (m, HEAD, tokens), false);
            for (to, from) in out.chunks_exact_mut(D).zip(mixed.chunks_exact(HEAD)) {
                to[head * HEAD..(head + 1) * HEAD].copy_from_slice(from);
            }
        }
    });
    out
}

/// softmax(scores / 8) in place.
fn softmax(scores: &mut [f64]) {
    let scale = 1.0 / (HEAD as f64).sqrt();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for s in scores.iter_mut() {
        *s = ((*s - top) * scale).exp();
        sum += *s;
    }
    scores.iter_mut().for_each(|s| *s /= sum);
}
