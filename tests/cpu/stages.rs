//! Each stage against float64: the GPU's stages are compared with these functions, so an error must show here and not there.

use solve::cpu;
use solve::dims::{D, FFN, QKV};

use crate::inputs::{Random, relative_error};
use crate::oracle::{self, wide};

/// Relative to the result, measured from zero.
fn check(name: &str, got: &[f32], want: &[f64], bound: f64) {
    let error = relative_error(got, want, &vec![0.0; got.len()]);
    assert!(error < bound, "{name}: {error:e}");
}

#[test]
fn layernorm() {
    let mut random = Random(10);
    let (gamma, beta) = (random.uniforms(D, 0.8, 1.2), random.uniforms(D, -0.1, 0.1));
    for rows in [1, 7, 8, 9, 100] {
        let x = random.tokens(rows);
        let mut got = vec![f32::NAN; x.len()];
        cpu::layernorm(&x, &gamma, &beta, &mut got);
        check("layernorm", &got, &oracle::layernorm(&wide(&x), &wide(&gamma), &wide(&beta)), 2e-7);
    }
}

#[test]
fn linear() {
    let mut random = Random(11);
    for (k, n) in [(D, QKV), (D, D), (D, FFN), (FFN, D)] {
        let (w, bias) = (random.uniforms(k * n, -0.03, 0.03), random.uniforms(n, -0.1, 0.1));
        for rows in [1, 2, 31, 32, 33, 70] {
            let a = random.uniforms(rows * k, -1.0, 1.0);
            let mut got = vec![f32::NAN; rows * n];
            cpu::linear(&a, &w, &bias, &mut got);
            check("linear", &got, &oracle::linear(&wide(&a), &wide(&w), &wide(&bias)), 1e-6);
        }
    }
}

#[test]
fn attention() {
    let mut random = Random(12);
    for seq_len in [1, 2, 127, 128, 129, 255, 256, 257, 520] {
        let qkv = random.uniforms(seq_len * QKV, -1.5, 1.5);
        for causal in [false, true] {
            let mut got = vec![f32::NAN; seq_len * D];
            cpu::attention(&qkv, &mut got, seq_len, causal);
            check("attention", &got, &oracle::attention(&wide(&qkv), causal), 1e-6);
        }
    }
}

#[test]
fn gelu_tanh() {
    let x: Vec<f32> = (-80_000..=80_000).map(|i| i as f32 * 1e-4).collect();
    let mut got = x.clone();
    cpu::gelu_tanh(&mut got);
    for (x, got) in x.into_iter().zip(got) {
        let want = oracle::gelu(f64::from(x));
        assert!((f64::from(got) - want).abs() <= 3e-7 * f64::from(x.abs()), "gelu({x}) is {got}, not {want}");
    }
}
