//! What exact promises: at most three times the error of plain fp32, and the same bits each time, at every length and on weights that ask for more.

use solve::cuda::arch::Arch;
use solve::cuda::exact::chain;
use solve::cuda::solve::solve_in_place;
use solve::dims::{D, FFN, QKV};
use solve::options::Stream;
use solve::precision::SolvePrecision::{Auto, Exact, Fast};
use solve::weights::{B_QKV, W_ATTN, W_FC, W_QKV};

use super::{
    Change, KINDS, call, check_beside, check_exact, forward, in_chain, prepared, relative_error, scale, scale_named,
    scale_v, span, tokens, weights_of,
};
use crate::common::{Random, check_block, reference, weights, worst};
use crate::oracle;
use crate::rig::{Memory, device};

pub fn exact(arch: Arch) {
    for kind in &KINDS {
        let host_weights = weights_of(kind, 80);
        let weights = Memory::of(&host_weights);
        for seq_len in [1, 4, 7, 33, 48, 64, 130, 400, 513] {
            let x = Random::new(seq_len as u64).uniforms(seq_len * D);
            let got = call(arch, &x, &weights, Exact);
            check_exact(&got, &x, &host_weights, 1, false, &format!("{}, seq_len {seq_len}", kind.name));
            assert!(call(arch, &x, &weights, Exact) == got, "other bits: {}, seq_len {seq_len}", kind.name);
        }
    }
    // All but one-hot, the softmax magnifies what is wrong with q and k, with few rows by chance: so several draws, and every way of cutting products.
    for (seq_len, seeds) in [(17, 4), (32, 4), (48, 2), (64, 4), (130, 3), (257, 2), (600, 1), (1000, 1), (1024, 1)] {
        for seed in 0..seeds {
            let host_weights = weights_of(&KINDS[1], 300 + seed);
            let x = Random::new(300 + seed + seq_len as u64).uniforms(seq_len * D);
            let got = call(arch, &x, &Memory::of(&host_weights), Exact);
            check_exact(
                &got,
                &x,
                &host_weights,
                1,
                false,
                &format!("{}, seq_len {seq_len}, seed {seed}", KINDS[1].name),
            );
        }
    }
    let host_weights = weights_of(&KINDS[0], 81);
    let weights = Memory::of(&host_weights);
    // 900 leave most of the last tile of rows empty.
    for seq_len in [900, 1024] {
        let x = Random::new(81).uniforms(seq_len * D);
        let got = call(arch, &x, &weights, Exact);
        let worst = worst(&got, &reference(&x, &host_weights, 1, seq_len, false), 1e-3, 1e-3);
        assert!(worst <= 0.02, "{worst} of the challenge's tolerance at {seq_len} tokens");
        assert!(call(arch, &x, &weights, Exact) == got, "other bits at {seq_len} tokens");
    }
}

/// Exact of many rows, causal and not, in one sequence and in several, is what the kernel has that computes calls again; and a call twice has the same bits.
/// On Hopper the lengths are those of every way in which attention and the products are cut.
pub fn exact_of_many_rows(arch: Arch) {
    // Scores of 1e8 and more, whose differences alone may become exponents.
    let mut loud = weights_of(&KINDS[0], 94);
    for row in loud[W_QKV.offset..W_QKV.offset + W_QKV.len].chunks_mut(QKV) {
        row[..2 * D].iter_mut().for_each(|w| *w *= 3e4);
    }
    let weights = [weights_of(&KINDS[5], 94), loud].map(|weights| Memory::of(&weights));
    let shapes = [
        (1, 200),
        (3, 70),
        (1, 300),
        (1, 400),
        (1, 600),
        (1, 1100),
        (1, 1536),
        (1, 1850),
        (1, 2300),
        (1, 3000),
        (1, 4300),
        (7, 130),
        (5, 256),
        (40, 33),
    ];
    for (weights, causal) in weights.iter().flat_map(|weights| [(weights, false), (weights, true)]) {
        let [exact, auto] = [Exact, Auto].map(|precision| prepared(arch, weights, precision, causal, 4300));
        for (batch, seq_len) in shapes {
            let x = Random::new((batch * seq_len) as u64).uniforms(batch * seq_len * D);
            let [got, again] = [&exact, &auto].map(|block| forward(block, &x, batch));
            let wanted: Vec<f64> = again.iter().map(|&value| value.into()).collect();
            let error = relative_error(&got, &wanted, &x);
            assert!(error <= 1e-6, "{error:e}: causal {causal}, {batch} sequences of {seq_len}");
            // Else one kernel would be compared with itself.
            let launches = [&exact, &auto].map(|block| block.launches(batch, seq_len).expect("launches"));
            let rows = batch * seq_len;
            let chain = if in_chain(arch, rows) { 7 } else { 1 };
            assert_eq!(launches, [chain, 1], "{batch} sequences of {seq_len}");
            if batch == 1 && !causal {
                let stateless = call(arch, &x, weights, Exact);
                let error = relative_error(&stateless, &wanted, &x);
                // The chain of fewer rows has scales of another kind.
                let most = if chain::rows(false).contains(&rows) { 1e-5 } else { 1e-6 };
                assert!(error <= most, "{error:e}: solve() of {seq_len}");
            }
        }
    }
}

