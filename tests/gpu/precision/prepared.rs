//! Handles in every precision, as their weights change, and beside each other.

use std::collections::HashMap;
use std::thread;

use solve::cuda::arch::Arch;
use solve::dims::{D, QKV};
use solve::options::Stream;
use solve::precision::SolvePrecision::{self, Auto, Exact, Fast};
use solve::weights::{B_QKV, Param, W_ATTN, W_PROJ, W_QKV};

use super::{
    Change, KINDS, Kind, QUIET, call, check_exact, forward, in_chain, is_exact, prepared, relative_error, span, tokens,
    weights_of,
};
use crate::common::{Random, weights, worst};
use crate::oracle;
use crate::rig::{Captured, Memory, OwnStream, enter, rounded};

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

/// Up to eight rows a Hopper GPU hardly loses anything of what LayerNorms give. Weights are such that it would be one of two errors of the same size: beside
/// the hidden layer's, or beside the merged matrix's of single tokens.
pub fn few_rows(arch: Arch) {
    let x = Random::new(97).uniforms(9 * D);
    let without = |param: Param| {
        let mut all = rounded(&weights(97));
        all[param.offset..][..param.len].fill(0.0);
        all
    };
    let share = |what, error: &dyn Fn(usize) -> f64| {
        let share = error(8) / error(9);
        assert!((0.6..0.8).contains(&share), "{what}: of eight rows {share} times the error of nine");
    };
    let host_weights = without(W_ATTN);
    let (weights, wanted) = (Memory::of(&host_weights), |rows| oracle::block(&x[..rows * D], &host_weights, false));
    let handle = prepared(arch, &weights, Fast, false, 9);
    let error = |got: Vec<f32>| relative_error(&got, &wanted(got.len() / D), &x);
    share("LN2 of solve()", &|rows| error(call(arch, &x[..rows * D], &weights, Fast)));
    share("LN2 of a handle", &|rows| error(forward(&handle, &x[..rows * D], 1)));

    let host_weights = without(W_PROJ);
    let handle = prepared(arch, &Memory::of(&host_weights), Fast, false, 9);
    let wanted: Vec<f64> = x.chunks(D).flat_map(|token| oracle::block(token, &host_weights, false)).collect();
    share("LN1 of single tokens", &|rows| relative_error(&forward(&handle, &x[..rows * D], rows), &wanted, &x));
}

/// Of sequences of one token a handle on Hopper multiplies by the product of V's weights and the attention projection's, which is beyond fp16 here while the
/// two matrices are not, and what they make of LN1 fits as well.
pub fn large_product(arch: Arch) {
    const TOKENS: usize = 64;
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let mut host_weights = weights(88);
    for row in 0..D {
        host_weights[W_QKV.offset + row * QKV + 2 * D..][..D].fill(60.0 * sign(row));
        let projection = &mut host_weights[W_ATTN.offset + row * D..][..D];
        projection.iter_mut().enumerate().for_each(|(column, weight)| *weight = 500.0 * sign(column));
    }
    let weights = Memory::of(&host_weights);
    let [fast, exact] = [Fast, Exact].map(|precision| prepared(arch, &weights, precision, false, TOKENS));
    let x = Random::new(88).uniforms(TOKENS * D);
    for tokens in [1, 5, 16, 24, TOKENS] {
        let [got, wanted] = [&fast, &exact].map(|handle| forward(handle, &x[..tokens * D], tokens));
        assert!(got != wanted, "{tokens} tokens were computed again");
        let largest = wanted.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let error = worst(&got, &wanted, 0.05 * largest, 0.0);
        assert!(error <= 1.0, "{tokens} tokens: {error} of a twentieth of the largest");
    }
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
    for (batch, seq_len) in [(1, 5), (1, 12), (1, 20), (20, 1), (40, 1), (64, 1), (1, 150), (1, 600)] {
        update_in_graphs_of(arch, Fast, &KINDS[3], batch, seq_len);
    }
    // Unusual by this rule only
    for (batch, seq_len) in [(1, 12), (20, 1), (1, 150)] {
        update_in_graphs_of(arch, Auto, &KINDS[5], batch, seq_len);
    }
}

