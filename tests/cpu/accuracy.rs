//! The whole block against float64. The bound is on what the block adds to x, so that the residual cannot hide an error.

use solve::cpu;
use solve::dims::D;
use solve::error::Error;

use crate::inputs::{Random, relative_error};
use crate::oracle;

/// fp32 sums of up to 3072 products: measured at 4e-7 to 6e-7.
const BOUND: f64 = 8e-7;

/// One token, both sides of the 32 rows at which products change their split, of a tile of 128 queries, of a tile of 256
/// keys, and a length that is ragged in all of them.
const EDGES: [usize; 21] = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 384, 513, 600];

#[test]
fn agrees_with_float64_at_every_edge() {
    let mut random = Random(1);
    let weights = random.weights();
    for seq_len in EDGES {
        let x = random.tokens(seq_len);
        for causal in [false, true] {
            let got = cpu::forward(&x, weights.view(), 1, seq_len, causal).expect("a good shape");
            let error = relative_error(&got, &oracle::block(&x, &weights.0, causal), &x);
            assert!(error < BOUND, "seq_len {seq_len}, causal {causal}: {error:e}");
        }
    }
}

#[test]
fn keeps_the_sequences_of_a_batch_apart() {
    let mut random = Random(2);
    let weights = random.weights();
    for (batch, seq_len) in [(2, 1), (5, 7), (3, 65), (2, 129)] {
        let x = random.tokens(batch * seq_len);
        for causal in [false, true] {
            let got = cpu::forward(&x, weights.view(), batch, seq_len, causal).expect("a good shape");
            for (got, x) in got.chunks(seq_len * D).zip(x.chunks(seq_len * D)) {
                let error = relative_error(got, &oracle::block(x, &weights.0, causal), x);
                assert!(error < BOUND, "batch {batch}, seq_len {seq_len}, causal {causal}: {error:e}");
            }
        }
    }
}

#[test]
fn refuses_a_shape_that_does_not_fit() {
    let mut random = Random(3);
    let (x, weights) = (random.tokens(2), random.weights());
    let forward = |batch, seq_len| cpu::forward(&x, weights.view(), batch, seq_len, false);
    assert!(matches!(forward(0, 2), Err(Error::Invalid { argument: "batch", .. })));
    assert!(matches!(forward(1, 0), Err(Error::Invalid { argument: "seq_len", .. })));
    assert!(matches!(forward(1, 3), Err(Error::Short { argument: "x", .. })));
    assert!(matches!(forward(1, 1), Err(Error::Short { argument: "x", .. })), "a token is left over");
    assert!(matches!(forward(usize::MAX, 2), Err(Error::Short { argument: "x", .. })));
    assert!(forward(2, 1).is_ok());
}
