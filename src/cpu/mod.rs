//! The block in fp32 on the host: the specification that the GPU is tested against, and the backend where there is no GPU.
//!
//! One file per stage, each a function on row-major slices. Letters: rows = batch * seq_len, D = 768, F = 3072.

use rayon::prelude::*;

use crate::dims::{D, FFN, QKV};
use crate::error::Error;
use crate::weights::Weights;

mod attention;
mod exp;
mod gelu;
mod layernorm;
mod linear;
mod matmul;
mod pool;
mod reduce;

pub use attention::attention;
pub use gelu::gelu_tanh;
pub use layernorm::layernorm;
pub use linear::linear;

/// Floats that one task of an elementwise stage handles: large enough to pay for the task, small enough for a core's L1.
const CHUNK: usize = 8 * D;

/// The whole block: x is (batch * seq_len, D), the result has its shape. Every sequence of the batch attends to itself only.
///
/// # Errors
/// When the shape does not fit `x`, or the host has no memory for the intermediates (18 KiB a token) or no threads.
pub fn forward(x: &[f32], w: Weights<'_>, batch: usize, seq_len: usize, causal: bool) -> Result<Vec<f32>, Error> {
    let rows = check_shape(x, batch, seq_len)?;
    // Enter the thread pool once: from outside it every stage would wait for a wake-up, which is what few tokens cost.
    pool::threads()?.install(|| block(x, w, rows, seq_len, causal))
}

fn block(x: &[f32], w: Weights<'_>, rows: usize, seq_len: usize, causal: bool) -> Result<Vec<f32>, Error> {
    let mut h = zeros("the normalised rows", rows, D)?;
    let mut qkv = zeros("Q, K and V", rows, QKV)?;
    layernorm(x, w.gamma1, w.beta1, &mut h);
    linear(&h, w.w_qkv, w.b_qkv, &mut qkv);
    attention(&qkv, &mut h, seq_len, causal);
    drop(qkv);

    let mut x1 = zeros("the residual rows", rows, D)?;
    linear(&h, w.w_attn, w.b_attn, &mut x1);
    add(&mut x1, x);

    let mut f = zeros("the feed-forward rows", rows, FFN)?;
    layernorm(&x1, w.gamma2, w.beta2, &mut h);
    linear(&h, w.w_fc, w.b_fc, &mut f);
    gelu_tanh(&mut f);
    linear(&f, w.w_proj, w.b_proj, &mut h);
    add(&mut h, &x1);
    Ok(h)
}

/// sum += term. The residual is added last, so that a large x costs one rounding and not one for each block of a product.
fn add(sum: &mut [f32], term: &[f32]) {
    sum.par_chunks_mut(CHUNK).zip(term.par_chunks(CHUNK)).for_each(|(sum, term)| {
        for (s, t) in sum.iter_mut().zip(term) {
            *s += t;
        }
    });
}

fn check_shape(x: &[f32], batch: usize, seq_len: usize) -> Result<usize, Error> {
    for (argument, value) in [("batch", batch), ("seq_len", seq_len)] {
        if value == 0 {
            return Err(Error::Invalid { argument, value: 0, expected: "1 or more" });
        }
    }
    let rows = batch.saturating_mul(seq_len);
    let need = rows.saturating_mul(D * size_of::<f32>());
    if size_of_val(x) != need {
        return Err(Error::Short { argument: "x", address: x.as_ptr().addr(), have: size_of_val(x), need });
    }
    Ok(rows)
}

/// A zeroed (rows, width) buffer, or a sentence instead of an abort when there is no memory.
fn zeros(what: &str, rows: usize, width: usize) -> Result<Vec<f32>, Error> {
    let len = rows.saturating_mul(width);
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        what: format!("{what} of batch * seq_len = {rows}"),
        bytes: len.saturating_mul(size_of::<f32>()),
    })?;
    buffer.resize(len, 0.0);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_memory_says_for_how_many_tokens() {
        let tokens = usize::MAX / QKV;
        let said = format!("out of memory: {} bytes for Q, K and V of batch * seq_len = {tokens}", usize::MAX);
        assert_eq!(zeros("Q, K and V", tokens, QKV).map_err(|error| error.to_string()), Err(said));
    }
}
