//! The block with its features in another order. What it computes is the same, but sums over features are made in that order, and so
//! rounded in another way: where an input magnifies rounding, what a single order makes of it is a matter of luck.

use rayon::prelude::*;

use super::{Operands, emulate};
use crate::dims::{B_ATTN, B_PROJ, BETA1, BETA2, D, GAMMA1, GAMMA2, W_ATTN, W_FC, W_PROJ, W_QKV};

/// Which feature comes in a place: from the last one, and every second one first.
pub const ORDERS: [fn(usize) -> usize; 2] = [|i| D - 1 - i, |i| if i < D / 2 { 2 * i } else { 2 * i + 1 - D }];

/// As `emulate`, with feature `order(i)` in place `i` meanwhile.
pub fn emulate_in_order(
    x: &[f32],
    weights: &[f32],
    rows: &[usize],
    operands: Operands,
    order: fn(usize) -> usize,
) -> Vec<f32> {
    let mut reordered = weights.to_vec();
    for param in [GAMMA1, BETA1, W_ATTN, B_ATTN, GAMMA2, BETA2, W_PROJ, B_PROJ] {
        columns(param.of_mut(&mut reordered), param.of(weights), order);
    }
    for param in [W_QKV, W_FC] {
        let from = param.of(weights);
        param.of_mut(&mut reordered).par_chunks_exact_mut(param.cols).enumerate().for_each(|(i, row)| {
            row.copy_from_slice(&from[order(i) * param.cols..][..param.cols]);
        });
    }
    let mut moved = vec![0f32; x.len()];
    columns(&mut moved, x, order);
    let got = emulate(&moved, &reordered, rows, operands);
    let mut out = vec![0f32; got.len()];
    for (to, from) in out.chunks_exact_mut(D).zip(got.chunks_exact(D)) {
        from.iter().enumerate().for_each(|(i, &v)| to[order(i)] = v);
    }
    out
}

/// The columns of a matrix of width D in that order.
fn columns(to: &mut [f32], from: &[f32], order: fn(usize) -> usize) {
    to.par_chunks_exact_mut(D).zip(from.par_chunks_exact(D)).for_each(|(to, from)| {
        to.iter_mut().enumerate().for_each(|(i, v)| *v = from[order(i)]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{BIASED, tokens, weights};
    use crate::oracle::{Rounding, forward};
    use crate::rng::Stream;

    #[test]
    fn every_order_is_the_same_block() {
        let weights = weights(BIASED, Stream::new(3, 1));
        let x = tokens(BIASED, 5, Stream::new(3, 2));
        let rows = [0, 3, 4];
        let expected = forward(&x, &weights, &rows, Rounding::None).output;
        let in_order = emulate(&x, &weights, &rows, Operands::Fp32);
        let outputs = ORDERS.map(|order| emulate_in_order(&x, &weights, &rows, Operands::Fp32, order));
        for (k, output) in outputs.iter().enumerate() {
            let mut seen = [false; D];
            (0..D).for_each(|i| seen[ORDERS[k](i)] = true);
            assert!(seen.iter().all(|&s| s), "order {k} has every feature");
            assert!(output.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5), "order {k}");
            assert!(*output != in_order, "order {k} rounds in another way");
        }
    }
}
