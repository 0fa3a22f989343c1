//! What a forward leaves in the workspace, stage by stage: each stage's output against the CPU's on what the GPU itself gave the stage. So every
//! kernel is tested as the plan uses it, whatever the family, with its tile, its grid and its part of the weight cast.

use std::ops::Range;

use solve::cpu;
use solve::cuda::arch::Arch;
use solve::cuda::block::{self, Buffers, Kernels, Shape};
use solve::cuda::device::Device;
use solve::cuda::graph::run_steps;
use solve::cuda::hopper;
use solve::cuda::hopper::plan::shared::SHARED;
use solve::cuda::hopper::plan::{
    ATTENTION, AttentionForm, Chip, FLAG_BYTES, Gemm, Kernel, Launch, SHORT, UNDEALT_ROWS, attention_forms,
    attention_in, forward, product,
};
use solve::cuda::launch::{Residency, Step};
use solve::cuda::memory::copy_in;
use solve::cuda::workspace::{Parts, Purpose, Workspace, packed, vectors};
use solve::dims::{D, FFN, HEADS, QKV};
use solve::error::Error;
use solve::options::Stream;
use solve::precision::SolvePrecision;
use solve::span::Span;
use solve::weights::{
    B_ATTN, B_FC, B_PROJ, B_QKV, BETA1, BETA2, GAMMA1, GAMMA2, Param, W_ATTN, W_FC, W_PROJ, W_QKV, WEIGHTS_LEN,
};

use super::common::{Random, weights, worst};
use super::rig::{Memory, device, poison, read_floats, read_halves, rounded};

/// (batch, seq_len) around the edges of tiles, of waves and of groups of query rows. Few rows are one kernel on Hopper, without intermediates.
const SHAPES: [(usize, usize); 28] = [
    (1, 33),
    (1, 64),
    (1, 65),
    (1, 100),
    (1, 127),
    (1, 128),
    (2, 50),
    (9, 14),
    (1, 129),
    (3, 50),
    (1, 192),
    (1, 193),
    (4, 64),
    (1, 257),
    (2, 257),
    (1, 384),
    (1, 513),
    (1, 700),
    (1, 1023),
    (1, 1024),
    (1, 1025),
    (1, 2050),
    (1, 800),
    (1, 900),
    (1, 960),
    (1, 2113),
    (4, 700),
    (2, 1100),
];

pub fn stages(arch: Arch) {
    let host_weights = weights(90);
    for (index, (batch, seq_len)) in SHAPES.into_iter().enumerate() {
        let precision = SolvePrecision::Fast;
        let shape =
            Shape { batch, seq_len, causal: index % 3 == 1, prepared: false, precision, guarded: true, rescued: false };
        // Weights in every alignment of a float.
        let weights = Memory::new(super::rig::Kind::Device, WEIGHTS_LEN, 4 * (index % 4)).with(&host_weights);
        check(arch, shape, &weights, &host_weights, |device, buffers| {
            let launches = match &device.kernels {
                Kernels::Hopper(kernels) => forward(kernels.chip, shape, true),
                Kernels::Portable(_) => Vec::new(),
            };
            Ok((block::forward(device, shape, buffers, false)?, launches))
        });
    }
}

