//! What the options ask for, as plans.

use std::time::Duration;

use crate::cases::Suite;
use crate::cli::{Calls, Grading, Weights};
use crate::contract::Precision;
use crate::floor::Rates;
use crate::gpu::Gpu;
use crate::grade::Plan;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::rng;
use crate::stats::Budget;

/// The device asked for, or the GPU if there is one.
pub fn device(asked: Option<Device>, gpu: Option<&Gpu>) -> Result<Device, Failure> {
    match (asked, gpu) {
        (Some(Device::Cuda), None) => {
            Err(crate::gpu::open().err().unwrap_or_else(|| Failure::new(Reason::Environment, "no usable GPU")))
        }
        (Some(device), _) => Ok(device),
        (None, Some(_)) => Ok(Device::Cuda),
        (None, None) => Ok(Device::Cpu),
    }
}

/// The plan that the options ask for.
pub fn plan(calls: &Calls, args: &Grading, device: Device, gpu: Option<&Gpu>) -> Plan {
    // A GPU that is there and not used says nothing about the times of a processor.
    let gpu = gpu.filter(|_| device == Device::Cuda);
    // The challenge's own suite is for a look between two changes: it takes less than five seconds.
    let glance = device == Device::Cuda && args.suite == Suite::Official;
    let weights = args.weights.unwrap_or(if glance { Weights::Fresh } else { Weights::Both });
    Plan {
        device,
        api: calls.api,
        arch: calls.arch.clone(),
        suite: args.suite,
        precision: calls.precision,
        seqs: if args.no_timing { Vec::new() } else { calls.seq.0.clone() },
        max_case: args.max_case.unwrap_or(match (args.suite, device) {
            // Beyond the tiles of 256, and all rows of it are checked on two cores.
            (Suite::Hard, Device::Cpu) => 300,
            _ => 4096,
        }),
        fresh: weights != Weights::Fixed,
        fixed: weights != Weights::Fresh,
        cold: true,
        singles: true,
        traps: true,
        processes: args.processes.map_or(if glance { 1 } else { 3 }, usize::from),
        budget: match device {
            _ if glance => Budget::GLANCE,
            _ if args.quick => Budget::QUICK,
            Device::Cuda => Budget::FULL,
            // Nothing on a shared processor gets steadier by waiting.
            Device::Cpu => Budget { max_time: Duration::from_secs(6), ..Budget::FULL },
        },
        warm: Duration::from_millis(if glance { 200 } else { 1000 }),
        timeout: Duration::from_secs_f64(calls.timeout),
        fail_fast: false,
        copies: calls.copies,
        seed: calls.seed.unwrap_or_else(rng::secret),
        rates: gpu.map(Rates::of),
        max_clock_mhz: gpu.map(|g| g.max_clock_mhz),
        capability: gpu.map(|g| g.capability),
    }
}

/// What is said of options that change nothing on this device.
pub fn without_effect(calls: &Calls, args: &Grading, device: Device) -> Option<String> {
    let given =
        [("--arch", calls.arch.is_some()), ("--copies", calls.copies), ("--processes", args.processes.is_some())];
    let given: Vec<&str> = given.into_iter().filter(|option| option.1).map(|option| option.0).collect();
    let idle = device == Device::Cpu && !given.is_empty();
    idle.then(|| format!("Of no effect on a CPU: {}.", given.join(", ")))
}

/// Every architecture that this GPU can run, both entry points, all lengths.
pub fn record_plans(plan: &Plan, gpu: Option<&Gpu>) -> Vec<Plan> {
    let lower: &[&str] = match (plan.device, gpu.map_or((0, 0), |g| g.capability)) {
        (Device::Cpu, _) | (_, (..=7, _)) => &[],
        (_, (8, _)) => &["sm75"],
        _ => &["sm80", "sm75"],
    };
    let archs = std::iter::once(None).chain(lower.iter().map(|&arch| Some(arch.to_string())));
    let mut plans = Vec::new();
    for arch in archs {
        for api in [Api::Solve, Api::Prepared] {
            let own = arch.is_none();
            plans.push(Plan {
                api,
                // Handles have kernels of their own on the newest architecture only: elsewhere a short suite will do.
                suite: if own || api == Api::Solve { plan.suite } else { Suite::Official },
                traps: own,
                processes: if own { PROCESSES } else { 1 },
                seqs: crate::record::SEQS.to_vec(),
                fixed: false,
                budget: if own { RECORD } else { RECORD_LOWER },
                arch: arch.clone(),
                ..plan.clone()
            });
        }
    }
    plans.extend(precision_plans(plan, lower));
    plans
}

