//! Inputs with known answers, without limit. A *base* is drawn at random and its answer computed by the oracle.
//! A *fresh* content is a base seen through a random symmetry of the block, so that its answer follows exactly:
//!
//! * tokens in another order: the output's rows move along (no mask, no positions);
//! * model features in another order: x, LayerNorm, and one side of every matrix move along;
//! * some elements of W_proj and b_proj changed: a rank-one change of one output column each.
//!
//! No buffer of a fresh content equals one that was handed out before, and stale copies of x, of any weight
//! matrix or of an output give a wrong answer.

use std::sync::Arc;

use rayon::prelude::*;

use crate::check::Accuracy;
use crate::contract::Limits;
use crate::dims::{B_ATTN, B_PROJ, BETA1, BETA2, D, FFN, GAMMA1, GAMMA2, Param, W_ATTN, W_FC, W_PROJ, W_QKV};
use crate::grade::judge;
use crate::oracle::{self, Expected, Rounding};
use crate::reason::Failure;
use crate::rng::Stream;

/// Elements of W_proj (and of b_proj) changed in a fresh content.
const TWEAKS: u64 = 6;

/// One input of the block and the rows of its output that are known.
#[derive(Clone)]
pub struct Content {
    /// Tokens.
    pub seq: usize,
    /// (seq, D).
    pub x: Vec<f32>,
    /// The weight buffer.
    pub weights: Arc<Vec<f32>>,
    /// Rows of the output that are known.
    pub rows: Vec<usize>,
    /// Those rows.
    pub expected: Vec<f64>,
    /// What is allowed beside the tolerance.
    pub limits: Limits,
}

/// A content with its hidden activations, from which fresh contents are made.
#[derive(Clone)]
pub struct Base {
    content: Content,
    hidden: Vec<f64>,
}

impl Content {
    /// The content of these inputs, its answer by the oracle.
    pub fn new(x: Vec<f32>, weights: Arc<Vec<f32>>, rows: Vec<usize>) -> Self {
        Base::new(x, weights, rows).content
    }

    /// Is this accuracy good enough?
    pub fn judge(&self, accuracy: &Accuracy) -> Result<(), Failure> {
        judge(accuracy).and_then(|()| self.limits.judge(accuracy))
    }

    /// A content like this one with other inputs.
    pub fn changed(&self, x: Vec<f32>, weights: Arc<Vec<f32>>) -> Self {
        Self { limits: self.limits, ..Self::new(x, weights, self.rows.clone()) }
    }
}

impl Base {
    /// The base of these inputs.
    pub fn new(x: Vec<f32>, weights: Arc<Vec<f32>>, rows: Vec<usize>) -> Self {
        let Expected { output, hidden } = oracle::forward(&x, &weights, &rows, Rounding::None);
        Self {
            content: Content { seq: x.len() / D, x, weights, rows, expected: output, limits: Limits::tolerance(0.0) },
            hidden,
        }
    }

    /// The same base under these limits, which everything made from it is under too.
    pub fn under(mut self, limits: Limits) -> Self {
        self.content.limits = limits;
        self
    }

    /// The base as it is.
    pub fn plain(&self) -> &Content {
        &self.content
    }

    /// New x, the same weights.
    pub fn fresh_tokens(&self, stream: Stream) -> Content {
        let order = stream.permutation(self.content.seq);
        let features: Vec<u32> = (0..D as u32).collect();
        self.seen_through(&order, &features, self.content.weights.clone(), &[])
    }

    /// New x and new weights.
    pub fn fresh(&self, stream: Stream) -> Content {
        let order = stream.child(1).permutation(self.content.seq);
        let features = stream.child(2).permutation(D);
        let tweaks: Vec<Tweak> = (0..TWEAKS).map(|k| Tweak::draw(k, stream.child(3))).collect();
        let mut weights = permute_features(&self.content.weights, &features);
        for t in &tweaks {
            // Toward zero and little beyond: not unusual for a library that looks at its weights.
            let weight = &mut weights[W_PROJ.offset + t.hidden * D + t.column];
            *weight -= (0.1 * t.by).abs().copysign(*weight);
            weights[B_PROJ.offset + t.column] += t.by;
        }
        self.seen_through(&order, &features, Arc::new(weights), &tweaks)
    }

