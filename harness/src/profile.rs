//! The `profile` command: the kernels of one call, each with its time and the least that its work takes.

use crate::bank::Bank;
use crate::cli::{Calls, Grading};
use crate::dims::{D, FFN, WEIGHTS};
use crate::floor::Rates;
use crate::gpu::Kernel;
use crate::machine::Machine;
use crate::plans;
use crate::protocol::Device;
use crate::reason::{Failure, Reason};
use crate::rig::{Manner, Rig};
use crate::rng::Stream;
use crate::run;
use crate::ui::say;

/// Prints the kernels of one warm call of each candidate at each length.
pub fn run(args: &Calls) -> Result<Reason, Failure> {
    let gpu = Machine::gpu(args.device)?;
    let plan = plans::plan(args, &Grading::default(), plans::device(args.device, gpu.as_ref())?, gpu.as_ref());
    let Some(gpu) = gpu.filter(|_| plan.device == Device::Cuda) else {
        return Err(Failure::new(Reason::Environment, "a profile needs a GPU"));
    };
    let rates = Rates::of(&gpu);
    let mut bank = Bank::new(plan.seed);
    let scratch = run::Scratch;
    for (name, path) in run::candidates(args)? {
        let library = run::library(&path, &plan, &scratch, Some(&gpu))?;
        let mut setup = plan.setup();
        setup.env.push((crate::protocol::TRACE.into(), "1".into()));
        let mut rig = Rig::start(&library, &setup, Stream::new(plan.seed, 5))?;
        for &seq in &plan.seqs {
            let content = bank.bases(seq)[0].fresh(Stream::new(plan.seed, seq as u64));
            let calls = (0..3).map(|_| rig.call(&content, &Manner::CAREFUL)).collect::<Result<Vec<_>, _>>()?;
            let kernels = calls.last().map(|done| done.called.kernels.clone()).unwrap_or_default();
            print(&name, seq, &kernels, &rates);
        }
    }
    Ok(Reason::Pass)
}

fn print(name: &str, seq: usize, kernels: &[Kernel], rates: &Rates) {
    let adds = added(kernels.iter().map(|k| (k.start_us, k.us)));
    let (total, end) = (kernels.iter().map(|k| k.us).sum::<f64>(), adds.iter().sum::<f64>());
    say!("\n{name}, seq {seq}: {} kernels, {total:.1} us in them, {end:.1} us from first to last", kernels.len());
    say!("A kernel that starts early waits inside its own time: `adds` is what the call takes longer for it.");
    say!(
        "{:>8} {:>8} {:>8} {:>8}  {:<16} {:>6} {:>5} {:>8}  kernel",
        "start",
        "us",
        "adds",
        "floor",
        "grid",
        "block",
        "regs",
        "shared"
    );
    for (k, adds) in kernels.iter().zip(adds) {
        let floor = floor_us(&k.name, seq, rates).map_or("-".into(), |f| format!("{f:.2}"));
        let [x, y, z] = k.grid;
        let block = k.block[0] * k.block[1] * k.block[2];
        say!(
            "{:>8.2} {:>8.2} {adds:>8.2} {floor:>8}  {:<16} {block:>6} {:>5} {:>8}  {}",
            k.start_us,
            k.us,
            format!("{x} x {y} x {z}"),
            k.registers,
            k.shared_bytes,
            k.name
        );
    }
}

/// By how much the call ends later for each kernel, of starts and durations: nothing for one that runs beside others and ends before them.
fn added(kernels: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut ended = 0.0;
    let adds = |(start, us): (f64, f64)| {
        let before = ended;
        ended = (start + us).max(before);
        ended - before
    };
    kernels.map(adds).collect()
}

/// A warm call finds much of its data in L2, which is about so many times as fast as memory (H200: 7 TB/s, 4.3 from memory).
const L2_RATE: f64 = 1.6;

/// What the work that a kernel's name speaks of takes at least, in us: operations at the highest rate that there is, or bytes. How much of the weights is
/// cast by a kernel its name does not say.
fn floor_us(kernel: &str, seq: usize, rates: &Rates) -> Option<f64> {
    let (s, d, f) = (seq as f64, D as f64, FFN as f64);
    let least = |flops: f64, bytes: f64| (flops / rates.peak_flops).max(bytes / (L2_RATE * rates.bytes)) * 1e6;
    let product = |k: f64, n: f64| least(2.0 * s * k * n, 2.0 * (k * n + s * k + s * n));
    let attention = least(4.0 * s * s * d, 2.0 * s * 4.0 * d);
    let width = if kernel.contains("prepared") { 2.0 } else { 4.0 };
    // A name that is part of another one comes behind it.
    let stages: [(&str, f64); 8] = [
        ("attention_proj", attention + product(d, d)),
        ("attn_proj", product(d, d)),
        ("attention", attention),
        ("qkv", product(d, 3.0 * d)),
        ("fc", product(d, f)),
        ("proj", product(f, d)),
        ("layernorm", least(0.0, 6.0 * s * d)),
        ("small", least(crate::floor::flops(seq), width * WEIGHTS as f64)),
    ];
    let mut rest = kernel.to_owned();
    let mut floor = None;
    for (stage, us) in stages {
        if rest.contains(stage) {
            *floor.get_or_insert(0.0) += us;
            rest = rest.replace(stage, "");
        }
    }
    floor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_beside_others_adds_nothing() {
        let kernels = [(0.0, 6.0), (4.0, 10.0), (5.0, 2.0), (12.0, 8.0)];
        assert_eq!(added(kernels.into_iter()), [6.0, 8.0, 0.0, 6.0]);
    }

    #[test]
    fn a_floor_is_that_of_all_the_work_in_a_name() {
        let h200 = Rates { bytes: 4.3e12, flops: 6.89e14, peak_flops: 9.89e14 };
        let floor_at = |seq| move |kernel| floor_us(kernel, seq, &h200).expect("a floor");
        let (floor, few) = (floor_at(1024), floor_at(8));
        assert!(
            (floor("gemm_fc_128x192") - 4.9).abs() < 0.05
                && floor("gemm_proj_104x64_swapped") == floor("gemm_fc_128x192")
        );
        assert_eq!(floor("qkv_attention_8"), floor("attention_3x1x2_f16") + floor("gemm_qkv_128x144"));
        assert_eq!(floor("attention_proj_packed_64"), floor("attention_3x1x2_f16") + floor("gemm_attn_proj_64x128"));
        // These took 2.7 and 6.7 us; the cast of all weights would take more than the first.
        assert!(floor("cast_layernorm") < 2.7 && floor("gemm_qkv_128x144") < 6.7);
        assert_eq!(few("small_prepared_8") * 2.0, few("small_f32_8"));
        assert_eq!(floor_us("wake", 1024, &h200), None);
    }
}
