//! Random inputs of a given flavour: the public challenge's distribution and the harder ones.

use crate::dims::{
    B_ATTN, B_FC, B_PROJ, B_QKV, BETA1, BETA2, D, FFN, GAMMA1, GAMMA2, HEAD, W_ATTN, W_FC, W_PROJ, W_QKV, WEIGHTS,
};
use crate::oracle::{self, Rounding};
use crate::rng::Stream;

/// What x looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum X {
    /// Uniform in (-1, 1), as the challenge draws it.
    Uniform,
    /// All zeros.
    Zero,
    /// Uniform in (-s, s).
    Scaled(f64),
    /// Uniform in (-1, 1) plus a constant.
    Shifted(f64),
    /// Uniform in (-1, 1) with a few feature columns fifty times as large.
    Outliers,
    /// One feature set per row, the rest zero.
    OneHot,
    /// All rows the same up to 1e-3.
    NearDuplicates,
    /// Uniform in (-1, 1), with two feature columns near 900 and -3000.
    Channels,
}

/// What [`Twist::Cancel`] takes away.
pub const CANCELLED: f64 = 30.0;

/// How a case's numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flavour {
    /// What x looks like.
    pub x: X,
    /// Standard deviation of the four linear biases (the challenge has none).
    pub bias: f64,
    /// Factor on the Q and K columns of W_qkv: sharper attention.
    pub qk: f64,
    /// Standard deviation of all weight matrices.
    pub std: f64,
    /// A last touch.
    pub twist: Twist,
}

/// Weights bent so that one kind of mistake shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twist {
    None,
    /// All hidden activations where the two common GELUs differ most, and adding up.
    GeluBand,
    /// Every token nearly the same, and a feed-forward layer that looks along it: a wrong scale of a LayerNorm
    /// adds up, while rounding cancels.
    Aligned,
    /// Hidden activations far outside what fp16 holds, undone by W_proj.
    Range,
    /// b_proj takes [`CANCELLED`] away from an x that has it added: no relative tolerance hides a coarse residual.
    Cancel,
    /// V four times as large: what attention's probabilities lose shows.
    LoudValues,
    /// V beyond fp16 by its weights, undone by W_attn.
    HugeValues,
    /// V beyond fp16 by its bias, undone by W_attn.
    BiasedValues,
    /// A few elements of each gamma eighty times as large.
    GammaOutliers,
    /// The first head and 32 hidden numbers without weights, and gamma eight times as large: zeros have no say in the scale of others.
    Pruned,
    /// LN1's result so small that fp16 loses most of its bits, and what comes of it as large as ever.
    QuietNorm,
    /// Attention moves all of a row by the same, and farther than x spreads: LN2 takes it away again.
    MovedRows,
}

/// Takes values beyond what fp16 holds.
const HUGE: f32 = 131_072.0;

/// As the public challenge draws them.
pub const CHALLENGE: Flavour = Flavour { x: X::Uniform, bias: 0.0, qk: 1.0, std: 0.02, twist: Twist::None };
/// With biases on all four linear layers.
pub const BIASED: Flavour = Flavour { bias: 0.1, ..CHALLENGE };

/// A weight buffer of this flavour.
pub fn weights(flavour: Flavour, stream: Stream) -> Vec<f32> {
    let mut w = vec![0f32; WEIGHTS];
    for (k, p) in [W_QKV, W_ATTN, W_FC, W_PROJ].into_iter().enumerate() {
        stream.child(k as u64).fill(p.of_mut(&mut w), |s, i| s.normal(i, flavour.std));
    }
    for (k, p) in [GAMMA1, GAMMA2].into_iter().enumerate() {
        stream.child(10 + k as u64).fill(p.of_mut(&mut w), |s, i| s.uniform(i, 0.8, 1.2));
    }
    for (k, p) in [BETA1, BETA2].into_iter().enumerate() {
        stream.child(20 + k as u64).fill(p.of_mut(&mut w), |s, i| s.uniform(i, -0.1, 0.1));
    }
    if flavour.bias != 0.0 {
        for (k, p) in [B_QKV, B_ATTN, B_FC, B_PROJ].into_iter().enumerate() {
            stream.child(30 + k as u64).fill(p.of_mut(&mut w), |s, i| s.normal(i, flavour.bias));
        }
    }
    if flavour.qk != 1.0 {
        for row in W_QKV.of_mut(&mut w).chunks_exact_mut(3 * D) {
            row[..2 * D].iter_mut().for_each(|v| *v *= flavour.qk as f32);
        }
    }
    match flavour.twist {
        Twist::None => {}
        Twist::GeluBand => {
            stream.child(33).fill(B_FC.of_mut(&mut w), |s, i| -2.2 + s.normal(i, 0.1));
            W_FC.of_mut(&mut w).iter_mut().for_each(|v| *v *= 0.2);
            W_PROJ.of_mut(&mut w).iter_mut().for_each(|v| *v = v.abs());
        }
        Twist::Aligned => {
            let toward = tokens(flavour, 1, stream.child(34));
            scale_v(&mut w, 0.1);
            for (row, v) in W_FC.of_mut(&mut w).chunks_exact_mut(FFN).zip(&toward) {
                row.iter_mut().for_each(|w| *w += 0.0051 * v);
            }
            W_PROJ.of_mut(&mut w).iter_mut().for_each(|v| *v = v.abs());
            cancel_mean(&mut w, &aligned_tokens(&toward, 16, stream.child(35)));
        }
        Twist::Cancel => B_PROJ.of_mut(&mut w).iter_mut().for_each(|v| *v -= CANCELLED as f32),
        Twist::LoudValues => {
            scale_v(&mut w, 4.0);
        }
        Twist::Range => {
            for p in [W_FC, B_FC] {
                p.of_mut(&mut w).iter_mut().for_each(|v| *v *= HUGE);
            }
            W_PROJ.of_mut(&mut w).iter_mut().for_each(|v| *v /= HUGE);
        }
        Twist::HugeValues => {
            scale_v(&mut w, HUGE);
            W_ATTN.of_mut(&mut w).iter_mut().for_each(|v| *v /= HUGE);
        }
        Twist::BiasedValues => {
            stream.child(36).fill(&mut B_QKV.of_mut(&mut w)[2 * D..], |s, i| s.uniform(i, 70_000.0, 90_000.0));
            W_ATTN.of_mut(&mut w).iter_mut().for_each(|v| *v /= HUGE);
        }
        Twist::GammaOutliers => {
            for (k, p) in [GAMMA1, GAMMA2].into_iter().enumerate() {
                (0..4).for_each(|i| p.of_mut(&mut w)[stream.child(37).below(4 * k as u64 + i, D)] *= 80.0);
            }
        }
        Twist::Pruned => {
            for row in W_QKV.of_mut(&mut w).chunks_exact_mut(3 * D) {
                row.chunks_exact_mut(D).for_each(|part| part[..HEAD].fill(0.0));
            }
            W_ATTN.of_mut(&mut w)[..HEAD * D].fill(0.0);
            W_FC.of_mut(&mut w).chunks_exact_mut(FFN).for_each(|row| row[..32].fill(0.0));
            W_PROJ.of_mut(&mut w)[..32 * D].fill(0.0);
            [GAMMA1, GAMMA2].into_iter().for_each(|p| p.of_mut(&mut w).iter_mut().for_each(|v| *v *= 8.0));
        }
        Twist::QuietNorm => {
            GAMMA1.of_mut(&mut w).iter_mut().for_each(|v| *v *= 1e-6);
            BETA1.of_mut(&mut w).fill(0.0);
            scale_v(&mut w, 500.0);
            W_ATTN.of_mut(&mut w).iter_mut().for_each(|v| *v *= 5000.0);
        }
        Twist::MovedRows => {
            W_ATTN.of_mut(&mut w).fill(0.02);
            B_QKV.of_mut(&mut w)[2 * D..].fill(0.1);
        }
    }
    w
}

