//! Calls that are computed again: on which weights, to which bits, and that nothing of it is left for the next call.

use std::collections::HashSet;

use solve::cuda::arch::Arch;
use solve::cuda::block::{Buffers, Shape};
use solve::cuda::device::Device;
use solve::cuda::exact::Behind;
use solve::cuda::graph::run_steps;
use solve::cuda::rescue::{ALARMS, TINY, must_rescue};
use solve::cuda::solve::solve_in_place;
use solve::cuda::workspace::{ALARMS_BYTES, Parts, Purpose, Workspace};
use solve::dims::D;
use solve::options::Stream;
use solve::precision::SolvePrecision::{Auto, Exact, Fast};
use solve::weights::{PARAMS, WEIGHTS_LEN};

use super::{KINDS, QUIET, call, computed_again, computed_again_on, in_fp32, is_exact, span, tokens, weights_of};
use crate::common::Random;
use crate::rig::{Kind, Memory, device, smaller_device};

/// One, a few, and the sizes of every family of fast kernels.
const SIZES: [usize; 7] = [1, 5, 20, 40, 200, 300, 1024];

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
            if in_fp32(arch, seq_len, Fast) {
                assert!(fast == exact && auto == exact, "the precisions differ in fp32: {what}");
                continue;
            }
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
            let again = kind.fast && !in_fp32(arch, seq_len, Fast);
            let wanted = if again { computed_again(arch, &x, &weights) } else { call(arch, &x, &weights, Fast) };
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

/// Few tokens in place, each call on what the one before has written and not waited for: the copy of x that a call is computed again from is its own.
pub fn rescue_in_place_close_behind(arch: Arch) {
    const CALLS: usize = 40;
    let weights = [&KINDS[0], &KINDS[5]].map(|kind| Memory::of(&weights_of(kind, 88)));
    for seq_len in [2, 8, 16, 32] {
        let host_x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let chain = |kinds: fn(usize) -> usize, waits: bool| {
            let x = Memory::of(&host_x);
            for number in 0..CALLS {
                let call = tokens(&x, &x, 1, seq_len);
                solve_in_place(device(arch), &call, &span(&weights[kinds(number)]), Auto).expect("solve");
                if waits {
                    x.read();
                }
            }
            x.check_guards();
            x.read()
        };
        let mixed = |number| usize::from(number % 3 == 1);
        let wanted = chain(mixed, true);
        assert!(wanted.iter().all(|value| value.is_finite()) && wanted != chain(|_| 0, true), "seq_len {seq_len}");
        assert!(chain(mixed, false) == wanted, "seq_len {seq_len}");
    }
}

/// From weights that are aligned to floats only, for which few tokens have kernels of their own.
pub fn rescue_misaligned(arch: Arch) {
    let weights = Memory::new(Kind::Device, WEIGHTS_LEN, 4).with(&weights_of(&KINDS[3], 89));
    for seq_len in [5, 12, 20, 40, 200] {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        // Twice, so that it is a graph.
        for _ in 0..2 {
            assert!(call(arch, &x, &weights, Fast) == computed_again(arch, &x, &weights), "seq_len {seq_len}");
        }
    }
}

/// Where a block of the few-token kernel has several parts of each matrix.
pub fn rescue_on_fewer_multiprocessors(arch: Arch) {
    let weights = [&KINDS[0], &KINDS[3]].map(|kind| Memory::of(&weights_of(kind, 91)));
    for device in [78, 16].map(|sms| smaller_device(arch, sms)) {
        for seq_len in [5, 12, 20] {
            let x = Random::new(seq_len as u64).uniforms(seq_len * D);
            let input = Memory::of(&x);
            let call = |weights| {
                let output = Memory::poisoned(x.len());
                solve_in_place(device, &tokens(&input, &output, 1, seq_len), &span(weights), Fast).expect("solve");
                output.check_guards();
                output.read()
            };
            let wanted = [call(&weights[0]), computed_again_on(device, &x, &weights[1])];
            assert!(wanted[0] != computed_again_on(device, &x, &weights[0]), "usual weights were computed again");
            // Plainly, then as a graph, then as the same one, in turn.
            for time in 0..3 {
                for (weights, wanted) in weights.iter().zip(&wanted) {
                    assert!(call(weights) == *wanted, "seq_len {seq_len}, {} multiprocessors, time {time}", device.sms);
                }
            }
        }
    }
}

/// After a call that raised alarms nothing is left of them, whether it was computed again or not.
pub fn usual_after_unusual(arch: Arch) {
    let usual = Memory::of(&weights_of(&KINDS[0], 84));
    let unusual = KINDS[1..].iter().map(|kind| Memory::of(&weights_of(kind, 84)));
    for (seq_len, unusual) in [300, 5, 40, 1024, 20, 200].into_iter().zip(unusual) {
        let x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let before = call(arch, &x, &usual, Fast);
        for precision in [Fast, Auto, Exact] {
            call(arch, &x, &unusual, precision);
            assert!(call(arch, &x, &usual, Auto) == before, "{precision:?} left alarms behind at seq_len {seq_len}");
        }
    }
}

/// Nor where calls in fp32, which look at no weights, come between: what a call of few tokens has raised without being computed again is not the next one's.
pub fn usual_behind_fp32(arch: Arch) {
    let [usual, unusual, between] = [&KINDS[0], &KINDS[1], &KINDS[2]].map(|kind| Memory::of(&weights_of(kind, 87)));
    let x = Random::new(87).uniforms(5 * D);
    let before = call(arch, &x, &usual, Auto);
    for calls_in_fp32 in 1..4 {
        // Twice, so that it is a graph.
        for _ in 0..2 {
            call(arch, &x, &unusual, Auto);
        }
        for _ in 0..2 {
            call(arch, &x, &between, Fast);
        }
        for _ in 0..calls_in_fp32 {
            call(arch, &x[..D], &usual, Fast);
        }
        assert!(call(arch, &x, &usual, Auto) == before, "alarms were left behind {calls_in_fp32} calls in fp32");
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
    for seq_len in [40, 5, 200, 1, 20, 300, 1024] {
        let x = [1, 2].map(|seed| Random::new(seed).uniforms(seq_len * D));
        // By what the weights ask for, which wakes nothing.
        let wanted = [0, 1, 2].map(|kind| {
            let weights = &weights[kind];
            let again = kinds[kind].auto && !in_fp32(arch, seq_len, Auto);
            x.each_ref().map(|x| if again { computed_again(arch, x, weights) } else { call(arch, x, weights, Fast) })
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

/// A graph begins with its exact kernel asleep, also in the place of one that was forgotten with its own awake.
pub fn forgotten_graphs(arch: Arch) {
    // A device of its own, which has no other graphs.
    let device = Box::leak(Box::new(Device::open(0, Some(arch)).expect("the device")));
    let weights = Memory::of(&weights_of(&KINDS[1], 86));
    // Sixteen graphs are kept, so the first one's place is the last one's.
    for seq_len in [512, 512].into_iter().chain(33..48).chain([64; 4]) {
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
    for seq_len in SIZES.into_iter().chain([100, 700, 1200]).filter(|&seq_len| !in_fp32(arch, seq_len, Auto)) {
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
