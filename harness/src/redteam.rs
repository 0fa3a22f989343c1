//! The grader graded: candidates that cheat must be caught with the right exit code, honest ones that look
//! suspicious must pass, and wrong blocks must be found wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::bank::Bank;
use crate::binary::Library;
use crate::cases::Suite;
use crate::cli::{Red, Selftest, Wrong};
use crate::compiler;
use crate::gpu;
use crate::grade::{Plan, grade};
use crate::machine::Machine;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::rng::{self, Stream};
use crate::run::Scratch;
use crate::stats::Budget;
use crate::tree;
use crate::ui::{Ui, say};

/// Times that a candidate is graded at most, where the machine is too busy for a verdict.
const CHANCES: usize = 4;

/// A candidate of the red team, as its manifest has it.
#[derive(Deserialize)]
struct Entry {
    name: String,
    device: Device,
    #[serde(default = "solve")]
    api: Api,
    /// Exit codes that are right, the first preferred.
    expect: Vec<u8>,
}

fn solve() -> Api {
    Api::Solve
}

#[derive(Deserialize)]
struct Candidates {
    candidates: Vec<Entry>,
}

/// A wrong block, as its manifest has it.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    expect: Expect,
    why: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Killed,
    Equivalent,
}

#[derive(Deserialize)]
struct Mutants {
    mutants: Vec<Mutant>,
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Failure> {
    let failed = |e: String| Failure::new(Reason::Usage, format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
}

fn root() -> Result<PathBuf, Failure> {
    tree::root().ok_or_else(|| Failure::new(Reason::Usage, "no source tree with harness/redteam in it"))
}

/// Runs a build script into a folder.
fn build(script: &Path, folder: &Path, device: Option<&str>) -> Result<(), Failure> {
    let mut command = Command::new(script);
    command.arg(folder).args(device);
    // What a compiler leaves when it is ended goes with the folder around this one.
    command.envs(folder.parent().map(|around| ("TMPDIR", around)));
    if let Ok(nvcc) = compiler::find() {
        command.env("NVCC_FLAGS", compiler::libraries(&nvcc).unwrap_or_default()).env("NVCC", nvcc);
    }
    let status = command.status();
    if status.as_ref().is_ok_and(|s| s.success()) {
        return Ok(());
    }
    Err(Failure::new(Reason::Environment, format!("{} failed", script.display())))
}

/// Where candidates are that are built already, or will be. One that is not there has no verdict, which could pass for the one expected.
fn folder<'a>(
    built: Option<&Path>,
    scratch: &Scratch,
    name: &str,
    mut wanted: impl Iterator<Item = &'a str>,
) -> Result<PathBuf, Failure> {
    let Some(folder) = built else { return Ok(scratch.path()?.join(name)) };
    let refuse = |words: String| Err(Failure::new(Reason::Usage, format!("--built {}: {words}", folder.display())));
    if !folder.is_dir() {
        return refuse("there is no such folder".into());
    }
    match wanted.find(|name| !folder.join(format!("{name}.so")).is_file()) {
        Some(missing) => refuse(format!("there is no {missing}.so in it")),
        None => Ok(folder.to_path_buf()),
    }
}

/// Two lengths to time, a short one and a longer one, that nobody can know.
fn lengths(seed: u64) -> Vec<usize> {
    let stream = Stream::new(seed, 11);
    vec![9 + stream.below(0, 16), 65 + stream.below(1, 32)]
}

/// An honest candidate that has passed once is graded again on what varies from time to time.
fn again(plan: &Plan, time: usize) -> Plan {
    Plan { suite: Suite::Official, max_case: 16, seqs: vec![plan.seqs[time % 2]], ..plan.clone() }
}

/// What every candidate of the red team goes through: all phases, short.
fn plan(device: Device) -> Result<Plan, Failure> {
    let seed = rng::secret();
    let gpu = Machine::gpu(Some(device))?.filter(|_| device == Device::Cuda);
    Ok(Plan {
        device,
        api: Api::Solve,
        arch: None,
        suite: Suite::Full,
        precision: None,
        seqs: lengths(seed),
        max_case: 520,
        fresh: true,
        fixed: true,
        cold: device == Device::Cpu,
        singles: true,
        traps: true,
        processes: 3,
        budget: Budget {
            min_samples: 8,
            min_time: Duration::ZERO,
            half_width: 0.05,
            max_samples: 12,
            max_time: Duration::from_secs(2),
        },
        warm: Duration::from_millis(100),
        timeout: Duration::from_secs(6),
        fail_fast: true,
        copies: false,
        seed,
        rates: gpu.as_ref().map(crate::floor::Rates::of),
        max_clock_mhz: gpu.as_ref().map(|g| g.max_clock_mhz),
        capability: gpu.map(|g| g.capability),
    })
}

fn all_candidates() -> Result<Candidates, Failure> {
    read(&root()?.join("harness/redteam/candidates.json"))
}

fn all_mutants() -> Result<Mutants, Failure> {
    read(&root()?.join("harness/mutants/mutants.json"))
}

/// Grades the red team.
pub fn redteam(args: &Red) -> Result<Reason, Failure> {
    let device = args.device.unwrap_or(if gpu::present() { Device::Cuda } else { Device::Cpu });
    let all = all_candidates()?;
    let here = all.candidates.iter().filter(|e| e.device == device);
    let what = format!("candidate of the red team for {}", format!("{device:?}").to_lowercase());
    args.names.all_known(&what, here.map(|e| e.name.as_str()))?;
    grade_candidates(args, device, &all)
}

fn grade_candidates(args: &Red, device: Device, all: &Candidates) -> Result<Reason, Failure> {
    // What cannot run is not compiled.
    let plan = plan(device)?;
    let root = root()?;
    let scratch = Scratch;
    let wanted = || all.candidates.iter().filter(|e| e.device == device && args.names.wants(&e.name));
    let folder = folder(args.built.as_deref(), &scratch, "redteam", wanted().map(|e| e.name.as_str()))?;
    if args.built.is_none() {
        let name = if device == Device::Cpu { "cpu" } else { "cuda" };
        build(&root.join("harness/redteam/build"), &folder, Some(name))?;
    }
    let mut bank = Bank::new(plan.seed);
    let (mut right, mut total, mut accepted, mut honest_ones) = (0, 0, 0, 0);
    say!("{:<28} {:>8} {:>4}  {:>6}  what was said", "candidate", "expected", "got", "s");
    for entry in wanted() {
        let honest = entry.expect[0] == 0;
        for time in 0..if honest { args.honest.repeat } else { 1 } {
            let start = Instant::now();
            let plan = Plan { api: entry.api, ..plan.clone() };
            let plan = if time == 0 && !(honest && args.honest.short) { plan } else { again(&plan, time) };
            let library = Library::of(&folder.join(format!("{}.so", entry.name)));
            let mut once = || grade(&library, &entry.name, &plan, &mut bank, &mut Ui::new(true));
            let mut graded = once();
            for _ in 1..CHANCES {
                if graded.verdict.reason == Reason::TooNoisy {
                    graded = once();
                }
            }
            let code = graded.verdict.exit_code;
            let good = entry.expect.contains(&code);
            total += 1;
            right += usize::from(good);
            honest_ones += usize::from(honest);
            accepted += usize::from(honest && good);
            let expected: Vec<String> = entry.expect.iter().map(ToString::to_string).collect();
            let message: String = graded.verdict.message.chars().take(110).collect();
            say!(
                "{:<28} {:>8} {:>4}{} {:>6.1}  {message}",
                entry.name,
                expected.join(","),
                code,
                if good { " " } else { "!" },
                start.elapsed().as_secs_f64()
            );
            if !good {
                say!(
                    "  reproduce: harness/run redteam --device {} {}",
                    format!("{device:?}").to_lowercase(),
                    entry.name
                );
            }
        }
    }
    say!("red team: {right} of {total} verdicts are right; honest candidates accepted: {accepted} of {honest_ones}");
    Ok(if right == total { Reason::Pass } else { Reason::Selftest })
}

/// Grades the wrong blocks by the widest suite.
pub fn mutants(args: &Wrong) -> Result<Reason, Failure> {
    let all = all_mutants()?;
    args.names.all_known("wrong block", all.mutants.iter().map(|m| m.name.as_str()))?;
    grade_mutants(args, &all)
}

fn grade_mutants(args: &Wrong, all: &Mutants) -> Result<Reason, Failure> {
    let root = root()?;
    let scratch = Scratch;
    let wanted = || all.mutants.iter().filter(|m| args.names.wants(&m.name));
    let folder = folder(args.built.as_deref(), &scratch, "mutants", wanted().map(|m| m.name.as_str()))?;
    if args.built.is_none() {
        build(&root.join("harness/mutants/build"), &folder, None)?;
    }
    let plan = Plan { suite: Suite::Extreme, max_case: 1025, traps: false, seqs: Vec::new(), ..plan(Device::Cpu)? };
    let mut bank = Bank::new(plan.seed);
    let (mut killed, mut wrong, mut equivalent, mut surprises) = (0, 0, 0, 0);
    for mutant in wanted() {
        let library = Library::of(&folder.join(format!("{}.so", mutant.name)));
        let graded = grade(&library, &mutant.name, &plan, &mut bank, &mut Ui::new(true));
        let dead = graded.verdict.exit_code != 0;
        let by = graded.accuracy.iter().find(|r| !r.pass).map_or("survives", |r| &r.case);
        let expected = dead == (mutant.expect == Expect::Killed);
        surprises += usize::from(!expected);
        if mutant.expect == Expect::Killed {
            wrong += 1;
            killed += usize::from(dead);
        } else {
            equivalent += 1;
        }
        let why = mutant.why.as_deref().filter(|_| mutant.expect == Expect::Equivalent).unwrap_or_default();
        say!("{:<24} {by:<18}{} {why}", mutant.name, if expected { " " } else { "!" });
    }
    say!("mutation score: {killed} of {wrong} wrong blocks are found wrong; {equivalent} others are equivalent");
    Ok(if surprises == 0 { Reason::Pass } else { Reason::Selftest })
}

/// Everything by which the grader can be trusted.
pub fn selftest(args: Selftest) -> Result<Reason, Failure> {
    let (wrong, red) = (all_mutants()?, all_candidates()?);
    let gradable = red.candidates.iter().filter(|e| e.device == Device::Cpu || gpu::present());
    let names = wrong.mutants.iter().map(|m| m.name.as_str()).chain(gradable.map(|e| e.name.as_str()));
    args.names.all_known("wrong block, and of no candidate of the red team that can be graded here", names)?;
    let mutants = grade_mutants(&Wrong { names: args.names.clone(), built: None }, &wrong)?;
    let args = Red { names: args.names, device: None, built: None, honest: args.honest };
    let reason = grade_candidates(&args, Device::Cpu, &red)?;
    let worst = if mutants == Reason::Pass { reason } else { mutants };
    if !gpu::present() || worst != Reason::Pass {
        return Ok(worst);
    }
    grade_candidates(&args, Device::Cuda, &red)
}
