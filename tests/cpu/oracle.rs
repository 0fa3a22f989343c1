//! The block in float64, written from its definition: textbook loops, offsets as printed in the public layout, nothing of the library.

use rayon::prelude::*;

/// Offsets of the parameters in the weight buffer.
const GAMMA1: usize = 0;
const BETA1: usize = 768;
const W_QKV: usize = 1_536;
const B_QKV: usize = 1_771_008;
const W_ATTN: usize = 1_773_312;
const B_ATTN: usize = 2_363_136;
const GAMMA2: usize = 2_363_904;
const BETA2: usize = 2_364_672;
const W_FC: usize = 2_365_440;
const B_FC: usize = 4_724_736;
const W_PROJ: usize = 4_727_808;
const B_PROJ: usize = 7_087_104;

pub fn block(x: &[f32], weights: &[f32], causal: bool) -> Vec<f64> {
    let x: Vec<f64> = wide(x);
    let w = |offset: usize, len: usize| wide(&weights[offset..offset + len]);
    let h = layernorm(&x, &w(GAMMA1, 768), &w(BETA1, 768));
    let qkv = linear(&h, &w(W_QKV, 768 * 2304), &w(B_QKV, 2304));
    let heads = attention(&qkv, causal);
    let mut x1 = linear(&heads, &w(W_ATTN, 768 * 768), &w(B_ATTN, 768));
    x1.iter_mut().zip(&x).for_each(|(a, b)| *a += b);
    let h = layernorm(&x1, &w(GAMMA2, 768), &w(BETA2, 768));
    let f: Vec<f64> = linear(&h, &w(W_FC, 768 * 3072), &w(B_FC, 3072)).into_iter().map(gelu).collect();
    let mut output = linear(&f, &w(W_PROJ, 3072 * 768), &w(B_PROJ, 768));
    output.iter_mut().zip(&x1).for_each(|(a, b)| *a += b);
    output
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

pub fn layernorm(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks(768) {
        let mean = row.iter().sum::<f64>() / 768.0;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 768.0;
        for i in 0..768 {
            out.push((row[i] - mean) / (variance + 1e-5).sqrt() * gamma[i] + beta[i]);
        }
    }
    out
}

pub fn linear(a: &[f64], w: &[f64], bias: &[f64]) -> Vec<f64> {
    let n = bias.len();
    let mut out = bias.repeat(a.len() * n / w.len());
    out.par_chunks_mut(n).zip(a.par_chunks(w.len() / n)).for_each(|(out, a)| {
        for (a, w) in a.iter().zip(w.chunks(n)) {
            for (o, w) in out.iter_mut().zip(w) {
                *o += a * w;
            }
        }
    });
    out
}

pub fn attention(qkv: &[f64], causal: bool) -> Vec<f64> {
    let seq_len = qkv.len() / 2304;
    let mut out = vec![0.0; seq_len * 768];
    out.par_chunks_mut(768).enumerate().for_each(|(i, out)| {
        for head in 0..12 {
            let row = |token: usize, part: usize| &qkv[token * 2304 + part * 768 + head * 64..][..64];
            let keys = if causal { i + 1 } else { seq_len };
            let dot = |j| row(i, 0).iter().zip(row(j, 1)).map(|(q, k)| q * k).sum::<f64>() / 8.0;
            let scores: Vec<f64> = (0..keys).map(dot).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
            for (j, s) in scores.iter().enumerate() {
                for (o, v) in out[head * 64..].iter_mut().zip(row(j, 2)) {
                    *o += (s - largest).exp() / sum * v;
                }
            }
        }
    });
    out
}

pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}
