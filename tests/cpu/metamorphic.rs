//! What must hold between two runs, whatever the numbers are. No oracle: an error common to both implementations shows here.

use solve::cpu;
use solve::dims::{D, FFN, HEAD_DIM, HEADS, QKV};
use solve::weights::*;

use crate::inputs::{Random, relative_error, run};

/// Two fp32 computations of the same value in another order.
const SAME: f64 = 8e-7;

#[test]
fn permuted_tokens_permute_the_output() {
    let mut random = Random(30);
    let weights = random.weights();
    let seq_len = 131;
    let x = random.tokens(seq_len);
    let permute =
        |v: &[f32]| -> Vec<f32> { (0..seq_len).flat_map(|i| v[i * 37 % seq_len * D..][..D].to_vec()).collect() };
    let (got, want) = (run(&permute(&x), &weights), permute(&run(&x, &weights)));
    assert!(relative_error(&got, &want, &permute(&x)) < SAME);
}

#[test]
fn one_changed_token_reaches_every_token_or_the_later_ones() {
    let mut random = Random(31);
    let weights = random.weights();
    let (seq_len, changed) = (140, 70);
    let x = random.tokens(seq_len);
    let mut y = x.clone();
    y[changed * D + 5] += 1.0;
    for causal in [false, true] {
        let forward = |x: &[f32]| cpu::forward(x, weights.view(), 1, seq_len, causal).expect("a good shape");
        let (a, b) = (forward(&x), forward(&y));
        for (token, (a, b)) in a.chunks(D).zip(b.chunks(D)).enumerate() {
            assert_eq!(a == b, causal && token < changed, "token {token}, causal {causal}");
        }
    }
}

#[test]
fn a_sequence_twice_attends_as_once() {
    let mut random = Random(32);
    let weights = random.weights();
    let x = random.tokens(77);
    let once = run(&x, &weights);
    let twice = run(&[x.clone(), x.clone()].concat(), &weights);
    assert!(relative_error(&twice[..x.len()], &once, &x) < SAME);
    assert!(relative_error(&twice[x.len()..], &once, &x) < SAME);
}

#[test]
fn zero_projections_return_x() {
    let mut random = Random(33);
    let mut weights = random.weights();
    for part in [W_ATTN, B_ATTN, W_PROJ, B_PROJ] {
        weights.part(part).fill(0.0);
    }
    let x = random.tokens(50);
    assert_eq!(run(&x, &weights), x);
}

#[test]
fn an_offset_of_x_passes_through() {
    let mut random = Random(34);
    let weights = random.weights();
    let x = random.tokens(40);
    let shifted: Vec<f32> = x.iter().map(|v| v + 1.0).collect();
    let want: Vec<f32> = run(&x, &weights).iter().map(|v| v + 1.0).collect();
    assert!(relative_error(&run(&shifted, &weights), &want, &shifted) < SAME);
}

/// Powers of two are exact, so these agree to the bit.
#[test]
fn scales_that_cancel_change_nothing() {
    let mut random = Random(35);
    let weights = random.weights();
    let x = random.tokens(60);
    let mut scaled = weights.clone();
    for (part, factor) in [(GAMMA1, 8.0), (BETA1, 8.0), (W_QKV, 0.125), (GAMMA2, 0.5), (BETA2, 0.5), (W_FC, 2.0)] {
        scaled.scale(part, factor);
    }
    assert_eq!(run(&x, &scaled), run(&x, &weights));
}

/// q (k + c) differs from q k by the same amount for every key.
#[test]
fn a_bias_of_every_key_changes_nothing() {
    let mut random = Random(36);
    let weights = random.weights();
    let x = random.tokens(60);
    let mut biased = weights.clone();
    biased.part(B_QKV)[D..2 * D].iter_mut().for_each(|b| *b += 1.0);
    assert!(relative_error(&run(&x, &biased), &run(&x, &weights), &x) < 2.0 * SAME);
}

/// Attention averages the values, so a bias of every value is a bias of the result: W_attn carries it to b_attn.
#[test]
fn a_bias_of_the_values_is_a_bias_of_the_projection() {
    let mut random = Random(37);
    let mut weights = random.weights();
    let x = random.tokens(60);
    let want = run(&x, &weights);
    let bias = weights.part(B_QKV)[2 * D..].to_vec();
    weights.part(B_QKV)[2 * D..].fill(0.0);
    let mut carried = vec![0.0; D];
    cpu::linear(&bias, weights.view().w_attn, weights.view().b_attn, &mut carried);
    weights.part(B_ATTN).copy_from_slice(&carried);
    assert!(relative_error(&run(&x, &weights), &want, &x) < SAME);
}

#[test]
fn the_order_of_the_heads_does_not_matter() {
    let mut random = Random(38);
    let weights = random.weights();
    let x = random.tokens(60);
    let mut rotated = weights.clone();
    for head in 0..HEADS {
        let (from, to) = (head * HEAD_DIM, (head + 5) % HEADS * HEAD_DIM);
        for part in [0, D, 2 * D] {
            let columns = [(W_QKV, D), (B_QKV, 1)];
            for (param, rows) in columns {
                for row in 0..rows {
                    let source = param.offset + row * QKV + part + from;
                    let source = weights.0[source..source + HEAD_DIM].to_vec();
                    rotated.part(param)[row * QKV + part + to..][..HEAD_DIM].copy_from_slice(&source);
                }
            }
        }
        let source = weights.0[W_ATTN.offset + from * D..][..HEAD_DIM * D].to_vec();
        rotated.part(W_ATTN)[to * D..][..HEAD_DIM * D].copy_from_slice(&source);
    }
    assert!(relative_error(&run(&x, &rotated), &run(&x, &weights), &x) < SAME);
}

#[test]
fn the_order_of_the_hidden_units_does_not_matter() {
    let mut random = Random(39);
    let weights = random.weights();
    let x = random.tokens(40);
    let mut rotated = weights.clone();
    rotated.part(B_FC).rotate_left(1000);
    rotated.part(W_FC).chunks_mut(FFN).for_each(|row| row.rotate_left(1000));
    rotated.part(W_PROJ).rotate_left(1000 * D);
    assert!(relative_error(&run(&x, &rotated), &run(&x, &weights), &x) < SAME);
}