/// Every form that a product or attention is compiled in, also those that this GPU's plan never chooses.
pub fn hopper_forms(arch: Arch) {
    let Kernels::Hopper(kernels) = &device(arch).kernels else { panic!("{} has other kernels", arch.name()) };
    let host_weights = weights(91);
    let weights = Memory::of(&host_weights);
    let run = |shape: Shape, form: &dyn Fn(Shape, &Launch) -> Option<Launch>| {
        check(arch, shape, &weights, &host_weights, |_, buffers| {
            let mut launches = forward(kernels.chip, shape, true);
            let mut replaced = 0;
            for launch in &mut launches {
                let Some(mut other) = form(shape, launch) else { continue };
                // It casts what the other one would, with at least a block, or attention and FC beside their own work.
                other.cast = launch.cast.clone();
                let casts = !other.cast.is_empty();
                match other.kernel {
                    Kernel::Attention { .. } => {}
                    Kernel::Gemm { gemm: Gemm::Fc, tile } if casts => {
                        let warps = product::tiles(Gemm::Fc)[tile].casting_warps();
                        assert!(warps > 0, "FC casts with no warps, {shape:?}");
                        other.threads += 32 * warps;
                    }
                    _ => other.grid[0] += u32::from(casts),
                }
                *launch = other;
                replaced += 1;
            }
            assert!(replaced > 0, "launches of another form, {shape:?}");
            Ok((hopper::block::steps(kernels, &launches, shape, buffers, Residency::Any)?, launches))
        });
    };
    let of = |seq_len: usize| {
        let precision = SolvePrecision::Fast;
        Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: true, rescued: false }
    };
    for gemm in Gemm::ALL {
        for (tile, form) in product::tiles(gemm).iter().enumerate() {
            // FC casts at 420 rows, in tiles that leave it registers for that. A transposed matrix is a prepared block's.
            let rows = if gemm == Gemm::Fc && form.casting_warps() == 0 { 500 } else { 420 };
            let shape = Shape { prepared: form.transposed(), ..of(rows) };
            let wanting = attention_forms(false).find(|&form| ATTENTION[form].wants_lengths()).expect("an attention");
            run(shape, &|shape, launch| match launch.kernel {
                Kernel::Gemm { gemm: other, .. } if other == gemm => {
                    Some(product::product_in(kernels.chip, gemm, tile, shape.rows()))
                }
                Kernel::Attention { .. } if gemm == Gemm::Qkv => Some(attention_in(kernels.chip, shape, wanting)),
                _ => None,
            });
        }
    }
    for tile in 0..product::tiles(Gemm::AttnProj).len() {
        run(Shape { prepared: true, ..of(420) }, &|shape, launch| {
            let replaced = matches!(launch.kernel, Kernel::Apart { .. });
            replaced.then(|| product::apart_in(kernels.chip, tile, shape.rows()))
        });
    }
    for tile in 0..product::tiles(Gemm::Fc).len() {
        run(Shape { prepared: true, ..of(420) }, &|shape, launch| {
            let replaced = matches!(launch.kernel, Kernel::FcScaled { .. });
            replaced.then(|| product::fc_scaled_in(kernels.chip, tile, shape.rows()))
        });
    }
    for causal in [false, true] {
        for seq_len in SHORT.into_iter().flat_map(|most| [most - 5, most]) {
            // A last group that is not full, where several sequences go into one
            run(Shape { batch: 31, causal, prepared: true, ..of(seq_len) }, &|_, launch| {
                matches!(launch.kernel, Kernel::AttentionShort { .. }).then(|| launch.clone())
            });
        }
        run(Shape { batch: 61, causal, prepared: true, ..of(3) }, &|_, launch| {
            matches!(launch.kernel, Kernel::AttentionShort { .. }).then(|| launch.clone())
        });
        // The projection reads V.
        run(Shape { batch: 101, causal, prepared: true, ..of(1) }, &|_, launch| {
            matches!(launch.kernel, Kernel::Apart { .. }).then(|| launch.clone())
        });
        for form in attention_forms(causal) {
            let shapes = match ATTENTION[form] {
                // A last group of rows of one head and the first two of the next one, and the other way round
                AttentionForm { dealt: true, .. } => vec![of(UNDEALT_ROWS + 65), Shape { batch: 20, ..of(107) }],
                _ => vec![Shape { causal, ..of(420) }],
            };
            for shape in shapes {
                run(shape, &|shape, launch| {
                    matches!(launch.kernel, Kernel::Attention { .. }).then(|| attention_in(kernels.chip, shape, form))
                });
            }
        }
    }
}

