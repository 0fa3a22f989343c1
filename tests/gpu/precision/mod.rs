//! Fast, exact and auto on weights as usual and on others: exact against float64, the others against exact where it must have taken their place, and that
//! it leaves no trace. The expectations of who is taken over are the rules of cuda/exact/exact.cuh.

mod exact;
mod prepared;
mod rescue;

use solve::cuda::arch::Arch;
use solve::cuda::block::{self, Buffers, Shape};
use solve::cuda::device::Device;
use solve::cuda::exact::chain;
use solve::cuda::graph::run_steps;
use solve::cuda::hopper::plan;
use solve::cuda::prepared::Prepared;
use solve::cuda::solve::solve_in_place;
use solve::cuda::workspace::{Purpose, Workspace};
use solve::dims::{D, QKV};
use solve::options::{BlockOptions, Stream};
use solve::precision::SolvePrecision::{self, Exact};
use solve::span::{Span, Tokens};
use solve::weights::{B_FC, BETA1, GAMMA1, PARAMS, W_ATTN, W_FC, W_PROJ, W_QKV};

use crate::common::{reference, weights};
use crate::oracle;
use crate::rig::{Memory, device};

pub use exact::*;
pub use prepared::*;
pub use rescue::*;

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

/// Whether so many rows are computed by a chain of kernels in precision exact, and by another one in the place of fast ones.
fn in_chain(arch: Arch, rows: usize) -> bool {
    arch == Arch::Sm90a && rows >= *chain::rows(true).start()
}

/// Whether it is what exact has: to the bit, but not where exact itself is computed by others, a chain of kernels or the one in fp32.
fn is_exact(arch: Arch, got: &[f32], exact: &[f32], x: &[f32]) -> bool {
    let rows = x.len() / D;
    let others = in_chain(arch, rows) || in_fp32(arch, rows, Exact);
    let wanted: Vec<f64> = exact.iter().map(|&value| value.into()).collect();
    got == exact || (others && relative_error(got, &wanted, x) <= 3e-4)
}

/// Whether `solve` computes so many rows in fp32 in this precision, and nobody computes them again.
fn in_fp32(arch: Arch, seq_len: usize, precision: SolvePrecision) -> bool {
    let shape = Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: false, rescued: false };
    arch == Arch::Sm90a && plan::in_fp32(&shape)
}

/// The result of the kernel that computes a call again, which in precision exact is not always the one.
fn computed_again(arch: Arch, x: &[f32], weights: &Memory) -> Vec<f32> {
    computed_again_on(device(arch), x, weights)
}

fn computed_again_on(device: &'static Device, x: &[f32], weights: &Memory) -> Vec<f32> {
    let (x_there, output, seq_len) = (Memory::of(x), Memory::poisoned(x.len()), x.len() / D);
    let precision = Exact;
    let workspace = device.run(|| Workspace::new(device, seq_len, Purpose::Stateless)).expect("a workspace");
    let shape = Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: false, rescued: true };
    let buffers = Buffers::new(x_there.at(), output.at(), weights.at(), &shape, workspace.parts());
    let steps = block::forward(device, shape, &buffers, true).expect("steps");
    // SAFETY: the buffers are as long as the shape says, and nothing else uses the workspace.
    device.run(|| unsafe { run_steps(&steps, Stream::LEGACY) }).expect("launch");
    output.check_guards();
    output.read()
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
