//! Where a record goes. Whatever would keep it from being written is known before anything is measured.

use std::path::PathBuf;

use super::{Record, Tests};
use crate::binary::Library;
use crate::cli::Run;
use crate::grade::Plan;
use crate::machine::Machine;
use crate::reason::{Failure, Reason};
use crate::report::{Report, files, json};
use crate::rig::Rig;
use crate::rng::Stream;
use crate::tree;
use crate::ui::Ui;

/// A record that is to be.
pub struct Target {
    path: PathBuf,
    gpu_tests: Option<Tests>,
}

impl Target {
    /// Fails where nothing could be written in the end.
    pub fn new(args: &Run, candidates: usize, machine: &Machine) -> Result<Self, Failure> {
        if candidates != 1 {
            let message = format!("--record takes one library, and there are {candidates}");
            return Err(Failure::new(Reason::Usage, message));
        }
        let folder = args.record_to.clone().or_else(|| Some(tree::root()?.join("harness/records")));
        let folder =
            folder.ok_or_else(|| Failure::new(Reason::Usage, "no tree to write the record to: use --record-to"))?;
        let path = super::file(super::subject(machine), &folder);
        json::make_folder(&path)?;
        json::try_to_write(&path)?;
        Ok(Self { path, gpu_tests: args.gpu_tests })
    }

    /// Fails where a library is not of this tree. One that does not load is for its grade to tell.
    pub fn accepts(&self, library: &Library, plan: &Plan) -> Result<(), Failure> {
        let Ok(rig) = Rig::start(library, &plan.setup(), Stream::new(plan.seed, 6)) else { return Ok(()) };
        let build_id = super::build_id(&rig.loaded)?;
        match tree::expected_build_id() {
            Some(expected) if expected != build_id => Err(Failure::new(
                Reason::Usage,
                format!(
                    "{} (build {build_id}) is not of this tree (build {expected}): no record of it",
                    library.path.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Writes it, unless a failed run would take the place of an earlier one.
    pub fn write(&self, report: &Report, ui: &Ui) -> Result<(), Failure> {
        let outcome = report.outcome.as_ref().map_or(Reason::Pass, |outcome| outcome.reason);
        if let Some(sentence) = files::spared(&self.path, outcome) {
            ui.line(&sentence);
            return Ok(());
        }
        json::write(&self.path, &Record::of(report, self.gpu_tests)?)?;
        ui.line(&format!("record written to {}", self.path.display()));
        Ok(())
    }
}
