//! Every portable kernel in every tile against the same stage of the CPU backend, on inputs that are already fp16, so that only the stage's own roundings
//! differ.

use solve::cpu;
use solve::cuda::arch::Arch;
use solve::cuda::block::{Kernels, Shape};
use solve::cuda::launch::{Arguments, Edge, Residency, Step, launch};
use solve::cuda::portable::kernels::Kernels as Portable;
use solve::cuda::portable::plan::{Gemm, Kernel, Launch, Stage, TILES, forward, gemm_in};
use solve::cuda::workspace::{packed, vectors};
use solve::dims::{D, FFN, QKV};
use solve::options::Stream;
use solve::precision::SolvePrecision;
use solve::weights::{B_ATTN, B_FC, B_PROJ, B_QKV, BETA1, BETA2, GAMMA1, GAMMA2, Param, W_ATTN, W_FC, W_PROJ, W_QKV};

use super::common::{Random, weights, worst};
use super::rig::{Memory, device, halves, rounded};

/// Around the edges of warps, of every tile height, and past the largest.
const ROWS: [usize; 19] = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 300];
const MOST_ROWS: usize = 300;

/// Half an fp16 step, and a little for sums in another order.
const HALF: (f32, f32) = (2e-5, 5.2e-4);

/// fp32 sums of `depth` products of size one or less: tensor cores drop what does not fit when they add, a bit of 2^-24 or so for every four.
fn single(depth: usize) -> (f32, f32) {
    (depth as f32 / 4.0 / (1 << 24) as f32, 1e-5)
}

fn kernels(arch: Arch) -> &'static Portable {
    match &device(arch).kernels {
        Kernels::Portable(kernels) => kernels,
        Kernels::Hopper(_) => panic!("{} has other kernels", arch.name()),
    }
}

/// Every parameter of a portable kernel is an address or an int.
fn run(arch: Arch, planned: &Launch, arguments: &[u64]) {
    let step = Step {
        what: planned.stage.what(),
        function: kernels(arch).get(planned.kernel),
        grid: planned.grid,
        threads: planned.threads,
        shared: planned.shared,
        pairs: false,
        edge: Edge::Full,
        residency: Residency::Any,
        arguments: Arguments::each(arguments),
    };
    // SAFETY: each test lists its kernel's parameters and gives buffers of the planned shape.
    device(arch).run(|| unsafe { launch(&step, Stream::LEGACY) }).expect("launch");
}

fn check(what: &str, got: &[f32], wanted: &[f32], (abs, rel): (f32, f32)) {
    let worst = worst(got, wanted, abs, rel);
    assert!(worst <= 1.0, "{what}: {worst} times the tolerance");
}

/// The launch that the plan makes for this stage.
fn planned(arch: Arch, shape: Shape, stage: Stage) -> Launch {
    let plan = forward(arch, device(arch).sms, shape);
    *plan.iter().find(|launch| launch.stage == stage).expect("the stage is in the plan")
}

fn rows_shape(rows: usize, prepared: bool) -> Shape {
    Shape {
        batch: 1,
        seq_len: rows,
        causal: false,
        prepared,
        precision: SolvePrecision::Fast,
        guarded: true,
        rescued: false,
    }
}

pub fn cast_and_layernorm(arch: Arch) {
    let weights = weights(1);
    let x = Random::new(2).uniforms(MOST_ROWS * D);
    let mut wanted = vec![0.0; x.len()];
    let part = |p: Param| &weights[p.offset..p.offset + p.len];
    cpu::layernorm(&x, part(GAMMA1), part(BETA1), &mut wanted);
    let wanted_packed: Vec<f32> = [W_QKV, W_ATTN, W_FC, W_PROJ].iter().flat_map(|p| rounded(part(*p))).collect();
    let wanted_vectors: Vec<f32> =
        [B_QKV, B_ATTN, GAMMA2, BETA2, B_FC, B_PROJ].iter().flat_map(|p| part(*p).to_vec()).collect();

    for (rows, offset) in ROWS.into_iter().zip([0, 4, 8, 12].into_iter().cycle()) {
        let from = Memory::new(super::rig::Kind::Device, weights.len(), offset).with(&weights);
        let (to, to_vectors) = (Memory::poisoned(packed::LEN / 2), Memory::poisoned(vectors::LEN));
        let (x_there, h) = (Memory::of(&x[..rows * D]), Memory::poisoned(rows * D / 2));
        let step = planned(arch, rows_shape(rows, false), Stage::CastLayernorm1);
        let (alarms, x_copy) = (Memory::of(&[0.0; 64]), Memory::poisoned(rows * D));
        let outputs = [to.at(), to_vectors.at(), x_there.at(), h.at(), rows as u64, alarms.at(), x_copy.at()];
        run(arch, &step, &[&[from.at()], &outputs[..]].concat());
        assert!(alarms.read() == [0.0; 64], "alarms about usual weights");
        assert!(x_copy.read() == x[..rows * D], "the copy of x, {rows} rows");
        check(&format!("LN1 of {rows} rows"), &h.read_half(rows * D), &wanted[..rows * D], HALF);
        assert!(to.read_half(packed::LEN) == wanted_packed, "packed, weights {offset} bytes off, {rows} rows");
        let got = to_vectors.read();
        assert!(got[..wanted_vectors.len()] == wanted_vectors[..], "vectors, weights {offset} bytes off");
        for memory in [&to, &to_vectors, &h, &alarms, &x_copy] {
            memory.check_guards();
        }
    }
}

