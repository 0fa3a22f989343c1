//! Fast, exact and auto on weights as usual and on others: exact against float64, the others against exact where it must have taken their place, and that
//! it leaves no trace. The expectations of who is taken over are the rules of cuda/exact/exact.cuh.

use std::collections::{HashMap, HashSet};
use std::thread;

use solve::cuda::arch::Arch;
use solve::cuda::block::{self, Buffers, Shape};
use solve::cuda::device::Device;
use solve::cuda::exact::{Behind, chain};
use solve::cuda::graph::run_steps;
use solve::cuda::prepared::Prepared;
use solve::cuda::rescue::{ALARMS, TINY, must_rescue};
use solve::cuda::solve::solve_in_place;
use solve::cuda::workspace::{ALARMS_BYTES, Parts, Purpose, Workspace};
use solve::dims::{D, FFN, QKV};
use solve::options::{BlockOptions, Stream};
use solve::precision::SolvePrecision::{self, Auto, Exact, Fast};
use solve::span::{Span, Tokens};
use solve::weights::{B_FC, B_QKV, BETA1, GAMMA1, PARAMS, W_ATTN, W_FC, W_PROJ, W_QKV};

use super::common::{Random, check_block, reference, weights, worst};
use super::oracle;
use super::rig::{Captured, Memory, OwnStream, device, enter};

type Change = fn(&mut [f32]);

/// Weights, and whether fast and auto are computed again on them.
struct Kind {
    name: &'static str,
    change: Change,
    fast: bool,
    auto: bool,
}

const KINDS: [Kind; 7] = [
    Kind { name: "as usual", change: |_| {}, fast: false, auto: false },
    Kind { name: "standard deviation 2", change: |w| scale_matrices(w, 100.0), fast: false, auto: true },
    Kind { name: "standard deviation 1e-6", change: |w| scale_matrices(w, 5e-5), fast: false, auto: true },
    Kind { name: "v past fp16", change: loud_v, fast: true, auto: true },
    Kind { name: "FFN past fp16", change: |w| scale(w, W_FC.offset, W_FC.len, 1e5), fast: true, auto: true },
    Kind { name: "biases of 1", change: |w| scale_named(w, "b_", 50.0), fast: false, auto: true },
    Kind { name: "gamma of 80", change: loud_gamma, fast: false, auto: true },
];

/// Where something is so small that fp16 loses it, or may lose something that counts.
const QUIET: [Kind; 5] = [
    Kind { name: "gamma of 1e-6", change: |w| scale_named(w, "gamma", 1e-6), fast: false, auto: true },
    Kind { name: "gamma of 1e-6 beside large matrices", change: quiet_norm, fast: true, auto: true },
    Kind { name: "W_attn of 0", change: |w| scale(w, W_ATTN.offset, W_ATTN.len, 0.0), fast: false, auto: false },
    Kind { name: "W_attn of 1700", change: |w| scale(w, W_ATTN.offset, W_ATTN.len, 50_000.0), fast: true, auto: true },
    Kind { name: "W_proj of 1e-8 beside b_fc of 6e4", change: quiet_proj, fast: true, auto: true },
];

fn scale(weights: &mut [f32], offset: usize, len: usize, factor: f32) {
    weights[offset..offset + len].iter_mut().for_each(|w| *w *= factor);
}

fn scale_named(weights: &mut [f32], start: &str, factor: f32) {
    for (_, param, _) in PARAMS.iter().filter(|(name, ..)| name.starts_with(start)) {
        scale(weights, param.offset, param.len, factor);
    }
}

fn scale_matrices(weights: &mut [f32], factor: f32) {
    scale_named(weights, "w_", factor);
}

fn scale_v(weights: &mut [f32], factor: f32) {
    for row in weights[W_QKV.offset..W_QKV.offset + W_QKV.len].chunks_mut(QKV) {
        row[2 * D..].iter_mut().for_each(|w| *w *= factor);
    }
}

fn loud_v(weights: &mut [f32]) {
    scale_v(weights, 1e5);
}

/// A few of 768, in both LayerNorms.
fn loud_gamma(weights: &mut [f32]) {
    for (_, param, _) in PARAMS.iter().filter(|(name, ..)| name.starts_with("gamma")) {
        for index in [3, 100, 767] {
            weights[param.offset + index] *= 80.0;
        }
    }
}

