//! The whole block on every path against the CPU backend: sizes, batches, causal, bits, what is left untouched.

use std::ops::Range;

use solve::cuda::arch::Arch;
use solve::cuda::prepared::Prepared;
use solve::cuda::solve::{solve_from_host, solve_in_place};
use solve::dims::D;
use solve::options::{BlockOptions, Stream};
use solve::precision::SolvePrecision::{Exact, Fast};
use solve::span::{Span, Tokens};
use solve::weights::{W_QKV, WEIGHTS_LEN};

use super::common::{Random, check_block, reference, weights, worst};
use super::rig::{Kind, Memory, device, smaller_device};

/// The challenge's sizes and the edges of the tiles.
const SIZES: [usize; 24] =
    [1, 2, 4, 16, 17, 30, 63, 64, 65, 100, 128, 129, 256, 300, 515, 700, 800, 1024, 1100, 1200, 1450, 1545, 2060, 2850];

fn tokens(x: &Memory, output: &Memory, batch: usize, seq_len: usize) -> Tokens {
    Tokens::new(x.address(), output.address(), batch as i32, seq_len as i32).expect("good arguments")
}

fn weight_span(weights: &Memory) -> Span {
    Span::weights(weights.address()).expect("good weights")
}

pub fn sizes(arch: Arch) {
    let host_weights = weights(10);
    let weights = Memory::of(&host_weights);
    for seq_len in SIZES {
        let host_x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let (x, output) = (Memory::of(&host_x), Memory::poisoned(seq_len * D));
        let call = tokens(&x, &output, 1, seq_len);
        solve_in_place(device(arch), &call, &weight_span(&weights), Fast).expect("solve");
        let got = output.read();
        let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
        check_block(&got, &wanted, &format!("seq_len {seq_len}"));
        output.check_guards();
        assert!(x.read() == host_x, "x was changed at seq_len {seq_len}");

        // Plainly the first time, then recorded as a graph, then re-pointed, then as it is.
        for time in 2..=4 {
            let again = Memory::poisoned(seq_len * D);
            solve_in_place(device(arch), &tokens(&x, &again, 1, seq_len), &weight_span(&weights), Fast).expect("solve");
            assert!(again.read() == got, "other bits the time {time} at seq_len {seq_len}");
        }
        solve_in_place(device(arch), &tokens(&x, &x, 1, seq_len), &weight_span(&weights), Fast).expect("solve");
        assert!(x.read() == got, "other bits in place at seq_len {seq_len}");
    }
    assert!(weights.read() == host_weights, "the weights were changed");
}

/// All of the library as on a GPU of fewer multiprocessors, or on a part of one (MIG): `solve()` and handles, fast and exact. In the few-token kernel a block
/// has several slices of a matrix then.
pub fn fewer_multiprocessors(arch: Arch) {
    let host_weights = weights(18);
    let weights = Memory::of(&host_weights);
    let shapes = [
        (1, 1),
        (7, 1),
        (1, 5),
        (1, 12),
        (2, 8),
        (1, 16),
        (1, 20),
        (4, 8),
        (24, 1),
        (50, 1),
        (1, 40),
        (1, 200),
        (1, 1100),
    ];
    let cases = shapes.map(|(batch, seq_len)| {
        let host_x = Random::new(seq_len as u64).uniforms(batch * seq_len * D);
        let wanted = reference(&host_x, &host_weights, batch, seq_len, false);
        (batch, seq_len, Memory::of(&host_x), wanted)
    });
    for sms in [78, 60, 16] {
        let device = smaller_device(arch, sms);
        for precision in [Fast, Exact] {
            let options = BlockOptions { max_tokens: 1100, precision, ..BlockOptions::default() };
            let block = Prepared::on(device, &weight_span(&weights), options).expect("create");
            for (batch, seq_len, x, wanted) in &cases {
                let what = format!("{precision:?}, {batch} sequences of {seq_len} on {sms} multiprocessors");
                // Plainly, then as a graph, then as the same one.
                for time in 0..3 {
                    let output = Memory::poisoned(wanted.len());
                    block.forward(&tokens(x, &output, *batch, *seq_len), Stream::LEGACY).expect("forward");
                    check_block(&output.read(), wanted, &format!("a handle, {what}, time {time}"));
                    output.check_guards();
                }
                for time in 0..if *batch == 1 { 3 } else { 0 } {
                    let output = Memory::poisoned(wanted.len());
                    let call = tokens(x, &output, 1, *seq_len);
                    solve_in_place(device, &call, &weight_span(&weights), precision).expect("solve");
                    check_block(&output.read(), wanted, &format!("solve(), {what}, time {time}"));
                    output.check_guards();
                }
            }
        }
    }
}

