//! The `run` command: grades the candidates and prints what came out.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::bank::Bank;
use crate::binary::{self, Library};
use crate::cli::{self, Calls, Run};
use crate::compiler;
use crate::gpu::Gpu;
use crate::grade::{Plan, grade};
use crate::machine::{self, Machine};
use crate::plans;
use crate::protocol::Device;
use crate::reason::{Failure, Reason};
use crate::record::Target;
use crate::report::files::{self, Files};
use crate::report::{Report, SCHEMA, Verdict, terminal};
use crate::rng;
use crate::ui::{Ui, complain};
use crate::versus::baseline;
use crate::versus::interleaved::{self, Compared};

/// Runs the command; the reason is what the process exits with.
pub fn run(args: &Run) -> Result<Reason, Failure> {
    let gpu = Machine::gpu(args.calls.device)?;
    let device = plans::device(args.calls.device, gpu.as_ref())?;
    let plan = plans::plan(&args.calls, &args.grading, device, gpu.as_ref());
    let machine = Machine::here(gpu.as_ref().filter(|_| device == Device::Cuda));
    let mut ui = Ui::new(args.quiet);
    let idle = plans::without_effect(&args.calls, &args.grading, device);
    for line in terminal::header(&machine, gpu.is_some()).into_iter().chain(idle) {
        ui.line(&line);
    }
    // What cannot be read or written is known before anything is measured.
    let old = args.baseline.as_ref().map(|name| baseline::read(&baseline::path(name))).transpose()?;
    let candidates = candidates(&args.calls)?;
    let files = Files::new(args, plan.rates)?;
    let record = args.record.then(|| Target::new(args, candidates.len(), &machine)).transpose()?;
    let mut report = Report {
        schema: SCHEMA,
        harness: env!("CARGO_PKG_VERSION").into(),
        date: machine::now(),
        // Whoever reads it could know every input in advance: it is told when the last candidate has gone.
        seed: "told at the end".into(),
        machine,
        suite: format!("{:?}", plan.suite).to_lowercase(),
        outcome: None,
        candidates: Vec::new(),
        comparisons: Vec::new(),
    };
    let mut bank = Bank::new(plan.seed);
    let scratch = Scratch;
    let all = if args.record { plans::record_plans(&plan, gpu.as_ref()) } else { vec![plan.clone()] };
    let mut passed = Vec::new();
    // All are read, and compiled, before the first of them runs, which could put another in their place.
    let libraries = candidates.iter().map(|(_, path)| library(path, &plan, &scratch, gpu.as_ref()));
    let libraries: Vec<_> = libraries.collect();
    for ((name, path), library) in candidates.into_iter().zip(libraries) {
        if let (Some(record), Ok(library)) = (&record, &library) {
            record.accepts(library, &plan)?;
        }
        for plan in &all {
            let mut graded = match &library {
                Ok(library) => grade(library, &name, plan, &mut bank, &mut ui),
                Err(failure) => crate::grade::failed(&path, &name, plan, failure.clone()),
            };
            if graded.verdict.exit_code == 0 {
                passed.extend(library.iter().map(|library| (name.clone(), library.clone())));
            } else {
                graded.verdict.reproduce = Some(cli::reproduce(Some(plan.seed)));
            }
            for line in terminal::candidate(&graded) {
                ui.line(&line);
            }
            report.candidates.push(graded);
            // Written after every candidate: a later one may bring the machine down.
            if let Err(failure) = files.write(&report, &ui) {
                ui.line(&failure.to_string());
            }
        }
    }
    let compares = !args.record && !plan.seqs.is_empty();
    let compared = match passed.len() {
        2.. if compares => interleaved::compare(&passed, &plan, &mut bank, &mut ui),
        _ => Compared::default(),
    };
    report.comparisons = compared.comparisons;
    let against = old.map(|old| baseline::compare(&old, &report)).unwrap_or_default();
    let judged = baseline::judge(&against.comparisons, args.fail_on_regression);
    report.comparisons.extend(against.comparisons);
    for comparison in &report.comparisons {
        ui.line(&comparison.sentence());
    }
    let others = compares && !passed.is_empty();
    let failed = report.candidates.iter().filter(|graded| others && graded.verdict.exit_code != 0);
    let failed = failed.map(|graded| &graded.name).chain(compared.failed.iter().map(|(k, _)| &passed[*k].0));
    let failed = failed.map(|name| format!("{name} has failed"));
    for sentence in failed.chain(against.left_out) {
        ui.line(&format!("not compared: {sentence}"));
    }
    report.seed = format!("{:#x}", plan.seed);
    ui.line(&format!("seed {}", report.seed));
    ui.finish();
    // A candidate that failed may have no times to compare.
    let broken_off = compared.failed.into_iter().next().map(|(_, failure)| failure);
    let untold = broken_off.or_else(|| judged.err().filter(|_| report.failed().is_none()));
    finish(report, untold, &files, record.as_ref(), &ui)
}