/// LN1's result is below fp16's normal numbers, and what comes of it is not small.
fn quiet_norm(weights: &mut [f32]) {
    scale(weights, GAMMA1.offset, D, 1e-6);
    scale(weights, BETA1.offset, D, 0.0);
    scale_v(weights, 500.0);
    scale(weights, W_ATTN.offset, W_ATTN.len, 5000.0);
}

/// As fp16 these weights would be zero.
fn quiet_proj(weights: &mut [f32]) {
    scale(weights, W_PROJ.offset, W_PROJ.len, 5e-7);
    weights[B_FC.offset..][..B_FC.len].fill(6e4);
}

fn weights_of(kind: &Kind, seed: u64) -> Vec<f32> {
    let mut all = weights(seed);
    (kind.change)(&mut all);
    all
}

fn span(weights: &Memory) -> Span {
    Span::weights(weights.address()).expect("good weights")
}

fn tokens(x: &Memory, output: &Memory, batch: usize, seq_len: usize) -> Tokens {
    Tokens::new(x.address(), output.address(), batch as i32, seq_len as i32).expect("good arguments")
}

/// The bits of one call of its own.
fn call(arch: Arch, x: &[f32], weights: &Memory, precision: SolvePrecision) -> Vec<f32> {
    let (x_there, output) = (Memory::of(x), Memory::poisoned(x.len()));
    let call = tokens(&x_there, &output, 1, x.len() / D);
    solve_in_place(device(arch), &call, &span(weights), precision).expect("solve");
    output.check_guards();
    let got = output.read();
    assert!(x_there.read() == x, "x was changed");
    got
}

/// Of what the block adds to x, in the L2 norm.
fn relative_error(got: &[f32], wanted: &[f64], x: &[f32]) -> f64 {
    let pairs = || got.iter().zip(wanted).zip(x);
    let error: f64 = pairs().map(|((g, w), _)| (f64::from(*g) - w).powi(2)).sum();
    let size: f64 = pairs().map(|((_, w), x)| (w - f64::from(*x)).powi(2)).sum();
    if size > 0.0 { (error / size).sqrt() } else { error.sqrt() }
}

/// Orders of the features: as they come, from the last one, and every second one first. The block is the same, but adds up in that order.
const ORDERS: [fn(usize) -> usize; 3] = [|i| i, |i| D - 1 - i, |i| if i < D / 2 { 2 * i } else { 2 * i + 1 - D }];

/// The block in plain fp32, which is the CPU's, with its features in this order meanwhile.
fn reference_in_order(x: &[f32], weights: &[f32], batch: usize, causal: bool, order: fn(usize) -> usize) -> Vec<f32> {
    let columns = |from: &[f32]| -> Vec<f32> { from.chunks(D).flat_map(|row| (0..D).map(|i| row[order(i)])).collect() };
    let mut reordered = weights.to_vec();
    for (name, param, _) in PARAMS {
        let (from, to) = (&weights[param.offset..][..param.len], &mut reordered[param.offset..][..param.len]);
        match name {
            "b_qkv" | "b_fc" => {}
            "w_qkv" | "w_fc" => {
                let width = param.len / D;
                let rows = to.chunks_mut(width).enumerate();
                rows.for_each(|(i, row)| row.copy_from_slice(&from[order(i) * width..][..width]));
            }
            _ => to.copy_from_slice(&columns(from)),
        }
    }
    let got = reference(&columns(x), &reordered, batch, x.len() / D / batch, causal);
    let mut back = vec![0.0; got.len()];
    for (to, from) in back.chunks_mut(D).zip(got.chunks(D)) {
        from.iter().enumerate().for_each(|(i, value)| to[order(i)] = *value);
    }
    back
}

/// The contract of exact: at most three times the error of plain fp32, in the worst of several orders, because where an input magnifies rounding, what a
/// single one makes of it is a matter of luck.
fn check_exact(got: &[f32], x: &[f32], weights: &[f32], batch: usize, causal: bool, what: &str) {
    let rows = x.len() / batch;
    let wanted: Vec<f64> = x.chunks(rows).flat_map(|x| oracle::block(x, weights, causal)).collect();
    check_beside(got, &wanted, x, weights, batch, causal, what);
}

