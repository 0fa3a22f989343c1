//! The block in float64, from the definition: h = LN1(x); Q|K|V = h W_qkv + b_qkv; heads by softmax over all
//! keys; x1 = x + heads W_attn + b_attn; output = x1 + gelu(LN2(x1) W_fc + b_fc) W_proj + b_proj.
//!
//! Only the rows asked for are carried past the keys and values, so a few rows of a long sequence are cheap.
//! Operands of the matrix products can be rounded first, which tells what a number format costs.

mod attention;
mod emulate;
mod matmul;
#[cfg(test)]
mod naive;
mod reorder;
mod round;

pub use emulate::{Operands, emulate};
use rayon::prelude::*;
pub use reorder::{ORDERS, emulate_in_order};
pub use round::Rounding;

use crate::dims::{
    B_ATTN, B_FC, B_PROJ, B_QKV, BETA1, BETA2, D, EPS, FFN, GAMMA1, GAMMA2, Param, W_ATTN, W_FC, W_PROJ, W_QKV,
};
use matmul::linear;

/// What the block should give for some rows of one sequence.
pub struct Expected {
    /// The output, (rows, D).
    pub output: Vec<f64>,
    /// The hidden activations after GELU, (rows, FFN): what a change of W_proj acts on.
    pub hidden: Vec<f64>,
}

/// The block on one sequence of `x.len() / D` tokens, for the tokens in `rows`.
pub fn forward(x: &[f32], weights: &[f32], rows: &[usize], rounding: Rounding) -> Expected {
    let x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    let vector = |p: Param| -> Vec<f64> { p.of(weights).iter().map(|&v| f64::from(v)).collect() };
    let h = layer_norm(&x, &vector(GAMMA1), &vector(BETA1));

    // Keys and values of every token, queries of the asked rows only.
    let w_qkv = W_QKV.of(weights);
    let b_qkv = vector(B_QKV);
    let kv = linear(&h, D, w_qkv, 3 * D, D..3 * D, &b_qkv[D..], rounding);
    let q = linear(&pick(&h, rows), D, w_qkv, 3 * D, 0..D, &b_qkv[..D], rounding);
    let heads = attention::attend(q, kv, rounding);

    let mut x1 = linear(&heads, D, W_ATTN.of(weights), D, 0..D, &vector(B_ATTN), rounding);
    add(&mut x1, &pick(&x, rows));
    let h2 = layer_norm(&x1, &vector(GAMMA2), &vector(BETA2));
    let mut hidden = linear(&h2, D, W_FC.of(weights), FFN, 0..FFN, &vector(B_FC), rounding);
    hidden.par_iter_mut().for_each(|v| *v = gelu(*v));
    let mut output = linear(&hidden, FFN, W_PROJ.of(weights), D, 0..D, &vector(B_PROJ), rounding);
    add(&mut output, &x1);
    Expected { output, hidden }
}

fn pick(x: &[f64], rows: &[usize]) -> Vec<f64> {
    rows.iter().flat_map(|&r| &x[r * D..(r + 1) * D]).copied().collect()
}

fn add(to: &mut [f64], from: &[f64]) {
    to.par_iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

/// Rows to mean 0 and variance 1 (biased), then scale and shift.
fn layer_norm(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    out.par_chunks_exact_mut(D).zip(x.par_chunks_exact(D)).for_each(|(out, row)| {
        let mean = row.iter().sum::<f64>() / D as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / D as f64;
        let scale = 1.0 / (variance + EPS).sqrt();
        for c in 0..D {
            out[c] = (row[c] - mean) * scale * gamma[c] + beta[c];
        }
    });
    out
}

/// GELU in its tanh form.
fn gelu(v: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v * v * v);
    0.5 * v * (1.0 + inner.tanh())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{self, BIASED, Flavour};
    use crate::rng::Stream;

    #[test]
    fn agrees_with_a_naive_loop() {
        for (seq, qk) in [(1, 1.0), (5, 1.0), (70, 4.0)] {
            let flavour = Flavour { qk, ..BIASED };
            let w = inputs::weights(flavour, Stream::new(1, seq as u64));
            let x = inputs::tokens(flavour, seq, Stream::new(2, seq as u64));
            let rows: Vec<usize> = (0..seq).collect();
            let fast = forward(&x, &w, &rows, Rounding::None);
            let slow = naive::forward(&x, &w);
            let worst = fast.output.iter().zip(&slow).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-11, "seq {seq}: {worst:e}");
        }
    }

    #[test]
    fn some_rows_are_the_same_as_all_rows() {
        let w = inputs::weights(BIASED, Stream::new(3, 0));
        let x = inputs::tokens(BIASED, 40, Stream::new(4, 0));
        let all = forward(&x, &w, &(0..40).collect::<Vec<_>>(), Rounding::None);
        let some = forward(&x, &w, &[39, 7], Rounding::None);
        for (k, row) in [39, 7].into_iter().enumerate() {
            for c in 0..D {
                assert!((all.output[row * D + c] - some.output[k * D + c]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn rounding_costs_what_the_mantissa_says() {
        let w = inputs::weights(BIASED, Stream::new(5, 0));
        let x = inputs::tokens(BIASED, 32, Stream::new(6, 0));
        let rows: Vec<usize> = (0..32).collect();
        let exact = forward(&x, &w, &rows, Rounding::None);
        let error = |r| {
            let got = forward(&x, &w, &rows, r);
            let num: f64 = got.output.iter().zip(&exact.output).map(|(a, b)| (a - b).powi(2)).sum();
            let den: f64 = exact.output.iter().zip(&x).map(|(a, &b)| (a - f64::from(b)).powi(2)).sum();
            (num / den).sqrt()
        };
        let (tf32, bf16) = (error(Rounding::Tf32), error(Rounding::Bf16));
        assert!((1e-4..1e-3).contains(&tf32), "{tf32:e}");
        assert!((6.0..10.0).contains(&(bf16 / tf32)), "{}", bf16 / tf32);
    }
}