/// Notes how the run ended and writes everything. What went wrong outside the candidates is still to be told.
fn finish(
    mut report: Report,
    untold: Option<Failure>,
    files: &Files,
    record: Option<&Target>,
    ui: &Ui,
) -> Result<Reason, Failure> {
    let outcome: Verdict =
        untold.clone().or_else(|| report.failed()).map_or_else(Verdict::passed, |failure| failure.into());
    let reason = outcome.reason;
    report.outcome = Some(outcome);
    let written = files.write(&report, ui);
    let recorded = record.map_or(Ok(()), |record| record.write(&report, ui));
    let written = files::all_or_failures([written, recorded]);
    if reason == Reason::Pass {
        return written.map(|()| reason);
    }
    if let Err(failure) = written {
        complain(format_args!("{failure}"));
    }
    untold.map_or(Ok(reason), Err)
}

/// The library itself, or what a source file compiles to.
pub fn library(path: &Path, plan: &Plan, scratch: &Scratch, gpu: Option<&Gpu>) -> Result<Library, Failure> {
    binary::ends(path)?;
    if path.extension().is_none_or(|e| e != "cu") {
        return Ok(Library::of(path));
    }
    if !path.exists() {
        return Err(Failure::new(Reason::Load, format!("{} does not exist", path.display())));
    }
    // Nothing is compiled that could not run: the exit code is the same with and without a compiler.
    if plan.device == Device::Cpu {
        let message = format!("{} cannot be graded on the CPU: a .cu candidate needs a GPU", path.display());
        return Err(Failure::new(Reason::Environment, message));
    }
    compiler::compile(path, &scratch.path()?, gpu).map(|compiled| Library::of(&compiled))
}

/// Where the folder for compiled candidates is, if there is one.
static MADE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A folder for compiled candidates, made when it is asked for and gone at the end.
pub struct Scratch;

impl Scratch {
    /// Where it is. Nobody else has made it, nor knew its name, and what is in it runs.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*made {
            return Ok(folder.clone());
        }
        let folder = std::env::temp_dir().join(format!("solve-harness-{:016x}", rng::secret()));
        let private = DirBuilder::new().mode(0o700).create(&folder);
        private.map_err(|e| Failure::new(Reason::Environment, format!("{}: {e}", folder.display())))?;
        Ok(made.insert(folder).clone())
    }

    /// For an end that drops nothing.
    pub fn remove() {
        // Locked until it is gone: whoever ends the process meanwhile waits for that.
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.take().map(std::fs::remove_dir_all);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        Self::remove();
    }
}

/// Candidates with the names to print: of the file, or the path where two files have one name.
pub fn candidates(args: &Calls) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut paths: Vec<PathBuf> = args.lib.iter().chain(&args.candidates).cloned().collect();
    if paths.is_empty() {
        paths.push(own_library()?);
    }
    let name = |path: &Path| {
        let alone = paths.iter().filter(|other| other.file_name() == path.file_name()).count() == 1;
        let file = path.file_name().filter(|_| alone);
        file.map_or_else(|| path.display().to_string(), |file| file.to_string_lossy().into_owned())
    };
    Ok(paths.iter().map(|path| (name(path), path.clone())).collect())
}

/// This project's library: beside the harness in a bundle, and in a build folder too.
pub fn own_library() -> Result<PathBuf, Failure> {
    let folder = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())).unwrap_or_default();
    let missing = || format!("no libsolve.so beside the harness in {}: name a library to grade", folder.display());
    let found = Some(folder.join("libsolve.so")).filter(|path| path.exists());
    found.ok_or_else(|| Failure::new(Reason::Load, missing()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_folder_for_compiled_candidates_is_made_once_for_the_grader_alone() {
        let scratch = Scratch;
        let folder = scratch.path().unwrap();
        assert_eq!(scratch.path().unwrap(), folder);
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!folder.exists());
        let scratch = Scratch;
        assert_ne!(scratch.path().unwrap(), folder);
    }

    #[test]
    fn candidates_of_one_file_name_are_told_by_their_paths() {
        let cli = Cli::parse_from(["harness", "--lib", "old/lib.so", "new/lib.so", "new/other.so"]);
        let names: Vec<String> = candidates(&cli.run.calls).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["old/lib.so", "new/lib.so", "other.so"]);
    }
}
