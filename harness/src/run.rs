//! The `run` command: grades the candidates and prints what came out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bank::Bank;
use crate::cli::{Run, Weights};
use crate::floor::Rates;
use crate::gpu::Gpu;
use crate::grade::{Plan, grade};
use crate::machine::{self, Machine};
use crate::protocol::Device;
use crate::reason::{Failure, Reason};
use crate::report::{Report, SCHEMA, json, terminal};
use crate::rng;
use crate::stats::Budget;
use crate::ui::Ui;

/// Runs the command; the reason is what the process exits with.
pub fn run(args: &Run) -> Result<Reason, Failure> {
    let gpu = Machine::gpu();
    let device = device(args, gpu.as_ref())?;
    let plan = plan(args, device, gpu.as_ref());
    let machine = Machine::here(gpu.as_ref());
    let mut ui = Ui::new(args.quiet);
    for line in terminal::header(&machine, device, plan.seed) {
        ui.line(&line);
    }
    let mut report = Report {
        schema: SCHEMA,
        harness: env!("CARGO_PKG_VERSION").into(),
        date: machine::now(),
        seed: format!("{:#x}", plan.seed),
        machine,
        suite: format!("{:?}", plan.suite).to_lowercase(),
        candidates: Vec::new(),
    };
    let mut bank = Bank::new(plan.seed);
    for (name, path) in candidates(args)? {
        let mut graded = grade(&path, &name, &plan, &mut bank, &mut ui);
        if graded.verdict.exit_code != 0 {
            graded.verdict.reproduce = Some(reproduce(&plan, &path));
        }
        for line in terminal::candidate(&graded) {
            ui.line(&line);
        }
        report.candidates.push(graded);
        // Written after every candidate: a later one may bring the machine down.
        if let Some(path) = &args.json {
            json::write(path, &report)?;
        }
    }
    ui.finish();
    Ok(report.reason())
}

/// The device asked for, or the GPU if there is one.
pub fn device(args: &Run, gpu: Option<&Gpu>) -> Result<Device, Failure> {
    match (args.device, gpu) {
        (Some(Device::Cuda), None) => Err(crate::gpu::open().err().unwrap_or_else(|| {
            Failure::new(Reason::Environment, "no usable GPU")
        })),
        (Some(device), _) => Ok(device),
        (None, Some(_)) => Ok(Device::Cuda),
        (None, None) => Ok(Device::Cpu),
    }
}

/// The plan that the options ask for.
pub fn plan(args: &Run, device: Device, gpu: Option<&Gpu>) -> Plan {
    let quick = Budget {
        min_samples: 10,
        min_time: Duration::from_millis(100),
        half_width: 0.02,
        max_samples: 60,
        max_time: Duration::from_secs(3),
    };
    Plan {
        device,
        api: args.api,
        arch: args.arch.clone(),
        suite: args.suite,
        seqs: if args.no_timing { Vec::new() } else { args.seq.0.clone() },
        max_case: args.max_case,
        fresh: args.weights != Weights::Fixed,
        fixed: args.weights != Weights::Fresh,
        cold: true,
        traps: true,
        budget: if args.quick { quick } else { Budget::FULL },
        timeout: Duration::from_secs_f64(args.timeout.clamp(0.1, 86_400.0)),
        fail_fast: false,
        copies: args.copies,
        seed: args.seed.unwrap_or_else(rng::secret),
        rates: gpu.map(Rates::of),
        max_clock_mhz: gpu.map(|g| g.max_clock_mhz),
    }
}

/// Candidates with the names to print.
pub fn candidates(args: &Run) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut paths: Vec<PathBuf> = args.lib.iter().chain(&args.candidates).cloned().collect();
    if paths.is_empty() {
        paths.push(own_library()?);
    }
    let name = |p: &Path| p.file_name().map_or_else(|| p.display().to_string(), |n| n.to_string_lossy().into_owned());
    Ok(paths.into_iter().map(|p| (name(&p), p)).collect())
}

/// This project's library: beside the harness in a bundle, and in a build folder too.
pub fn own_library() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("libsolve.so")));
    let found = beside.filter(|path| path.exists());
    found.ok_or_else(|| Failure::new(Reason::Load, "no libsolve.so beside the harness: name a library to grade"))
}

fn reproduce(plan: &Plan, path: &Path) -> String {
    let seqs: Vec<String> = plan.seqs.iter().map(ToString::to_string).collect();
    let mut command = format!("harness/run {} --device {:?} --seed {:#x}", path.display(), plan.device, plan.seed);
    command.push_str(&format!(" --suite {:?} --api {}", plan.suite, plan.api.name()));
    if let Some(arch) = &plan.arch {
        command.push_str(&format!(" --arch {arch}"));
    }
    if seqs.is_empty() {
        command.push_str(" --no-timing");
    } else {
        command.push_str(&format!(" --seq {}", seqs.join(",")));
    }
    command.to_lowercase().replace(&path.display().to_string().to_lowercase(), &path.display().to_string())
}