/// Exact of so many rows that blocks have parts of several units of attention, and are at different places: the same bits each time. (Where a block lets the
/// next Q come before its last read of this one, every other call has other bits on an H200, and compute-sanitizer sees nothing.)
pub fn exact_repeats(arch: Arch) {
    let weights = Memory::of(&weights_of(&KINDS[0], 95));
    for seq_len in [1_700, 2_400, 3_000] {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let block = prepared(arch, &weights, Exact, false, seq_len);
        let x_there = Memory::of(&x);
        let again = || {
            let output = Memory::poisoned(x.len());
            block.forward(&tokens(&x_there, &output, 1, seq_len), Stream::LEGACY).expect("forward");
            output.read()
        };
        let wanted = again();
        assert!((0..20).all(|_| again() == wanted), "other bits at {seq_len} tokens");
    }
}

/// Weights of which some are far from others, so that one scale would not do for both.
const UNEVEN: [(&str, Change); 4] = [
    ("slabs of 0", |w| {
        w[W_QKV.offset..][..W_QKV.len].chunks_mut(QKV).for_each(|row| row[..64].fill(0.0));
        w[W_FC.offset..][..W_FC.len].chunks_mut(FFN).for_each(|row| row[..32].fill(0.0));
        scale_named(w, "gamma", 8.0);
    }),
    ("values of 1e8", |w| scale_v(w, 1e8)),
    ("values of 1e-6", |w| {
        scale_v(w, 1e-6);
        scale(w, B_QKV.offset + 2 * D, D, 0.0);
        scale(w, W_ATTN.offset, W_ATTN.len, 1e6);
    }),
    // With keys of 0, all tokens weigh the same.
    ("gamma1 of 1e35 beside W_qkv of 1e-24", |w| {
        scale_named(w, "gamma1", 1e35);
        scale(w, W_QKV.offset, W_QKV.len, 5e-23);
        w[W_QKV.offset..][..W_QKV.len].chunks_mut(QKV).for_each(|row| row[D..2 * D].fill(0.0));
    }),
];

/// Exact gives each its own scale, and the rows behind the last one have no say in that.
pub fn exact_on_uneven_weights(arch: Arch) {
    for (kind, change) in UNEVEN {
        let mut host_weights = weights(88);
        change(&mut host_weights);
        let weights = Memory::of(&host_weights);
        let [exact, auto] = [Exact, Auto].map(|precision| prepared(arch, &weights, precision, false, 300));
        for seq_len in [8, 12, 16, 30, 40, 65, 200, 300] {
            let x = Random::new(seq_len as u64).uniforms(seq_len * D);
            let wanted = oracle::block(&x, &host_weights, false);
            for (name, got) in [
                ("solve()", call(arch, &x, &weights, Exact)),
                ("solve() in auto", call(arch, &x, &weights, Auto)),
                ("a handle", forward(&exact, &x, 1)),
                ("a handle in auto", forward(&auto, &x, 1)),
            ] {
                let what = format!("{kind}: {name}, seq_len {seq_len}");
                check_beside(&got, &wanted, &x, &host_weights, 1, false, &what);
            }
        }
    }
}

/// Queries and keys that differ, of 10,000 to 20,000.
fn loud_scores(weights: &mut [f32]) {
    let biases = weights[B_QKV.offset..][..2 * D].iter_mut();
    biases.enumerate().for_each(|(i, bias)| *bias = 1e4 + 99.0 * (i % 101) as f32);
}

