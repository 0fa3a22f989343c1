//! Inputs that break a careless implementation.

use solve::cpu;
use solve::weights;

use crate::inputs::{Random, relative_error, run};
use crate::oracle;

#[test]
fn zero_x() {
    let weights = Random(20).weights();
    let x = vec![0.0; 33 * 768];
    let error = relative_error(&run(&x, &weights), &oracle::block(&x, &weights.0, false), &x);
    assert!(error < 8e-7, "{error:e}");
}

/// A variance as E[x^2] - E[x]^2 is noise here, and a mean rounded to fp32 is off by 1e-4.
#[test]
fn offset_of_3000() {
    let mut random = Random(21);
    let weights = random.weights();
    let x: Vec<f32> = random.tokens(40).into_iter().map(|v| v + 3000.0).collect();
    let (got, want) = (run(&x, &weights), oracle::block(&x, &weights.0, false));
    for (got, want) in got.iter().zip(want) {
        // Two additions round at 3000: x1 and output, half an ulp each. x1's rounding then passes through the feed-forward layer.
        let error = (f64::from(*got) - want).abs();
        assert!(error < 6e-4, "{got} for {want}");
    }
}

#[test]
fn layernorm_of_tiny_and_huge_rows() {
    let mut random = Random(22);
    let weights = random.weights();
    for scale in [1e-6, 1e-3, 1e4, 1e12] {
        let x: Vec<f32> = random.tokens(20).into_iter().map(|v| v * scale).collect();
        let got = run(&x, &weights);
        let error = relative_error(&got, &oracle::block(&x, &weights.0, false), &vec![0.0; x.len()]);
        assert!(error < 8e-7, "scale {scale:e}: {error:e}");
    }
}

/// Scores in the thousands: every softmax is close to one-hot and overflows without the subtraction of the largest score.
#[test]
fn large_scores() {
    let mut random = Random(23);
    let mut weights = random.weights();
    weights.scale(weights::W_QKV, 60.0);
    for seq_len in [64, 300] {
        let x = random.tokens(seq_len);
        let got = run(&x, &weights);
        assert!(got.iter().all(|v| v.is_finite()));
        let error = relative_error(&got, &oracle::block(&x, &weights.0, false), &x);
        // A score of 3000 in fp32 is known to 2e-4, and so is its exponential.
        assert!(error < 3e-4, "seq_len {seq_len}: {error:e}");
    }
}

/// The largest score comes last, then first: the online softmax must rescale what it has, and must not when nothing changes.
#[test]
fn rising_and_falling_scores() {
    let seq_len = 600;
    for direction in [1.0f32, -1.0] {
        let mut random = Random(24);
        let mut qkv = random.uniforms(seq_len * 2304, -0.5, 0.5);
        for (token, row) in qkv.chunks_mut(2304).enumerate() {
            row[..768].fill(1.0);
            row[768..1536].fill(direction * token as f32 * 0.02);
        }
        for causal in [false, true] {
            let mut got = vec![f32::NAN; seq_len * 768];
            cpu::attention(&qkv, &mut got, seq_len, causal);
            let want = oracle::attention(&oracle::wide(&qkv), causal);
            let error = relative_error(&got, &want, &vec![0.0; got.len()]);
            assert!(error < 1e-4, "direction {direction}, causal {causal}: {error:e}");
        }
    }
}

/// NaN must come out where it went in and nowhere else that causality protects.
#[test]
fn nan_stays_where_it_can_reach() {
    let mut random = Random(25);
    let weights = random.weights();
    let mut x = random.tokens(40);
    x[30 * 768] = f32::NAN;
    let all = run(&x, &weights);
    assert!(all.iter().all(|v| v.is_nan()));
    // 300 tokens are three tiles of queries and two of keys.
    for (tokens, at) in [(40, 30), (300, 131), (300, 290)] {
        for value in [f32::NAN, f32::INFINITY] {
            let mut x = random.tokens(tokens);
            let clean = cpu::forward(&x, weights.view(), 1, tokens, true).expect("a good shape");
            x[at * 768 + 3] = value;
            let got = cpu::forward(&x, weights.view(), 1, tokens, true).expect("a good shape");
            assert!(got[..at * 768] == clean[..at * 768], "{value} in token {at} reaches earlier ones");
            assert!(got[at * 768..].iter().all(|v| v.is_nan()), "{value} in token {at} stays there");
        }
    }
}
