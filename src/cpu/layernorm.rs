//! LayerNorm: (x - mean) / sqrt(variance + eps) * gamma + beta for each row of D, with the biased variance.

use pulp::Arch;
use rayon::prelude::*;

use super::CHUNK;
use super::reduce::{sum, sum_of_squares};
use crate::dims::{D, LN_EPS};

/// x and out are (rows, D); gamma and beta are (D).
///
/// # Panics
/// When `out` is not of the length of `x`.
pub fn layernorm(x: &[f32], gamma: &[f32], beta: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let arch = Arch::new();
    x.par_chunks(CHUNK).zip(out.par_chunks_mut(CHUNK)).for_each(|(x, out)| {
        arch.dispatch(|| {
            for (x, out) in x.chunks_exact(D).zip(out.chunks_exact_mut(D)) {
                normalise(x, gamma, beta, out);
            }
        });
    });
}

/// Centres twice: an fp32 mean of values near 3000 is off by 1e-4, and the mean of what it leaves is that error.
#[inline(always)]
fn normalise(x: &[f32], gamma: &[f32], beta: &[f32], out: &mut [f32]) {
    let mean = sum(x) / D as f32;
    for (o, x) in out.iter_mut().zip(x) {
        *o = x - mean;
    }
    let left = sum(out) / D as f32;
    for o in &mut *out {
        *o -= left;
    }
    let scale = 1.0 / (sum_of_squares(out) / D as f32 + LN_EPS).sqrt();
    for ((o, g), b) in out.iter_mut().zip(gamma).zip(beta) {
        *o = *o * scale * g + b;
    }
}