/// x = 0, and rows that are all the same number: the variance is zero.
pub fn flat_rows(arch: Arch) {
    let host_weights = weights(11);
    let weights = Memory::of(&host_weights);
    for value in [0.0, 3.0] {
        let host_x = vec![value; 4 * D];
        let (x, output) = (Memory::of(&host_x), Memory::poisoned(4 * D));
        solve_in_place(device(arch), &tokens(&x, &output, 1, 4), &weight_span(&weights), Fast).expect("solve");
        check_block(&output.read(), &reference(&host_x, &host_weights, 1, 4, false), &format!("x = {value}"));
    }
}

/// Every 4-byte alignment of each buffer, in place and not, in fast and exact; lengths of different kernels.
pub fn misaligned(arch: Arch) {
    let host_weights = weights(12);
    for seq_len in [1, 6, 13, 29, 37] {
        let host_x = Random::new(12).uniforms(seq_len * D);
        let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
        for (x_off, output_off, weights_off) in [(4, 0, 0), (0, 8, 0), (0, 0, 12), (12, 4, 8), (8, 8, 4)] {
            let weights = Memory::new(Kind::Device, WEIGHTS_LEN, weights_off).with(&host_weights);
            for precision in [Fast, Exact] {
                let x = Memory::new(Kind::Device, seq_len * D, x_off).with(&host_x);
                let output = Memory::new(Kind::Device, seq_len * D, output_off);
                let what = format!("{precision:?}, {seq_len} tokens, offsets {x_off}, {output_off}, {weights_off}");
                let solve = |to| {
                    let tokens = tokens(&x, to, 1, seq_len);
                    solve_in_place(device(arch), &tokens, &weight_span(&weights), precision).expect(&what);
                };
                solve(&output);
                check_block(&output.read(), &wanted, &what);
                output.check_guards();
                solve(&x);
                check_block(&x.read(), &wanted, &what);
                x.check_guards();
            }
        }
    }
}

pub fn from_host(arch: Arch) {
    let (seq_len, host_weights) = (70, weights(13));
    let host_x = Random::new(13).uniforms(seq_len * D);
    let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
    let mut output = vec![f32::NAN; seq_len * D];
    let call = Tokens::new(host_x.as_ptr().addr(), output.as_mut_ptr().expose_provenance(), 1, seq_len as i32);
    let span = Span::weights(host_weights.as_ptr().expose_provenance()).expect("weights");
    solve_from_host(device(arch), &call.expect("tokens"), &span, Fast).expect("solve");
    check_block(&output, &wanted, "host memory");
}

/// Batches, causal or not, through a prepared block, whose rows must not see other sequences.
pub fn prepared(arch: Arch) {
    let host_weights = weights(14);
    let weights = Memory::of(&host_weights);
    for causal in [false, true] {
        let options = BlockOptions { causal, max_tokens: 3000, ..BlockOptions::default() };
        let block = Prepared::on(device(arch), &weight_span(&weights), options).expect("create");
        for (batch, seq_len) in [
            (1, 1),
            (5, 1),
            (8, 1),
            (9, 1),
            (20, 1),
            (40, 1),
            (64, 1),
            (65, 1),
            (300, 1),
            (1500, 1),
            (1, 65),
            (3, 33),
            (33, 2),
            (100, 3),
            (37, 5),
            (30, 16),
            (8, 17),
            (20, 32),
            (2, 128),
            (7, 130),
            (12, 130),
            (1, 1024),
            (3, 733),
        ] {
            let host_x = Random::new((batch * seq_len) as u64).uniforms(batch * seq_len * D);
            let (x, output) = (Memory::of(&host_x), Memory::poisoned(host_x.len()));
            block.forward(&tokens(&x, &output, batch, seq_len), Stream::LEGACY).expect("forward");
            let wanted = reference(&host_x, &host_weights, batch, seq_len, causal);
            check_block(&output.read(), &wanted, &format!("causal {causal}, {batch} sequences of {seq_len}"));
            output.check_guards();
        }
    }
}

