//! Every file that was asked for: tried before anything is measured, and written even when the grade failed.

use std::path::{Path, PathBuf};

use super::{Report, csv, html, json, junit, markdown};
use crate::binary;
use crate::cli::Run;
use crate::floor::Rates;
use crate::plain::plain;
use crate::reason::{Failure, Reason};
use crate::ui::Ui;
use crate::versus::baseline;

/// The files, and what the page needs beside the report.
pub struct Files<'a> {
    args: &'a Run,
    rates: Option<Rates>,
    peers: html::Peers,
}

/// An option with its file, and what is written there.
type Output<'a> = (&'static str, &'a Path, Text);

/// What is in a file.
type Text = fn(&Files, &Report) -> Result<String, Failure>;

impl<'a> Files<'a> {
    /// Fails where one cannot be written in the end.
    pub fn new(args: &'a Run, rates: Option<Rates>) -> Result<Self, Failure> {
        let files = Self { args, rates, peers: html::Peers::read(args.peers.as_deref())? };
        files.check_places()?;
        for (_, path, _) in files.wanted() {
            json::try_to_write(path)?;
        }
        if let Some(path) = files.baseline() {
            json::make_folder(&path)?;
            json::try_to_write(&path)?;
        }
        Ok(files)
    }

    /// Refuses a file whose content would be lost by mistake: of another option, or a library.
    fn check_places(&self) -> Result<(), Failure> {
        let calls = &self.args.calls;
        let candidates =
            calls.lib.iter().chain(&calls.candidates).map(|path| ("a candidate".to_string(), path.as_path()));
        let peers = self.args.peers.iter().map(|path| ("the file of --peers".to_string(), path.as_path()));
        let mut taken: Vec<(String, PathBuf)> =
            candidates.chain(peers).filter_map(|(what, path)| Some((what, json::place(path)?))).collect();
        let baseline = self.baseline();
        let outputs = self.wanted().map(|(option, path, _)| (option, path));
        for (option, path) in outputs.chain(baseline.iter().map(|path| ("--save-baseline", path.as_path()))) {
            let Some(place) = json::place(path) else { continue };
            let refuse =
                |what: &str| Failure::new(Reason::Usage, format!("{option} would replace {}, {what}", path.display()));
            if let Some((what, _)) = taken.iter().find(|(_, other)| *other == place) {
                return Err(refuse(what));
            }
            if binary::is_elf(&place) {
                return Err(refuse("a program or a library"));
            }
            taken.push((format!("the file of {option}"), place));
        }
        Ok(())
    }

    fn wanted(&self) -> impl Iterator<Item = Output<'_>> {
        let all: [(&str, &Option<PathBuf>, Text); 5] = [
            ("--json", &self.args.json, |_, report| json::text(report)),
            ("--csv", &self.args.csv, |_, report| Ok(csv::render(report))),
            ("--md", &self.args.md, |_, report| Ok(markdown::render(report))),
            ("--junit", &self.args.junit, |_, report| Ok(junit::render(report))),
            ("--html", &self.args.html, |files, report| Ok(html::render(report, files.rates.as_ref(), &files.peers))),
        ];
        all.into_iter().filter_map(|(option, path, text)| Some((option, path.as_deref()?, text)))
    }

    fn baseline(&self) -> Option<PathBuf> {
        self.args.save_baseline.as_deref().map(baseline::path)
    }

    /// Writes them all, whatever becomes of one; before the report is complete only those that can be written anew then.
    pub fn write(&self, report: &Report, ui: &Ui) -> Result<(), Failure> {
        let complete = report.outcome.is_some();
        let due = self.wanted().filter(|(_, path, _)| complete || !json::is_stream(path));
        let mut written: Vec<_> = due
            .map(|(_, path, text)| text(self, report).and_then(|text| json::write_text(path, &plain(&text))))
            .collect();
        if let (Some(path), Some(outcome)) = (self.baseline(), &report.outcome) {
            match spared(&path, outcome.reason) {
                Some(sentence) => ui.line(&sentence),
                None => written.push(json::write(&path, report).map(|()| ui.line(&kept(&path, report)))),
            }
        }
        all_or_failures(written)
    }
}

/// What is said where a failed run is not to take the place of an earlier one.
pub fn spared(path: &Path, outcome: Reason) -> Option<String> {
    let spared = outcome != Reason::Pass && path.is_file();
    spared.then(|| format!("{} is left as it was, because this run failed ({outcome})", path.display()))
}

/// What is said of a baseline, which may hold what nothing is compared with.
fn kept(path: &Path, report: &Report) -> String {
    let failed = report.candidates.iter().filter(|c| c.verdict.reason != Reason::Pass);
    let failed: Vec<String> = failed.map(|c| format!("{} ({})", c.name, c.verdict.reason)).collect();
    let kept = format!("baseline kept in {}", path.display());
    if failed.is_empty() { kept } else { format!("{kept}; what failed in it is not compared: {}", failed.join(", ")) }
}

/// All failures as one.
pub fn all_or_failures(all: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let failures: Vec<Failure> = all.into_iter().filter_map(Result::err).collect();
    let Some(first) = failures.first() else { return Ok(()) };
    let messages: Vec<&str> = failures.iter().map(|f| f.message.as_str()).collect();
    Err(Failure::new(first.reason, messages.join("; ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;
    use crate::machine::Machine;

    #[test]
    fn what_can_be_written_is_written_beside_what_cannot() {
        let folder = std::env::temp_dir().join(format!("solve-harness-test-files-{}", std::process::id()));
        let at = |name: &str| folder.join(name).display().to_string();
        std::fs::create_dir_all(folder.join("gone")).unwrap();
        let arguments = ["harness", "--json", &at("gone/r.json"), "--csv", &at("r.csv"), "--md", &at("gone/r.md")];
        let cli = Cli::parse_from(arguments);
        let files = Files::new(&cli.run, None).unwrap();
        std::fs::remove_dir_all(folder.join("gone")).unwrap();
        let report = Report {
            schema: super::super::SCHEMA,
            harness: String::new(),
            date: String::new(),
            seed: String::new(),
            machine: Machine::default(),
            suite: String::new(),
            outcome: None,
            candidates: Vec::new(),
            comparisons: Vec::new(),
        };
        let error = files.write(&report, &Ui::new(true)).unwrap_err().message;
        assert!(error.contains("r.json cannot be written") && error.contains("r.md cannot be written"), "{error}");
        assert!(std::fs::read_to_string(folder.join("r.csv")).unwrap().starts_with("candidate,"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