/// What the plan makes of a GPU with fewer multiprocessors, where others cast what they cannot.
pub fn fewer_multiprocessors(arch: Arch) {
    let Kernels::Hopper(kernels) = &device(arch).kernels else { panic!("{} has other kernels", arch.name()) };
    let host_weights = weights(92);
    let weights = Memory::of(&host_weights);
    for (sms, seq_len) in [(78, 65), (78, 128), (78, 200), (78, 700), (78, 2200), (114, 100), (114, 256)] {
        let chip = Chip {
            sms,
            clusters: [sms / 2 - 1, sms / 4 - 1, sms / 8 - 1],
            heads: [sms / 6 - 1, sms / 7 - 1, sms / 8 - 1],
        };
        let precision = SolvePrecision::Fast;
        let shape =
            Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: true, rescued: false };
        check(arch, shape, &weights, &host_weights, |_, buffers| {
            let launches = forward(chip, shape, true);
            Ok((hopper::block::steps(kernels, &launches, shape, buffers, Residency::Any)?, launches))
        });
    }
}

/// Whether QKV has to tell attention how long its queries and keys are.
fn tells_lengths(launches: &[Launch]) -> bool {
    let wants = |form: usize| ATTENTION[form].wants_lengths();
    launches.iter().any(|launch| matches!(launch.kernel, Kernel::Attention { form, .. } if wants(form)))
}

/// What these launches cast, as places in the packed weights: all of their chunks but those of W_fc where FC reads it as it is.
fn cast_halves(launches: &[Launch]) -> Vec<Range<usize>> {
    let reads = |launch: &Launch| matches!(launch.kernel, Kernel::Shared { form } if SHARED[form].gemm == Gemm::Fc);
    let left_out = if launches.iter().any(reads) { packed::FC..packed::PROJ } else { packed::LEN..packed::LEN };
    let halves = |chunks: &Range<u32>| 4096 * chunks.start as usize..4096 * chunks.end as usize;
    let cast = launches.iter().map(|launch| halves(&launch.cast));
    let parts = cast.flat_map(|all| [all.start..all.end.min(left_out.start), all.start.max(left_out.end)..all.end]);
    parts.filter(|part| !part.is_empty()).collect()
}