pub fn layernorm(arch: Arch) {
    let mut random = Random::new(3);
    let (gamma, beta) = (random.uniforms(D), random.uniforms(D));
    // Offsets far larger than the spread: the variance must not be the difference of two squares.
    let x: Vec<f32> =
        random.uniforms(MOST_ROWS * D).iter().enumerate().map(|(i, v)| v + (i / D % 4 * 30) as f32).collect();
    let mut wanted = vec![0.0; x.len()];
    cpu::layernorm(&x, &gamma, &beta, &mut wanted);
    let (gamma, beta) = (Memory::of(&gamma), Memory::of(&beta));
    for rows in ROWS {
        let (x, h) = (Memory::of(&x[..rows * D]), Memory::poisoned(rows * D / 2));
        let step = planned(arch, rows_shape(rows, true), Stage::Layernorm1);
        run(arch, &step, &[x.at(), gamma.at(), beta.at(), h.at(), rows as u64, 0]);
        check(&format!("{rows} rows"), &h.read_half(rows * D), &wanted[..rows * D], (1e-4, 5.2e-4));
        h.check_guards();
    }
}

/// One linear layer at every tile and every size.
pub fn gemm(arch: Arch, gemm: Gemm) {
    let (depth, columns) = (if gemm == Gemm::Proj { FFN } else { D }, gemm.columns());
    let half_output = matches!(gemm, Gemm::Qkv | Gemm::Fc);
    let mut random = Random::new(4 + gemm as u64);
    let a = rounded(&random.uniforms(MOST_ROWS * depth));
    let w: Vec<f32> = rounded(&random.uniforms(depth * columns).iter().map(|v| 0.05 * v).collect::<Vec<_>>());
    let bias = random.uniforms(columns);
    let residual = random.uniforms(MOST_ROWS * columns);
    let mut wanted = vec![0.0; MOST_ROWS * columns];
    cpu::linear(&a, &w, &bias, &mut wanted);
    match gemm {
        Gemm::Qkv => {}
        Gemm::Fc => cpu::gelu_tanh(&mut wanted),
        Gemm::AttnProj | Gemm::Proj => wanted.iter_mut().zip(&residual).for_each(|(sum, r)| *sum += r),
    }

    let (w_there, bias_there) = (halves(&w), Memory::of(&bias));
    for (index, tile) in TILES.iter().enumerate() {
        for rows in ROWS {
            let (a_there, residual_there) = (halves(&a[..rows * depth]), Memory::of(&residual[..rows * columns]));
            let out = Memory::poisoned(if half_output { rows * columns / 2 } else { rows * columns });
            let step = gemm_in(arch, gemm, index, rows);
            let residual = if half_output { 0 } else { residual_there.at() };
            run(arch, &step, &[a_there.at(), w_there.at(), bias_there.at(), residual, out.at(), rows as u64]);
            let got = if half_output { out.read_half(rows * columns) } else { out.read() };
            let tolerance = if half_output { HALF } else { single(depth) };
            let what = format!("{rows} rows in tiles of {}x{}", tile.m, tile.n);
            check(&what, &got, &wanted[..rows * columns], tolerance);
            out.check_guards();
        }
    }
}

pub fn attention(arch: Arch, causal: bool) {
    const SIZES: [usize; 14] = [1, 2, 16, 31, 63, 64, 65, 100, 127, 128, 129, 257, 600, 1030];
    // A peaked softmax in every third sequence length, a flat one in the others.
    for (seq_len, sharpness) in SIZES.into_iter().zip([1.0, 4.0, 0.1].into_iter().cycle()) {
        let batch = if seq_len < 200 { 3 } else { 1 };
        let rows = batch * seq_len;
        let mut qkv = Random::new(seq_len as u64).uniforms(rows * QKV);
        qkv.chunks_mut(QKV).for_each(|row| row[..2 * D].iter_mut().for_each(|value| *value *= sharpness));
        let qkv = rounded(&qkv);
        let mut wanted = vec![0.0; rows * D];
        cpu::attention(&qkv, &mut wanted, seq_len, causal);
        let (from, to) = (halves(&qkv), Memory::poisoned(rows * D / 2));
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch, seq_len, causal, prepared: false, precision, guarded: true, rescued: false };
        let step = planned(arch, shape, Stage::Attention);
        run(arch, &step, &[from.at(), to.at(), seq_len as u64]);
        // P is rounded to fp16 before it meets V, whose values are at most 1.
        let what = format!("{batch} sequences of {seq_len}, sharpness {sharpness}");
        check(&what, &to.read_half(rows * D), &wanted, (6e-4, 6e-4));
        to.check_guards();
    }
}

/// No kernel keeps anything in local memory: a spill, or an array that was not unrolled.
pub fn no_local_memory(arch: Arch) {
    let mut all = vec![
        Kernel::CastLayernorm,
        Kernel::Layernorm,
        Kernel::Attention { causal: false },
        Kernel::Attention { causal: true },
    ];
    for gemm in Gemm::ALL {
        all.extend((0..TILES.len()).map(|tile| Kernel::Gemm { gemm, tile }));
    }
    for kernel in all {
        assert_eq!(kernels(arch).get(kernel).local_bytes().expect("attribute"), 0, "{kernel:?}");
    }
}