    fn seen_through(&self, order: &[u32], features: &[u32], weights: Arc<Vec<f32>>, tweaks: &[Tweak]) -> Content {
        let base = &self.content;
        let mut x = vec![0f32; base.x.len()];
        x.par_chunks_exact_mut(D).zip(order).for_each(|(to, &token)| {
            let from = &base.x[token as usize * D..][..D];
            to.iter_mut().zip(features).for_each(|(t, &f)| *t = from[f as usize]);
        });
        // Where did the known rows go?
        let mut moved = vec![0usize; base.seq];
        order.iter().enumerate().for_each(|(to, &from)| moved[from as usize] = to);
        let rows: Vec<usize> = base.rows.iter().map(|&r| moved[r]).collect();
        let mut expected = vec![0.0; base.expected.len()];
        expected
            .par_chunks_exact_mut(D)
            .zip(base.expected.par_chunks_exact(D))
            .zip(self.hidden.par_chunks_exact(FFN))
            .for_each(|((to, from), hidden)| {
                to.iter_mut().zip(features).for_each(|(t, &f)| *t = from[f as usize]);
                for t in tweaks {
                    // The weights hold the rounded sum, so the change is what the rounding left of it.
                    to[t.column] += t.exact(&weights, &base.weights, features, hidden);
                }
            });
        Content { seq: base.seq, x, weights, rows, expected, limits: base.limits }
    }
}

/// One element of W_proj and one of b_proj, both of one output column.
struct Tweak {
    hidden: usize,
    column: usize,
    by: f32,
}

impl Tweak {
    /// Tweak `k`. Each has columns of its own to choose from, so that no two meet.
    fn draw(k: u64, stream: Stream) -> Self {
        let s = stream.child(k);
        let share = D / TWEAKS as usize;
        let by = s.uniform(2, 0.5, 1.0) as f32 * if s.word(3) & 1 == 0 { 1.0 } else { -1.0 };
        Self { hidden: s.below(0, FFN), column: k as usize * share + s.below(1, share), by }
    }

    /// What this tweak adds to its column of the output.
    fn exact(&self, now: &[f32], before: &[f32], features: &[u32], hidden: &[f64]) -> f64 {
        let old = features[self.column] as usize;
        let change = |new: usize, old: usize| f64::from(now[new]) - f64::from(before[old]);
        let weight = change(W_PROJ.offset + self.hidden * D + self.column, W_PROJ.offset + self.hidden * D + old);
        weight * hidden[self.hidden] + change(B_PROJ.offset + self.column, B_PROJ.offset + old)
    }
}

/// The weights of the same block with its model features in another order: feature i is the old features[i].
fn permute_features(weights: &[f32], features: &[u32]) -> Vec<f32> {
    let mut out = weights.to_vec();
    // Matrices that read features: their rows move.
    for p in [W_QKV, W_FC] {
        let from = p.of(weights);
        p.of_mut(&mut out).par_chunks_exact_mut(p.cols).zip(features).for_each(|(to, &f)| {
            to.copy_from_slice(&from[f as usize * p.cols..][..p.cols]);
        });
    }
    // Matrices and vectors that make features: their columns move.
    for p in [W_ATTN, W_PROJ, GAMMA1, BETA1, B_ATTN, GAMMA2, BETA2, B_PROJ] {
        permute_columns(p, weights, &mut out, features);
    }
    out
}

fn permute_columns(p: Param, from: &[f32], to: &mut [f32], features: &[u32]) {
    let rows = p.of(from).par_chunks_exact(D);
    p.of_mut(to).par_chunks_exact_mut(D).zip(rows).for_each(|(to, from)| {
        to.iter_mut().zip(features).for_each(|(t, &f)| *t = from[f as usize]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{self, BIASED};

    #[test]
    fn a_fresh_contents_answer_is_what_the_oracle_says() {
        let weights = Arc::new(inputs::weights(BIASED, Stream::new(1, 1)));
        for (seq, rows) in [(1, vec![0]), (9, (0..9).collect()), (33, vec![0, 5, 32])] {
            let x = inputs::tokens(BIASED, seq, Stream::new(2, seq as u64));
            let base = Base::new(x, weights.clone(), rows);
            for seed in 0..3 {
                for content in [base.fresh(Stream::new(seed, 9)), base.fresh_tokens(Stream::new(seed, 9))] {
                    let direct = oracle::forward(&content.x, &content.weights, &content.rows, Rounding::None);
                    let pairs = content.expected.iter().zip(&direct.output);
                    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(worst < 1e-12, "seq {seq}: {worst:e}");
                }
            }
        }
    }

    #[test]
    fn a_stale_weight_matrix_is_wrong() {
        let weights = Arc::new(inputs::weights(BIASED, Stream::new(1, 1)));
        let x = inputs::tokens(BIASED, 4, Stream::new(2, 4));
        let base = Base::new(x, weights, (0..4).collect());
        let (old, new) = (base.fresh(Stream::new(1, 0)), base.fresh(Stream::new(2, 0)));
        for p in [W_QKV, W_ATTN, W_FC, W_PROJ] {
            let mut mixed = new.weights.to_vec();
            p.of_mut(&mut mixed).copy_from_slice(p.of(&old.weights));
            let got = oracle::forward(&new.x, &mixed, &new.rows, Rounding::None);
            let pairs = got.output.iter().zip(&new.expected);
            assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) > 0.05, "offset {}", p.offset);
        }
    }
}