/// The same where the answer is known.
fn check_beside(got: &[f32], wanted: &[f64], x: &[f32], weights: &[f32], batch: usize, causal: bool, what: &str) {
    let error = relative_error(got, wanted, x);
    let mut fp32 = 0.0f64;
    for order in ORDERS {
        if error <= (3.0 * fp32).max(2e-5) {
            return;
        }
        fp32 = fp32.max(relative_error(&reference_in_order(x, weights, batch, causal, order), wanted, x));
    }
    assert!(error <= 3.0 * fp32, "{what}: {error:e} where fp32 has {fp32:e}");
}

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

/// Whether so many rows are computed by a chain of kernels in precision exact, and by another one in the place of fast ones.
fn in_chain(arch: Arch, rows: usize) -> bool {
    arch == Arch::Sm90a && rows >= *chain::rows(true).start()
}

/// Whether it is what exact has: to the bit, but not where a chain of kernels computes exact itself.
fn is_exact(arch: Arch, got: &[f32], exact: &[f32], x: &[f32]) -> bool {
    let chain = in_chain(arch, x.len() / D);
    let wanted: Vec<f64> = exact.iter().map(|&value| value.into()).collect();
    got == exact || (chain && relative_error(got, &wanted, x) <= 3e-4)
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

/// The result of the kernel that computes a call again, which in precision exact is not always the one.
fn computed_again(arch: Arch, x: &[f32], weights: &Memory) -> Vec<f32> {
    let (x_there, output, seq_len) = (Memory::of(x), Memory::poisoned(x.len()), x.len() / D);
    let (device, precision) = (device(arch), Exact);
    let workspace = device.run(|| Workspace::new(device, seq_len, Purpose::Stateless)).expect("a workspace");
    let shape = Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: false, rescued: true };
    let buffers = Buffers::new(x_there.at(), output.at(), weights.at(), &shape, workspace.parts());
    let steps = block::forward(device, shape, &buffers, true).expect("steps");
    // SAFETY: the buffers are as long as the shape says, and nothing else uses the workspace.
    device.run(|| unsafe { run_steps(&steps, Stream::LEGACY) }).expect("launch");
    output.check_guards();
    output.read()
}

/// One, a few, and the sizes of every family of fast kernels.
const SIZES: [usize; 6] = [1, 20, 40, 200, 300, 1024];

/// Fast and auto give the bits of who computes them again where they must, and their own where they may; finite everywhere.
pub fn rescue(arch: Arch) {
    for kind in KINDS.iter().chain(&QUIET) {
        let weights = Memory::of(&weights_of(kind, 82));
        for seq_len in SIZES {
            let x = Random::new(seq_len as u64).uniforms(seq_len * D);
            let [fast, exact, auto] = [Fast, Exact, Auto].map(|precision| call(arch, &x, &weights, precision));
            let again = computed_again(arch, &x, &weights);
            let what = format!("{}, seq_len {seq_len}", kind.name);
            assert!(fast.iter().all(|value| value.is_finite()), "fast is not finite: {what}");
            assert_eq!(fast == again, kind.fast, "fast was computed again: {what}");
            assert_eq!(auto == again, kind.auto, "auto was computed again: {what}");
            assert!(kind.auto || auto == fast, "auto has other bits than fast: {what}");
            assert!(is_exact(arch, &again, &exact, &x), "computed again it is not exact: {what}");
        }
    }
}

/// Calls in place, each shape plainly, as a graph, and with that pointed at other buffers.
pub fn rescue_in_place(arch: Arch) {
    for kind in [&KINDS[3], &KINDS[0]] {
        let weights = Memory::of(&weights_of(kind, 83));
        for seq_len in SIZES {
            let x = Random::new(seq_len as u64).uniforms(seq_len * D);
            let wanted = if kind.fast { computed_again(arch, &x, &weights) } else { call(arch, &x, &weights, Fast) };
            let buffers = [Memory::poisoned(x.len()), Memory::poisoned(x.len())];
            for time in 0..6 {
                let (there, elsewhere) = (&buffers[time % 2], &buffers[1 - time % 2]);
                there.write(&x);
                // Twice in place, then not, so that the graph loses and regains the copy of x.
                let output = if time % 3 == 2 { elsewhere } else { there };
                solve_in_place(device(arch), &tokens(there, output, 1, seq_len), &span(&weights), Fast).expect("solve");
                assert!(output.read() == wanted, "{}, seq_len {seq_len}, time {time}", kind.name);
            }
            buffers.iter().for_each(Memory::check_guards);
        }
    }
}

