//! The block as plain loops, to check the oracle against.

use crate::dims::{
    B_ATTN, B_FC, B_PROJ, B_QKV, BETA1, BETA2, D, EPS, FFN, GAMMA1, GAMMA2, HEAD, HEADS, Param, W_ATTN, W_FC, W_PROJ,
    W_QKV,
};

/// The whole output of one sequence.
pub fn forward(x: &[f32], w: &[f32]) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    let seq = x.len() / D;
    let h = norm(&x, w, GAMMA1, BETA1);
    let qkv = dense(&h, w, W_QKV, B_QKV);
    let at = |token: usize, part: usize, head: usize, i: usize| qkv[token * 3 * D + part * D + head * HEAD + i];
    let mut att = vec![0.0; seq * D];
    for head in 0..HEADS {
        for t in 0..seq {
            let score = |u: usize| (0..HEAD).map(|i| at(t, 0, head, i) * at(u, 1, head, i)).sum::<f64>() / 8.0;
            let scores: Vec<f64> = (0..seq).map(score).collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            for i in 0..HEAD {
                att[t * D + head * HEAD + i] =
                    (0..seq).map(|u| (scores[u] - top).exp() / sum * at(u, 2, head, i)).sum();
            }
        }
    }
    let x1: Vec<f64> = dense(&att, w, W_ATTN, B_ATTN).iter().zip(&x).map(|(a, b)| a + b).collect();
    let mut f = dense(&norm(&x1, w, GAMMA2, BETA2), w, W_FC, B_FC);
    for v in &mut f {
        *v *= 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (*v + 0.044715 * v.powi(3))).tanh());
    }
    assert_eq!(f.len(), seq * FFN);
    dense(&f, w, W_PROJ, B_PROJ).iter().zip(&x1).map(|(a, b)| a + b).collect()
}

fn norm(x: &[f64], w: &[f32], gamma: Param, beta: Param) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(D) {
        let mean = row.iter().sum::<f64>() / D as f64;
        let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / D as f64;
        for (c, v) in row.iter().enumerate() {
            let scaled = (v - mean) / (var + EPS).sqrt();
            out.push(scaled * f64::from(gamma.of(w)[c]) + f64::from(beta.of(w)[c]));
        }
    }
    out
}

fn dense(a: &[f64], w: &[f32], matrix: Param, bias: Param) -> Vec<f64> {
    let (k, n) = (matrix.rows, matrix.cols);
    let m = matrix.of(w);
    let mut out = Vec::new();
    for row in a.chunks(k) {
        let mut sums: Vec<f64> = bias.of(w).iter().map(|&b| f64::from(b)).collect();
        for (i, &v) in row.iter().enumerate() {
            for (sum, &weight) in sums.iter_mut().zip(&m[i * n..(i + 1) * n]) {
                *sum += v * f64::from(weight);
            }
        }
        out.extend(sums);
    }
    out
}