fn update_in_graphs_of(arch: Arch, precision: SolvePrecision, unusual: &Kind, batch: usize, seq_len: usize) {
    let rows = batch * seq_len;
    let name = ["usual weights", "unusual weights"];
    let kinds = [&KINDS[0], unusual].map(|kind| Memory::of(&weights_of(kind, 92)));
    let x = Random::new(92).uniforms(rows * D);
    let wanted = kinds.each_ref().map(|weights| forward(&prepared(arch, weights, precision, false, rows), &x, batch));
    let block = prepared(arch, &kinds[0], precision, false, rows);
    let bare = block.launches(batch, seq_len).expect("launches");
    let (x_there, output, own) = (Memory::of(&x), Memory::poisoned(x.len()), OwnStream::new());
    let (in_place, nothing) = (Memory::of(&x), vec![f32::NAN; x.len()]);
    let stream = Stream::from_address(own.0.addr());
    let forward_there = || block.forward(&tokens(&x_there, &output, batch, seq_len), stream).expect("forward");
    let captured = Captured::new(&own, forward_there);
    let captured_in_place = Captured::new(&own, || {
        block.forward(&tokens(&in_place, &in_place, batch, seq_len), stream).expect("forward");
    });
    if arch == Arch::Sm90a && rows > 32 {
        // Who looks behind a chain does not wait for it, so the next call must.
        let twice = Captured::new(&own, || [(); 2].into_iter().for_each(|()| forward_there()));
        assert_eq!(twice.in_front_of(bare + 1), [(bare - 1, true), (bare, true)], "captured {batch} x {seq_len}");
    }
    for index in [1, 0, 1] {
        block.update(&span(&kinds[index]), stream).expect("update");
        output.write(&nothing);
        captured.launch(&own);
        in_place.write(&x);
        captured_in_place.launch(&own);
        let right = [output.read() == wanted[index], in_place.read() == wanted[index]];
        assert_eq!(right, [true; 2], "captured {batch} x {seq_len} on {}", name[index]);
    }
    // What is captured on unusual weights is right on any.
    let on_unusual = Captured::new(&own, forward_there);
    for index in [0, 1] {
        block.update(&span(&kinds[index]), stream).expect("update");
        output.write(&nothing);
        on_unusual.launch(&own);
        let exact = forward(&prepared(arch, &kinds[index], Exact, false, rows), &x, batch);
        assert!(
            is_exact(arch, &output.read(), &exact, &x),
            "captured {batch} x {seq_len} on unusual weights, on {}",
            name[index]
        );
    }
    let unusual = Captured::new(&own, || block.update(&span(&kinds[1]), stream).expect("update"));
    block.update(&span(&kinds[0]), stream).expect("update");
    forward_there();
    assert!(output.read() == wanted[0], "after an update that was only captured");
    // By another kernel behind it where it is not one that looks itself.
    let guarded = if arch == Arch::Sm90a && rows <= 32 { bare } else { bare + 1 };
    assert_eq!(block.launches(batch, seq_len).expect("launches"), guarded, "the captured update may come at any time");
    unusual.launch(&own);
    forward_there();
    assert!(output.read() == wanted[1], "after a captured update");
    let second = Memory::poisoned(x.len());
    let around = Captured::new(&own, || {
        forward_there();
        block.update(&span(&kinds[0]), stream).expect("update");
        block.forward(&tokens(&x_there, &second, batch, seq_len), stream).expect("forward");
    });
    for first in [1, 0] {
        output.write(&nothing);
        second.write(&nothing);
        around.launch(&own);
        assert!(output.read() == wanted[first], "{batch} x {seq_len} in front of an update in the same graph");
        assert!(second.read() == wanted[0], "{batch} x {seq_len} behind an update in the same graph");
    }
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