/// After a call that raised alarms nothing is left of them, whether it was computed again or not.
pub fn usual_after_unusual(arch: Arch) {
    let usual = Memory::of(&weights_of(&KINDS[0], 84));
    let unusual = KINDS[1..].iter().map(|kind| Memory::of(&weights_of(kind, 84)));
    for (seq_len, unusual) in [300, 1, 40, 1024, 20, 200].into_iter().zip(unusual) {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let before = call(arch, &x, &usual, Fast);
        for precision in [Fast, Auto, Exact] {
            call(arch, &x, &unusual, precision);
            assert!(call(arch, &x, &usual, Auto) == before, "{precision:?} left alarms behind at seq_len {seq_len}");
        }
    }
}

/// Calls one behind the other, none waited for, with usual and unusual weights in any order and buffers in turn: each is computed again or not by its own
/// weights, whatever the graph that it shares with those before and behind did for them.
pub fn in_any_order(arch: Arch) {
    const CALLS: usize = 60;
    let kinds = [&KINDS[0], &KINDS[1], &KINDS[3]];
    let weights = kinds.map(|kind| Memory::of(&weights_of(kind, 85)));
    let mut random = Random::new(85);
    // The few-token kernel behind others that have counted themselves.
    for seq_len in [40, 1, 200, 20, 300, 1024] {
        let x = [1, 2].map(|seed| Random::new(seed).uniforms(seq_len * D));
        // By what the weights ask for, which wakes nothing.
        let wanted = [0, 1, 2].map(|kind| {
            let weights = &weights[kind];
            x.each_ref()
                .map(|x| if kinds[kind].auto { computed_again(arch, x, weights) } else { call(arch, x, weights, Fast) })
        });
        let different = wanted.iter().flatten().map(|output| output.iter().map(|value| value.to_bits()).collect());
        assert_eq!(
            different.collect::<HashSet<Vec<u32>>>().len(),
            6,
            "seq_len {seq_len}: one output could stand for another"
        );
        let x = x.map(|x| Memory::of(&x));
        let outputs: Vec<Memory> = (0..CALLS).map(|_| Memory::poisoned(seq_len * D)).collect();
        let picks: Vec<(usize, usize)> = outputs
            .iter()
            .map(|_| ((random.uniform().abs() * 3.0) as usize % 3, usize::from(random.uniform() > 0.0)))
            .collect();
        for (output, &(kind, x_of)) in outputs.iter().zip(&picks) {
            let call = tokens(&x[x_of], output, 1, seq_len);
            solve_in_place(device(arch), &call, &span(&weights[kind]), Auto).expect("solve");
        }
        for (time, (output, &(kind, x_of))) in outputs.iter().zip(&picks).enumerate() {
            assert!(output.read() == wanted[kind][x_of], "call {time} of seq_len {seq_len}, weights {kind}, x {x_of}");
        }
    }
}

/// Weights of which some are far from others, so that one scale would not do for both.
const UNEVEN: [(&str, Change); 3] = [
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
];