/// V's columns of W_qkv, so many times as large.
fn scale_v(weights: &mut [f32], factor: f32) {
    for row in W_QKV.of_mut(weights).chunks_exact_mut(3 * D) {
        row[2 * D..].iter_mut().for_each(|v| *v *= factor);
    }
}

/// Tokens that all lie near one.
fn aligned_tokens(toward: &[f32], rows: usize, stream: Stream) -> Vec<f32> {
    let mut x = vec![0f32; rows * D];
    stream.fill(&mut x, |s, i| f64::from(toward[i as usize % D]) + s.normal(i, 0.02));
    x
}

/// Moves b_proj so that `output - x` has mean zero in every column on these tokens.
fn cancel_mean(weights: &mut [f32], x: &[f32]) {
    let rows: Vec<usize> = (0..x.len() / D).collect();
    let output = oracle::forward(x, weights, &rows, Rounding::None).output;
    for (i, (o, x)) in output.iter().zip(x).enumerate() {
        B_PROJ.of_mut(weights)[i % D] -= ((o - f64::from(*x)) / rows.len() as f64) as f32;
    }
}

/// Tokens that go with these weights, both drawn from the same stream.
pub fn tokens_for(flavour: Flavour, rows: usize, weights: Stream, stream: Stream) -> Vec<f32> {
    if flavour.twist == Twist::Aligned {
        return aligned_tokens(&tokens(flavour, 1, weights.child(34)), rows, stream);
    }
    tokens(flavour, rows, stream)
}

/// `rows` tokens of this flavour.
pub fn tokens(flavour: Flavour, rows: usize, stream: Stream) -> Vec<f32> {
    let mut x = vec![0f32; rows * D];
    let column = |i: u64| i as usize % D;
    match flavour.x {
        X::Uniform => stream.fill(&mut x, |s, i| s.uniform(i, -1.0, 1.0)),
        X::Zero => {}
        X::Scaled(scale) => stream.fill(&mut x, |s, i| s.uniform(i, -scale, scale)),
        X::Shifted(by) => stream.fill(&mut x, |s, i| s.uniform(i, -1.0, 1.0) + by),
        X::Outliers => {
            let loud: Vec<usize> = (0..4).map(|k| stream.child(1).below(k, D)).collect();
            stream.fill(&mut x, |s, i| s.uniform(i, -1.0, 1.0) * if loud.contains(&column(i)) { 50.0 } else { 1.0 });
        }
        X::OneHot => {
            for (row, values) in x.chunks_exact_mut(D).enumerate() {
                values[stream.below(row as u64, D)] = 1.0;
            }
        }
        X::Channels => {
            let loud = [(stream.child(1).below(0, D), 900.0), (stream.child(1).below(1, D), -3000.0)];
            stream.fill(&mut x, |s, i| {
                let level = loud.iter().filter(|l| l.0 == column(i)).map(|l| l.1).sum::<f64>();
                s.uniform(i, -1.0, 1.0) * (1.0 + level.abs() / 100.0) + level
            });
        }
        X::NearDuplicates => {
            let common = stream.child(1);
            stream.fill(&mut x, |s, i| common.uniform(column(i) as u64, -1.0, 1.0) + s.uniform(i, -1e-3, 1e-3));
        }
    }
    x
}
