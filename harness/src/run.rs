//! The `run` command: grades the candidates and prints what came out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bank::Bank;
use crate::cases::Suite;
use crate::cli::{Run, Weights};
use crate::compiler;
use crate::floor::Rates;
use crate::gpu::Gpu;
use crate::grade::{Plan, grade};
use crate::machine::{self, Machine};
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::record::{Record, Tests};
use crate::report::{Candidate, Report, SCHEMA, json, terminal};
use crate::rng;
use crate::stats::Budget;
use crate::tree;
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
    let scratch = Scratch::new()?;
    let plans = if args.record { record_plans(&plan, gpu.as_ref()) } else { vec![plan] };
    for (name, path) in candidates(args)? {
        for plan in &plans {
            let mut graded = grade_file(&path, &name, plan, &mut bank, &mut ui, &scratch, gpu.as_ref());
            if graded.verdict.exit_code != 0 {
                graded.verdict.reproduce = Some(reproduce(plan, &path));
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
    }
    ui.finish();
    if args.record {
        write_record(args, &report)?;
    }
    Ok(report.reason())
}

/// Grades a library, or a source file after compiling it.
fn grade_file(
    path: &Path,
    name: &str,
    plan: &Plan,
    bank: &mut Bank,
    ui: &mut Ui,
    scratch: &Scratch,
    gpu: Option<&Gpu>,
) -> Candidate {
    if path.extension().is_none_or(|e| e != "cu") {
        return grade(path, name, plan, bank, ui);
    }
    ui.line(&format!("compiling {}", path.display()));
    let compiled = compiler::compile(path, scratch.path(), gpu).and_then(|library| match plan.device {
        Device::Cuda => Ok(library),
        Device::Cpu => Err(Failure::new(Reason::Environment, "a .cu candidate needs a GPU")),
    });
    match compiled {
        Ok(library) => grade(&library, name, plan, bank, ui),
        Err(failure) => crate::grade::failed(path, name, plan, failure),
    }
}

/// A folder for compiled candidates, gone at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one.
    pub fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("solve-harness-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|e| Failure::new(Reason::Environment, format!("{}: {e}", folder.display())))?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every architecture that this GPU can run, both entry points, all lengths.
fn record_plans(plan: &Plan, gpu: Option<&Gpu>) -> Vec<Plan> {
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
                // One set of cases for each architecture, and a short one to be sure of the handle.
                suite: if api == Api::Solve { plan.suite } else { Suite::Official },
                traps: own,
                seqs: crate::record::SEQS.to_vec(),
                fixed: false,
                budget: if own { RECORD } else { RECORD_LOWER },
                arch: arch.clone(),
                ..plan.clone()
            });
        }
    }
    plans
}

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

fn write_record(args: &Run, report: &Report) -> Result<(), Failure> {
    let record =
        Record::of(report, args.gpu_tests.map(|(passed, failed)| Tests { passed, failed }).unwrap_or_default())?;
    if let Some(expected) = tree::expected_build_id()
        && expected != record.build_id
    {
        let message =
            format!("the library (build {}) is not of this tree (build {expected}): no record", record.build_id);
        return Err(Failure::new(Reason::Usage, message));
    }
    let folder = args.record_to.clone().or_else(|| Some(tree::root()?.join("harness/records")));
    let folder =
        folder.ok_or_else(|| Failure::new(Reason::Usage, "no tree to write the record to: use --record-to"))?;
    let path = record.file(&folder);
    json::write(&path, &record)?;
    println!("record written to {}", path.display());
    Ok(())
}

/// The device asked for, or the GPU if there is one.
pub fn device(args: &Run, gpu: Option<&Gpu>) -> Result<Device, Failure> {
    match (args.device, gpu) {
        (Some(Device::Cuda), None) => {
            Err(crate::gpu::open().err().unwrap_or_else(|| Failure::new(Reason::Environment, "no usable GPU")))
        }
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
        budget: match device {
            _ if args.quick => quick,
            Device::Cuda => Budget::FULL,
            // Nothing on a shared processor gets steadier by waiting.
            Device::Cpu => Budget { max_time: Duration::from_secs(6), ..Budget::FULL },
        },
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