/// Exact gives each its own scale, and the rows behind the last one have no say in that.
pub fn exact_on_uneven_weights(arch: Arch) {
    for (kind, change) in UNEVEN {
        let mut host_weights = weights(88);
        change(&mut host_weights);
        let weights = Memory::of(&host_weights);
        let [exact, auto] = [Exact, Auto].map(|precision| prepared(arch, &weights, precision, false, 300));
        for seq_len in [8, 40, 65, 200, 300] {
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

/// Attention moves all of a row by the same, up to 1500 times as far as x spreads, and LN2 takes it away again. So far that a handle's LN2, which is in the
/// weights behind it, would lose what x1 spreads; and just so far that it need not be computed again.
pub fn shifted_rows(arch: Arch) {
    let alike: Change = |w| w[W_ATTN.offset..][..W_ATTN.len].fill(0.02);
    let a_row: Change = |w| w[W_ATTN.offset + 5 * D..][..D].fill(0.02);
    let hardly: Change = |w| w[W_ATTN.offset..][..W_ATTN.len].iter_mut().for_each(|w| *w += 0.0027);
    let folds = arch == Arch::Sm90a;
    for (kind, change, again) in [
        ("W_attn all alike", alike, folds),
        ("a row of W_attn alike", a_row, folds),
        ("a mean of W_attn", hardly, false),
    ] {
        let mut host_weights = weights(89);
        change(&mut host_weights);
        host_weights[B_QKV.offset + 2 * D..][..D].fill(0.1);
        let weights = Memory::of(&host_weights);
        let [fast, exact, auto] = [Fast, Exact, Auto].map(|precision| prepared(arch, &weights, precision, false, 700));
        for (spread, seq_len) in
            [0.1, 0.001].into_iter().flat_map(|spread| [30, 60, 130, 700].map(|rows| (spread, rows)))
        {
            let x: Vec<f32> = Random::new(89).uniforms(seq_len * D).iter().map(|value| spread * value).collect();
            let wanted: Vec<f32> = oracle::block(&x, &host_weights, false).iter().map(|&value| value as f32).collect();
            let handles = [&fast, &auto].map(|handle| forward(handle, &x, 1));
            for (what, got) in [
                ("solve()", &call(arch, &x, &weights, Fast)),
                ("a handle in fast", &handles[0]),
                ("a handle in auto", &handles[1]),
            ] {
                let error = worst(got, &wanted, 1e-3, 1e-3);
                assert!(error <= 1.0, "{kind}: {what}, x within {spread}, seq_len {seq_len}: {error}");
            }
            let exact = forward(&exact, &x, 1);
            for got in handles {
                let right = if again { is_exact(arch, &got, &exact, &x) } else { got != exact };
                assert!(right, "{kind}: computed again or not, x within {spread}, seq_len {seq_len}");
            }
        }
    }
}

/// A graph begins with its exact kernel asleep, also in the place of one that was forgotten with its own awake.
pub fn forgotten_graphs(arch: Arch) {
    // A device of its own: its few-token kernel counts launches from the first on.
    let device = Box::leak(Box::new(Device::open(0, Some(arch)).expect("the device")));
    let weights = Memory::of(&weights_of(&KINDS[1], 86));
    // Sixteen graphs are kept, so the first one's place is the last one's.
    for seq_len in [512, 512].into_iter().chain(33..48).chain([4; 4]) {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let (input, output) = (Memory::of(&x), Memory::poisoned(x.len()));
        solve_in_place(device, &tokens(&input, &output, 1, seq_len), &span(&weights), Auto).expect("solve");
        assert!(output.read() == computed_again(arch, &x, &weights), "seq_len {seq_len} was not computed again");
    }
}

/// The device and the host decide alike, whatever the alarms tell.
pub fn one_rule(arch: Arch) {
    let weights = Memory::of(&weights_of(&KINDS[0], 93));
    let (x, output) = (Memory::of(&Random::new(93).uniforms(D)), Memory::poisoned(D));
    let (alarms, untouched) = (Memory::of(&[0.0; ALARMS_BYTES / 4]), output.read()[0].to_bits());
    let device = device(arch);
    let workspace = device.run(|| Workspace::new(device, 1, Purpose::Stateless)).expect("a workspace");
    let parts = Parts { alarms: alarms.at(), ..workspace.parts() };
    let mut random = Random::new(93);
    let mut times = [[0; 2]; 2];
    for time in 0..400 {
        // Few or many of them, from the usual to what fp16 does not hold.
        let share = if time % 2 == 0 { 0.15 } else { 0.6 };
        let words: [u32; ALARMS] = std::array::from_fn(|alarm| {
            let [raised, size] = [(); 2].map(|()| random.uniform().abs());
            match alarm {
                _ if raised > share => 0,
                TINY => 1 << (size * 13.0) as u32,
                _ if size > 0.98 => f32::NAN.to_bits() & 0x7fff_ffff,
                _ => (0.15 * 10f32.powf(6.0 * size)).to_bits(),
            }
        });
        for (index, precision) in [Fast, Auto].into_iter().enumerate() {
            alarms.write(&words.map(f32::from_bits));
            let shape = Shape {
                batch: 1,
                seq_len: 1,
                causal: false,
                prepared: false,
                precision,
                guarded: true,
                rescued: false,
            };
            output.write(&[f32::from_bits(untouched); D]);
            let buffers = Buffers::new(x.at(), output.at(), weights.at(), &shape, parts);
            let step = device.kernels.exact().forward(device.sms, shape, &buffers, Behind::Anything);
            // SAFETY: the buffers are as long as the shape says, and nothing else uses the workspace.
            device.run(|| unsafe { run_steps(&[step], Stream::LEGACY) }).expect("launch");
            let computed = output.read()[0].to_bits() != untouched;
            assert_eq!(computed, must_rescue(&words, precision), "{precision:?}: {words:x?}");
            times[index][usize::from(computed)] += 1;
        }
    }
    assert!(times.iter().flatten().all(|&count| count > 10), "each answer was to come: {times:?}");
}

/// One unusual number is seen wherever it is, whichever kernel reads it, at every size.
pub fn every_alarm(arch: Arch) {
    let host_weights = weights_of(&KINDS[0], 90);
    let weights = Memory::of(&host_weights);
    // The biases of the residual branches reach no product.
    let watched = PARAMS.iter().filter(|(name, ..)| !["b_attn", "b_proj"].contains(name));
    let mut random = Random::new(90);
    // More: where QKV and attention with its projection share the cast of W_proj, and where attention's own blocks cast, by clusters and by blocks of 128 rows.
    for seq_len in SIZES.into_iter().chain([100, 700, 1200]) {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let usual = call(arch, &x, &weights, Auto);
        for (name, param, _) in watched.clone() {
            let anywhere = (param.len as f32 * (0.5 + 0.499 * random.uniform())) as usize;
            for index in [0, anywhere, param.len - 1].map(|index| param.offset + index) {
                weights.write_at(index, if name.starts_with("gamma") { 2.0 } else { -0.5 });
                let seen = call(arch, &x, &weights, Auto) == computed_again(arch, &x, &weights);
                assert!(seen, "number {index}, in {name}, went unseen at seq_len {seq_len}");
                weights.write_at(index, host_weights[index]);
            }
        }
        assert!(call(arch, &x, &weights, Auto) == usual, "seq_len {seq_len}");
    }
}

fn prepared(arch: Arch, weights: &Memory, precision: SolvePrecision, causal: bool, max_tokens: usize) -> Prepared {
    let options = BlockOptions { causal, max_tokens, precision, ..BlockOptions::default() };
    Prepared::on(device(arch), &span(weights), options).expect("create")
}

fn forward(block: &Prepared, x: &[f32], batch: usize) -> Vec<f32> {
    let (x_there, output) = (Memory::of(x), Memory::poisoned(x.len()));
    let seq_len = x.len() / D / batch;
    block.forward(&tokens(&x_there, &output, batch, seq_len), Stream::LEGACY).expect("forward");
    output.check_guards();
    let got = output.read();
    block.forward(&tokens(&x_there, &x_there, batch, seq_len), Stream::LEGACY).expect("in place");
    assert!(x_there.read() == got, "other bits in place: {batch} sequences of {seq_len}");
    got
}

/// The handle in every precision, causal or not, on several sequences.
pub fn blocks(arch: Arch) {
    // Launches for so many rows with weights as usual, which come first.
    let mut bare = HashMap::new();
    for (index, kind) in KINDS.iter().enumerate() {
        let (host_weights, causal) = (weights_of(kind, 85), index % 2 == 0);
        let weights = Memory::of(&host_weights);
        let [fast, exact, auto] = [Fast, Exact, Auto].map(|precision| prepared(arch, &weights, precision, causal, 400));
        for (batch, seq_len) in [(1, 1), (3, 7), (17, 1), (3, 16), (1, 64), (3, 50), (2, 200)] {
            let x = Random::new((batch * seq_len) as u64).uniforms(batch * seq_len * D);
            let what = format!("{}, causal {causal}, {batch} sequences of {seq_len}", kind.name);
            let wanted = forward(&exact, &x, batch);
            check_exact(&wanted, &x, &host_weights, batch, causal, &what);
            let [fast, auto] = [&fast, &auto].map(|block| forward(block, &x, batch));
            assert!(fast.iter().all(|value| value.is_finite()), "fast is not finite: {what}");
            assert!(!kind.auto || is_exact(arch, &auto, &wanted, &x), "auto was not computed again: {what}");
            assert_eq!(auto == fast, kind.fast || !kind.auto, "one of auto and fast was computed again: {what}");
            assert!(kind.fast || fast != wanted, "fast was computed again: {what}");
        }
        // The host knows by now: either the fast kernels run or the exact one.
        for rows in [1, 200, 400] {
            let launches = [&fast, &exact, &auto].map(|block| block.launches(1, rows).expect("launches"));
            let bare = *bare.entry(rows).or_insert(launches[0]);
            let chain = in_chain(arch, rows);
            let of = |rescued| if rescued { 1 } else { bare };
            assert_eq!(
                launches,
                [of(kind.fast), if chain { 7 } else { 1 }, of(kind.auto)],
                "{}, {rows} rows",
                kind.name
            );
        }
        // What a block of few rows does without is not missed.
        let small = [Fast, Exact, Auto].map(|precision| prepared(arch, &weights, precision, causal, 20));
        let x = Random::new(85).uniforms(20 * D);
        for (small, large) in small.iter().zip([&fast, &exact, &auto]) {
            assert!(forward(small, &x, 2) == forward(large, &x, 2), "{} with max_tokens 20", kind.name);
        }
    }
}

/// The handle's weights are seen by other eyes, and to the same effect.
pub fn quiet_blocks(arch: Arch) {
    let usual = Memory::of(&weights_of(&KINDS[0], 96));
    let rows = 40;
    let bare = prepared(arch, &usual, Fast, false, rows).launches(1, rows).expect("launches");
    assert!(bare > 1, "else it would be like one that is computed again");
    for kind in &QUIET {
        let host_weights = weights_of(kind, 96);
        let weights = Memory::of(&host_weights);
        let x = Random::new(96).uniforms(rows * D);
        for (precision, rescued) in [(Fast, kind.fast), (Auto, kind.auto)] {
            let block = prepared(arch, &weights, precision, false, rows);
            let output = forward(&block, &x, 1);
            let launches = block.launches(1, rows).expect("launches");
            assert_eq!(launches, if rescued { 1 } else { bare }, "{}, {precision:?}", kind.name);
            if rescued {
                check_exact(&output, &x, &host_weights, 1, false, kind.name);
            }
        }
    }
}

/// A block's weights become unusual and usual again.
pub fn update(arch: Arch) {
    let usual = Memory::of(&weights_of(&KINDS[0], 86));
    let unusual = Memory::of(&weights_of(&KINDS[3], 87));
    let x = Random::new(86).uniforms(150 * D);
    for precision in [Fast, Exact, Auto] {
        let block = prepared(arch, &usual, precision, false, 150);
        let before = forward(&block, &x, 1);
        let wanted = forward(&prepared(arch, &unusual, precision, false, 150), &x, 1);
        for _ in 0..2 {
            block.update(&span(&unusual), Stream::LEGACY).expect("update");
            assert!(forward(&block, &x, 1) == wanted, "{precision:?} with unusual weights");
            assert!(forward(&block, &x, 1) == wanted, "{precision:?} with unusual weights again");
            block.update(&span(&usual), Stream::LEGACY).expect("update");
            assert!(forward(&block, &x, 1) == before, "{precision:?} with usual weights again");
        }
    }
}

/// The same without ever waiting, so that the host does not know which weights a call will find.
pub fn update_at_once(arch: Arch) {
    let kinds = [&KINDS[0], &KINDS[3]].map(|kind| Memory::of(&weights_of(kind, 91)));
    for rows in [20, 150, 600] {
        let x = Random::new(91).uniforms(rows * D);
        for precision in [Fast, Auto] {
            let wanted =
                kinds.each_ref().map(|weights| forward(&prepared(arch, weights, precision, false, rows), &x, 1));
            let block = prepared(arch, &kinds[0], precision, false, rows);
            let x_there = Memory::of(&x);
            let pairs: Vec<_> = (0..12).map(|_| (Memory::poisoned(x.len()), Memory::of(&x))).collect();
            for (time, (output, in_place)) in pairs.iter().enumerate() {
                // Twice each, so that the second of a kind may find that the host knows.
                if time.is_multiple_of(2) {
                    block.update(&span(&kinds[time / 2 % 2]), Stream::LEGACY).expect("update");
                }
                block.forward(&tokens(&x_there, output, 1, rows), Stream::LEGACY).expect("forward");
                block.forward(&tokens(in_place, in_place, 1, rows), Stream::LEGACY).expect("in place");
            }
            for (time, (output, in_place)) in pairs.iter().enumerate() {
                let wanted = &wanted[time / 2 % 2];
                let right = output.read() == *wanted && in_place.read() == *wanted;
                assert!(right, "call {time} on {rows} rows in {precision:?}");
            }
        }
    }
}

/// Forwards and updates in the caller's own graphs: what the host knew when they were captured need not hold when they run.
pub fn update_in_graphs(arch: Arch) {
    const ROWS: usize = 150;
    let kinds = [&KINDS[0], &KINDS[3]].map(|kind| Memory::of(&weights_of(kind, 92)));
    let x = Random::new(92).uniforms(ROWS * D);
    let wanted = kinds.each_ref().map(|weights| forward(&prepared(arch, weights, Fast, false, ROWS), &x, 1));
    let block = prepared(arch, &kinds[0], Fast, false, ROWS);
    let bare = block.launches(1, ROWS).expect("launches");
    let (x_there, output, own) = (Memory::of(&x), Memory::poisoned(x.len()), OwnStream::new());
    let stream = Stream::from_address(own.0.addr());
    let forward_there = || block.forward(&tokens(&x_there, &output, 1, ROWS), stream).expect("forward");
    let captured = Captured::new(&own, forward_there);
    for index in [1, 0, 1] {
        block.update(&span(&kinds[index]), stream).expect("update");
        captured.launch(&own);
        assert!(
            output.read() == wanted[index],
            "a captured forward on {}",
            ["usual weights", "unusual weights"][index]
        );
    }
    let unusual = Captured::new(&own, || block.update(&span(&kinds[1]), stream).expect("update"));
    block.update(&span(&kinds[0]), stream).expect("update");
    forward_there();
    assert!(output.read() == wanted[0], "after an update that was only captured");
    assert_eq!(block.launches(1, ROWS).expect("launches"), bare + 1, "the captured update may come at any time");
    unusual.launch(&own);
    forward_there();
    assert!(output.read() == wanted[1], "after a captured update");
}

/// Blocks of all sizes and solve(), in threads and streams of their own: grids whose blocks wait for each other, of which the GPU holds few at a time.
pub fn at_the_same_time(arch: Arch) {
    const CALLS: usize = 20;
    for kind in [&KINDS[0], &KINDS[3]] {
        let weights = Memory::of(&weights_of(kind, 88));
        let sizes = [16, 40, 64, 100, 200, 400, 1000, 100];
        let precisions = if kind.fast { [Fast, Exact, Auto] } else { [Fast; 3] };
        let calls: Vec<_> = sizes
            .into_iter()
            .zip(precisions.into_iter().cycle())
            .map(|(rows, precision)| {
                let x = Random::new(rows as u64).uniforms(rows * D);
                let block = prepared(arch, &weights, precision, false, rows);
                let wanted = [forward(&block, &x, 1), call(arch, &x, &weights, precision)];
                (x, precision, block, wanted)
            })
            .collect();
        thread::scope(|scope| {
            let weights = &weights;
            for (x, precision, block, [wanted, wanted_of_solve]) in &calls {
                let rows = x.len() / D;
                scope.spawn(move || {
                    enter(0);
                    let (stream, x_there) = (OwnStream::new(), Memory::of(x));
                    let outputs: Vec<Memory> = (0..CALLS).map(|_| Memory::poisoned(x.len())).collect();
                    for output in &outputs {
                        let stream = Stream::from_address(stream.0.addr());
                        block.forward(&tokens(&x_there, output, 1, rows), stream).expect("forward");
                    }
                    let right = outputs.iter().all(|output| output.read() == *wanted);
                    assert!(right, "{rows} rows in {precision:?} beside others");
                });
                if rows.is_multiple_of(100) {
                    scope.spawn(move || {
                        enter(0);
                        for _ in 0..CALLS {
                            let right = call(arch, x, weights, *precision) == *wanted_of_solve;
                            assert!(right, "solve() of {rows} rows in {precision:?} beside others");
                        }
                    });
                }
            }
        });
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