/// The hard suite under each precision, exact before auto, whose limits follow from it; and how long the two take.
fn precision_plans(plan: &Plan, lower: &[&str]) -> Vec<Plan> {
    let hard = |arch: Option<&&str>, precision| Plan {
        suite: Suite::Hard,
        precision: Some(precision),
        traps: false,
        seqs: Vec::new(),
        fresh: false,
        fixed: false,
        cold: false,
        singles: false,
        processes: PROCESSES,
        arch: arch.map(ToString::to_string),
        ..plan.clone()
    };
    if plan.device == Device::Cpu {
        return vec![hard(None, Precision::Exact)];
    }
    let timed = |precision| Plan { seqs: crate::record::SEQS.to_vec(), budget: RECORD_LOWER, ..hard(None, precision) };
    let handle = Plan { api: Api::Prepared, ..hard(None, Precision::Fast) };
    let mut plans = vec![hard(None, Precision::Fast), handle, timed(Precision::Exact), timed(Precision::Auto)];
    let few = |arch, precision| Plan { max_case: FEW, ..hard(Some(arch), precision) };
    plans.extend(lower.iter().flat_map(|arch| [few(arch, Precision::Fast), few(arch, Precision::Exact)]));
    plans
}

/// The longest length at which lower architectures are held to the contracts.
const FEW: usize = 130;

/// Processes that share the runs of the record.
const PROCESSES: usize = 9;

/// Samples for the record: fewer than for a single length.
const RECORD: Budget = Budget {
    min_samples: 24,
    min_time: Duration::from_millis(200),
    half_width: 0.005,
    max_samples: 200,
    max_time: Duration::from_millis(700),
};

/// Samples for architectures below the GPU's own.
const RECORD_LOWER: Budget = Budget { min_samples: 12, max_time: Duration::from_millis(250), ..RECORD };

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    /// The plan of these options.
    fn of(options: &str, device: Device) -> Plan {
        let run = Cli::parse_from(["harness"].into_iter().chain(options.split_whitespace())).run;
        plan(&run.calls, &run.grading, device, Some(&Gpu::sample()))
    }

    #[test]
    fn a_gpu_that_is_not_used_is_no_part_of_the_plan() {
        let gpu = Gpu::sample();
        let run = Cli::parse_from(["harness"]).run;
        let known = |device| {
            let plan = plan(&run.calls, &run.grading, device, Some(&gpu));
            [plan.rates.is_some(), plan.max_clock_mhz.is_some(), plan.capability.is_some()]
        };
        assert_eq!([known(Device::Cpu), known(Device::Cuda)], [[false; 3], [true; 3]]);
    }

    #[test]
    fn options_say_what_is_measured() {
        use Device::{Cpu, Cuda};
        let longest = |options, device| of(options, device).max_case;
        assert_eq!([longest("", Cpu), longest("--suite hard", Cuda), longest("--suite hard", Cpu)], [4096, 4096, 300]);
        assert_eq!(longest("--suite hard --max-case 7", Cpu), 7);
        let weights = |options, device| [of(options, device).fresh, of(options, device).fixed];
        let asked = ["", "--weights fresh", "--weights fixed"].map(|options| weights(options, Cpu));
        assert_eq!(asked, [[true, true], [true, false], [false, true]]);
        let samples = |options, device| of(options, device).budget.max_samples;
        assert_eq!([samples("", Cuda), samples("--quick", Cuda)], [Budget::FULL, Budget::QUICK].map(|b| b.max_samples));
        // A look is a short one on a GPU only.
        let look = "--suite official";
        assert_eq!([weights(look, Cuda), weights(look, Cpu)], [[true, false], [true, true]]);
        assert_eq!([of(look, Cuda).processes, of("", Cuda).processes, of("--processes 2", Cuda).processes], [1, 3, 2]);
        let times = [of(look, Cuda), of(look, Cpu)].map(|plan| plan.budget.max_time);
        assert_eq!(times, [Budget::GLANCE.max_time, Duration::from_secs(6)]);
    }

    #[test]
    fn a_record_has_all_that_the_gpu_runs_and_exact_before_auto() {
        let plans = |capability, device| record_plans(&of("", device), Some(&Gpu { capability, ..Gpu::sample() }));
        let archs = |capability, device| {
            let mut archs: Vec<_> = plans(capability, device).into_iter().filter_map(|plan| plan.arch).collect();
            archs.dedup();
            archs
        };
        assert_eq!(archs((9, 0), Device::Cuda), ["sm80", "sm75", "sm80", "sm75"], "times, and the hard suite");
        assert_eq!(archs((8, 9), Device::Cuda), ["sm75"]);
        assert!(archs((7, 5), Device::Cuda).is_empty() && archs((9, 0), Device::Cpu).is_empty());
        for device in [Device::Cuda, Device::Cpu] {
            let timed: Vec<_> = plans((9, 0), device).into_iter().filter(|plan| plan.precision.is_none()).collect();
            assert!(timed.iter().all(|plan| plan.seqs == crate::record::SEQS && plan.traps == plan.arch.is_none()));
            assert!([Api::Solve, Api::Prepared].iter().all(|&api| timed.iter().any(|plan| plan.api == api)));
        }
        let asked: Vec<_> = plans((9, 0), Device::Cuda).into_iter().filter_map(|plan| plan.precision).collect();
        let first = |precision| asked.iter().position(|&asked| asked == precision);
        assert!(first(Precision::Exact) < first(Precision::Auto), "whose limits follow from it: {asked:?}");
    }
}