fn check(
    arch: Arch,
    shape: Shape,
    weights: &Memory,
    host_weights: &[f32],
    steps: impl FnOnce(&Device, &Buffers) -> Result<(Vec<Step>, Vec<Launch>), Error>,
) {
    let (device, rows) = (device(arch), shape.rows());
    let x = Random::new(rows as u64).uniforms(rows * D);
    let (x_there, output) = (Memory::of(&x), Memory::poisoned(rows * D));
    let purpose = if shape.prepared { Purpose::Prepared(shape.precision) } else { Purpose::Stateless };
    let workspace = device.run(|| Workspace::new(device, rows, purpose)).expect("a workspace");
    // f takes the place of qkv, and the output that of x1, unless these are kept for a look at them.
    // Tiles read what is behind the last row, numbers or not, and leave it as it is.
    let room = rows.next_multiple_of(128) - rows;
    let (qkv, x1) = (Memory::poisoned((rows + room) * QKV / 2), Memory::poisoned(rows * D));
    let parts = Parts { qkv: qkv.at(), x1: x1.at(), ..workspace.parts() };
    for (part, bytes) in [(parts.h, 2 * D), (parts.f, 2 * FFN)] {
        poison(part, bytes * (rows + room));
    }
    poison(parts.packed, 2 * packed::LEN);
    poison(parts.longest_rows, 2 * HEADS * 128);
    if shape.prepared {
        let (nothing, buffers) = (Shape { batch: 0, seq_len: 0, ..shape }, Buffers::of_weights(weights.at(), parts));
        let layernorm1 = Span::new("weights", weights.address(), 2 * D).expect("gamma1 and beta1");
        let prepared = device.run(|| {
            // SAFETY: all weights are there, and the workspace is a prepared block's.
            unsafe { run_steps(&block::prepare(device, nothing, &buffers)?, Stream::LEGACY)? };
            copy_in(parts.vectors + 4 * vectors::GAMMA1 as u64, &layernorm1, Stream::LEGACY)
        });
        prepared.expect("prepared weights");
    }
    let buffers = Buffers::new(x_there.at(), output.at(), weights.at(), &shape, parts);
    // SAFETY: buffers and workspace are of this shape.
    let ran = device.run(|| unsafe {
        let (steps, launches) = steps(device, &buffers)?;
        run_steps(&steps, Stream::LEGACY)?;
        Ok(launches)
    });
    let launches = ran.expect("forward");
    let got_output = output.read();
    output.check_guards();
    if parts.flags != 0 {
        let flags = read_floats(parts.flags, FLAG_BYTES / 4);
        assert!(flags.iter().all(|flag| flag.to_bits() == 0), "flags that nobody has reset, {shape:?}");
    }
    qkv.check_guards();
    x1.check_guards();
    let behind = read_halves(parts.qkv + 2 * (rows * QKV) as u64, room * QKV);
    assert!(behind.iter().all(|value| value.is_nan()), "what is behind QKV, {shape:?}");

    let w = |p: Param| &host_weights[p.offset..p.offset + p.len];
    let matrix = |p: Param| rounded(w(p));
    let linear = |a: &[f32], weights: Param, bias: Param| {
        let mut out = vec![0.0; rows * bias.len];
        cpu::linear(a, &matrix(weights), w(bias), &mut out);
        out
    };
    let layernorm = |x: &[f32], gamma: Param, beta: Param| {
        let mut out = vec![0.0; rows * D];
        cpu::layernorm(x, w(gamma), w(beta), &mut out);
        out
    };
    let close = |stage: &str, got: &[f32], wanted: &[f32], (abs, rel): (f32, f32)| {
        let worst = worst(got, wanted, abs, rel);
        assert!(worst <= 1.0, "{stage}: {worst} times the tolerance for {shape:?}");
    };

    // On Hopper some products of few rows read the caller's weights.
    let all = 0..packed::LEN;
    let cast = match &device.kernels {
        Kernels::Hopper(_) if !shape.prepared => cast_halves(&launches),
        _ => vec![all],
    };
    let wanted_packed: Vec<f32> = [W_QKV, W_ATTN, W_FC, W_PROJ].into_iter().flat_map(matrix).collect();
    let mut got_packed = read_halves(parts.packed, packed::LEN);
    let mut got_vectors = read_floats(parts.vectors, vectors::GAMMA1);
    let wanted_vectors: Vec<f32> =
        [B_QKV, B_ATTN, GAMMA2, BETA2, B_FC, B_PROJ].iter().flat_map(|p| w(*p).to_vec()).collect();
    // Sums in another order
    let folded = shape.prepared && matches!(device.kernels, Kernels::Hopper(_));
    if folded {
        let (fc, b_fc) = (packed::FC..packed::PROJ, vectors::GAMMA2..vectors::B_PROJ);
        let (wanted, wanted_rest) = fold(w(W_FC), w(GAMMA2), w(BETA2), w(B_FC));
        close("W_fc with gamma2, less its means", &got_packed[fc.clone()], &wanted, (1e-7, 1e-3));
        close("LN2's part in the biases", &got_vectors[b_fc.clone()], &wanted_rest, (1e-6, 1e-5));
        got_packed[fc.clone()].copy_from_slice(&wanted_packed[fc.clone()]);
        got_vectors[b_fc.clone()].copy_from_slice(&wanted_vectors[b_fc]);
    }
    for weights in cast {
        assert!(got_packed[weights.clone()] == wanted_packed[weights], "the cast weights, {shape:?}");
    }
    assert!(got_vectors == wanted_vectors, "the copied vectors, {shape:?}");

    // An fp16 step of LN1's output, which may fall either way, is 5e-4; times a weight of 0.02 or so.
    let mut qkv = read_halves(parts.qkv, rows * QKV);
    let wanted = linear(&rounded(&layernorm(&x, GAMMA1, BETA1)), W_QKV, B_QKV);
    let together = launches.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }));
    let mut given = Vec::new();
    if together {
        // Attention's output lies where Q would, which is nowhere.
        for (row, wanted) in qkv.chunks_exact_mut(QKV).zip(rounded(&wanted).chunks_exact(QKV)) {
            given.extend_from_slice(&row[..D]);
            row[..D].copy_from_slice(&wanted[..D]);
        }
    }
    close("QKV", &qkv, &wanted, (2e-4, 5.2e-4));

    if tells_lengths(&launches) {
        check_longest_rows(&qkv, parts.longest_rows, &shape);
    }

    let mut attention = vec![0.0; rows * D];
    cpu::attention(&qkv, &mut attention, shape.seq_len, shape.causal);
    if together {
        close("attention", &given, &attention, (6e-4, 6e-4));
        attention = given;
    }
    let mut wanted = linear(&rounded(&attention), W_ATTN, B_ATTN);
    wanted.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x);
    let x1 = read_floats(parts.x1, rows * D);
    close("attention and its projection", &x1, &wanted, (3e-4, 1e-5));

    let (mut h, mut tolerance) = (read_halves(parts.h, rows * D), (1e-4, 6e-4));
    let apart = |launch: &Launch| matches!(launch.kernel, Kernel::Apart { .. });
    if launches.iter().any(apart) {
        let facts = read_floats(parts.row_facts(rows)[0], 2 * rows);
        let in_range = |(i, x1): (usize, &f32)| (x1 - facts[i / D * 2]) * facts[i / D * 2 + 1];
        close("x1 in fp16's range", &h, &x1.iter().enumerate().map(in_range).collect::<Vec<_>>(), (1e-6, 5.2e-4));
    } else {
        let (gamma, beta) = if folded { (vec![1.0; D], vec![0.0; D]) } else { (w(GAMMA2).into(), w(BETA2).into()) };
        let mut wanted = vec![0.0; rows * D];
        cpu::layernorm(&x1, &gamma, &beta, &mut wanted);
        close("LN2", &h, &wanted, (1e-4, 5.2e-4));
    }
    if folded {
        // FC's weights are other ones, too: an fp16 step of each of a sum's terms.
        (h, tolerance) = (layernorm(&x1, GAMMA2, BETA2), (1e-3, 1e-3));
    }

    let f = read_halves(parts.f, rows * FFN);
    let mut wanted = linear(&h, W_FC, B_FC);
    cpu::gelu_tanh(&mut wanted);
    close("FC and GELU", &f, &wanted, tolerance);

    let mut wanted = linear(&f, W_PROJ, B_PROJ);
    wanted.iter_mut().zip(&x1).for_each(|(sum, x)| *sum += x);
    close("proj", &got_output, &wanted, (3e-5, 1e-5));
}