/// Batches of single tokens in turn, none waited for, each with rows of its own: a call sees nothing of those before, which had more rows or fewer. Plainly,
/// then as graphs or launches that begin early, then in place.
pub fn single_tokens(arch: Arch) {
    let host_weights = weights(19);
    let weights = Memory::of(&host_weights);
    let options = BlockOptions { max_tokens: 200, ..BlockOptions::default() };
    let block = Prepared::on(device(arch), &weight_span(&weights), options).expect("create");
    let calls: Vec<_> = [64, 40, 64, 33, 20, 64, 100, 50, 3, 64, 16, 48]
        .into_iter()
        .enumerate()
        .map(|(number, batch)| {
            let host_x = Random::new(190 + number as u64).uniforms(batch * D);
            let wanted = reference(&host_x, &host_weights, batch, 1, false);
            (batch, Memory::of(&host_x), wanted)
        })
        .collect();
    for time in 0..4 {
        let outputs: Vec<_> = calls.iter().map(|(batch, ..)| Memory::poisoned(batch * D)).collect();
        for ((batch, x, _), output) in calls.iter().zip(&outputs) {
            block.forward(&tokens(x, output, *batch, 1), Stream::LEGACY).expect("forward");
        }
        for ((batch, _, wanted), output) in calls.iter().zip(&outputs) {
            check_block(&output.read(), wanted, &format!("{batch} single tokens, time {time}"));
            output.check_guards();
        }
    }
    for (batch, x, _) in &calls {
        block.forward(&tokens(x, x, *batch, 1), Stream::LEGACY).expect("forward in place");
    }
    for (batch, x, wanted) in &calls {
        check_block(&x.read(), wanted, &format!("{batch} single tokens in place"));
    }
}

/// The forms of attention that know how long keys are (cuda/attention/lengths_sm90a.cuh), and others
const LONG: [(usize, bool); 12] = [
    (130, false),
    (400, true),
    (700, false),
    (800, false),
    (1000, false),
    (1025, false),
    (1029, true),
    (1100, true),
    (1300, false),
    (1450, false),
    (2050, false),
    (2300, false),
];

/// One token's keys so long that attention may not take scores for small, in the first tile of keys, the last one, or between: then p would pass the
/// largest half.
pub fn long_keys(arch: Arch) {
    long(arch, D..2 * D, 0.3, |seq_len| vec![2, seq_len / 2, seq_len - 3]);
}

/// One token's query so long: the other warps of its warpgroup see small scores only.
pub fn long_query(arch: Arch) {
    long(arch, 0..D, 0.6, |seq_len| vec![seq_len / 2]);
}

/// One token's q or k, which lie in these `columns`, is longer than all others.
fn long(arch: Arch, columns: Range<usize>, weight: f32, places: impl Fn(usize) -> Vec<usize>) {
    let mut host_weights = weights(16);
    let (first, mut signs) = (&mut host_weights[W_QKV.offset..][columns], Random::new(16));
    first.iter_mut().for_each(|w| *w = weight * signs.uniform().signum());
    let weights = Memory::of(&host_weights);
    for (seq_len, causal) in LONG {
        let options = BlockOptions { causal, precision: Fast, max_tokens: seq_len, ..BlockOptions::default() };
        let block = Prepared::on(device(arch), &weight_span(&weights), options).expect("create");
        for place in places(seq_len) {
            let mut host_x = Random::new((seq_len + place) as u64).uniforms(seq_len * D);
            host_x[place * D] = 50.0;
            let wanted = reference(&host_x, &host_weights, 1, seq_len, causal);
            let (x, output) = (Memory::of(&host_x), Memory::poisoned(host_x.len()));
            let call = tokens(&x, &output, 1, seq_len);
            let check = |what: &str| {
                let worst = worst(&output.read(), &wanted, 1e-2, 1e-2);
                assert!(worst <= 1.0, "{what}, token {place} of {seq_len}: {worst} times 1e-2");
            };
            block.forward(&call, Stream::LEGACY).expect("forward");
            check("prepared");
            if !causal {
                solve_in_place(device(arch), &call, &weight_span(&weights), Fast).expect("solve");
                check("solve");
            }
        }
    }
}

/// Seq_len far past every tile, for which the CPU is too slow: the same tokens over and over have the same result as once.
pub fn long_sequence(arch: Arch) {
    const PERIOD: usize = 64;
    const SEQ_LEN: usize = 131_072;
    let host_weights = weights(15);
    let weights = Memory::of(&host_weights);
    let period = Random::new(15).uniforms(PERIOD * D);
    let x = Memory::of(&period.repeat(SEQ_LEN / PERIOD));
    solve_in_place(device(arch), &tokens(&x, &x, 1, SEQ_LEN), &weight_span(&weights), Fast).expect("solve");
    let got = x.read();
    let wanted = reference(&period, &host_weights, 1, PERIOD, false);
    for (index, rows) in got.chunks(PERIOD * D).enumerate() {
        check_block(rows, &wanted, &format!("repetition {index} of {PERIOD} tokens"));
    }
}