/// Scores whose spacing is 32, and that spread about four times that: one of a head's 64 numbers is as large for all, and no other is large.
fn coarse_scores(weights: &mut [f32]) {
    let large = |column: usize| column.is_multiple_of(64);
    for row in weights[W_QKV.offset..][..W_QKV.len].chunks_mut(QKV) {
        row[..2 * D].iter_mut().enumerate().for_each(|(column, w)| *w *= if large(column) { 0.0 } else { 7.0 });
    }
    let biases = weights[B_QKV.offset..][..2 * D].iter_mut();
    biases.enumerate().for_each(|(column, bias)| *bias = if large(column) { 17_920.0 } else { 0.0 });
}

/// V is the same of all tokens, about as large as x: so attention is b_v, whatever the scores.
fn values_of_biases(weights: &mut [f32]) {
    scale_v(weights, 0.0);
    scale(weights, B_QKV.offset + 2 * D, D, 20.0);
}

const LENGTHS: [usize; 10] = [1, 2, 12, 40, 60, 100, 200, 300, 700, 1100];
const LONGEST: usize = 1100;

/// Scores beyond what fp32 holds to a whole number, where a difference of them is left alone to be finite.
pub fn large_scores(arch: Arch) {
    let kinds: [(&str, Change); 2] = [("scores of 1e10", loud_scores), ("scores of 2^28 to 2^29", coarse_scores)];
    for (name, change) in kinds {
        let mut host_weights = weights(87);
        change(&mut host_weights);
        values_of_biases(&mut host_weights);
        let weights = Memory::of(&host_weights);
        let all_x = Random::new(87).uniforms(LONGEST * D);
        // A row's result does not depend on the others here, causal or not.
        let all_wanted = oracle::block(&all_x, &host_weights, false);
        for (precision, bound) in [(Fast, 1e-3), (Exact, 2e-5), (Auto, 2e-5)] {
            let handle = prepared(arch, &weights, precision, true, LONGEST);
            for seq_len in LENGTHS {
                let (x, wanted) = (&all_x[..seq_len * D], &all_wanted[..seq_len * D]);
                for (what, got) in
                    [("solve()", call(arch, x, &weights, precision)), ("a handle", forward(&handle, x, 1))]
                {
                    let error = relative_error(&got, wanted, x);
                    assert!(error <= bound, "{name}: {what} in {precision:?}, seq_len {seq_len}: {error:e}");
                }
            }
        }
    }
}

/// Input at the ends of fp32, of which fp32 arithmetic makes finite numbers.
const EXTREMES: [(&str, Change, Change); 4] = [
    ("rows whose variance is infinite", |_| {}, |x| x.iter_mut().take(2 * D).for_each(|value| *value *= 1e20)),
    ("rows of 1e36", |_| {}, |x| x.iter_mut().take(2 * D).for_each(|value| *value *= 1e36)),
    ("W_qkv of 1e-26", |w| scale(w, W_QKV.offset, W_QKV.len, 5e-25), |_| {}),
    ("W_v of 1e22", |w| scale_v(w, 5e23), |_| {}),
];

/// Finite everywhere, whoever computes it.
pub fn finite_at_extremes(arch: Arch) {
    for (name, change_weights, change_x) in EXTREMES {
        let mut weights = weights(87);
        change_weights(&mut weights);
        let weights = Memory::of(&weights);
        for precision in [Fast, Exact, Auto] {
            let handle = prepared(arch, &weights, precision, true, LONGEST);
            for seq_len in LENGTHS {
                let mut x = Random::new(seq_len as u64).uniforms(seq_len * D);
                change_x(&mut x);
                for (what, got) in
                    [("solve()", call(arch, &x, &weights, precision)), ("a handle", forward(&handle, &x, 1))]
                {
                    let finite = got.iter().all(|value| value.is_finite());
                    assert!(finite, "{name}: {what} in {precision:?}, seq_len {seq_len}");
                }
            }
        }
    }
}

/// Far more rows than any tile or grid: the same tokens over and over have the same result as once.
pub fn long_sequence(arch: Arch) {
    const PERIOD: usize = 64;
    const SEQ_LEN: usize = 40_000;
    let host_weights = weights_of(&KINDS[0], 89);
    let weights = Memory::of(&host_weights);
    let period = Random::new(89).uniforms(PERIOD * D);
    let x = Memory::of(&period.repeat(SEQ_LEN / PERIOD));
    solve_in_place(device(arch), &tokens(&x, &x, 1, SEQ_LEN), &span(&weights), Exact).expect("solve");
    let wanted = reference(&period, &host_weights, 1, PERIOD, false);
    for (index, rows) in x.read().chunks(PERIOD * D).enumerate() {
        check_block(rows, &wanted, &format!("repetition {index} of {PERIOD} tokens"));
    }
}