/// The squares of each head's longest query and key, by halves of its columns (cuda/gemm/longest_rows_sm90a.cuh).
fn check_longest_rows(qkv: &[f32], longest: u64, shape: &Shape) {
    const LINE: usize = 32;
    let got = read_floats(longest, 2 * HEADS * LINE);
    for half in 0..4 * HEADS {
        let squares = qkv.chunks_exact(QKV).map(|row| row[32 * half..][..32].iter().map(|x| x * x).sum());
        let wanted: f32 = squares.fold(0.0, f32::max);
        let got = got[half / 2 * LINE + half % 2];
        assert!(
            (wanted..=1.02 * wanted + 1e-4).contains(&(1.01 * got)),
            "the longest row of half {half}: {got} for {wanted}, {shape:?}"
        );
    }
}

/// W_fc and gamma2, beta2, b_fc as a prepared block has them (cuda/cast/fold_layernorm2_sm90a.cu).
fn fold(w_fc: &[f32], gamma: &[f32], beta: &[f32], b_fc: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut means, mut biases) = (vec![0f64; FFN], b_fc.iter().map(|b| f64::from(*b)).collect::<Vec<_>>());
    for ((row, gamma), beta) in w_fc.chunks_exact(FFN).zip(gamma).zip(beta) {
        for ((w, mean), bias) in row.iter().zip(&mut means).zip(&mut biases) {
            *mean += f64::from(*w) * f64::from(*gamma) / D as f64;
            *bias += f64::from(*w) * f64::from(*beta);
        }
    }
    let scaled =
        w_fc.iter().enumerate().map(|(i, w)| (f64::from(*w) * f64::from(gamma[i / FFN]) - means[i % FFN]) as f32);
    let vectors = [vec![1.0; D], vec![0.0; D], biases.iter().map(|b| *b as f32).collect()].concat();
    (scaled.collect(), vectors)
}
