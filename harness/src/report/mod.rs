//! What a run found out: the structs behind every output. `SCHEMA` grows when a field changes its meaning.

pub mod csv;
pub mod files;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod svg;
pub mod terminal;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::Accuracy;
use crate::contract::{Errors, Precision};
use crate::machine::Machine;
use crate::plain::line;
use crate::protocol::Loaded;
use crate::reason::{Failure, Reason};
use crate::stats::Summary;
use crate::versus::Comparison;

/// Version of the JSON report.
pub const SCHEMA: u32 = 1;

/// One run of the grader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub harness: String,
    pub date: String,
    /// All random numbers of the run follow from it.
    pub seed: String,
    pub machine: Machine,
    pub suite: String,
    /// What the process exits with; none while the run goes on.
    #[serde(default)]
    pub outcome: Option<Verdict>,
    pub candidates: Vec<Candidate>,
    /// Candidates against each other, and against a baseline.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
}

/// One candidate's grade.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub name: String,
    pub path: String,
    /// SHA-256 of the file.
    pub sha256: String,
    pub device: String,
    pub api: String,
    /// The kernels' architecture, or `cpu`.
    pub arch: String,
    /// The precision asked for.
    #[serde(default)]
    pub precision: Precision,
    /// How buffers crossed between the processes.
    pub crossing: String,
    pub loaded: Loaded,
    /// From the start of the first call until its answer, in ms.
    pub first_call_ms: Option<f64>,
    pub verdict: Verdict,
    pub accuracy: Vec<CaseResult>,
    /// What the errors look like, in words.
    pub precision_class: Option<String>,
    /// The same call gave the same bits.
    pub repeatable: Option<bool>,
    pub traps: Vec<Trap>,
    pub speed: Vec<Speed>,
    pub notes: Vec<String>,
    /// The start of what the candidate printed.
    pub said: String,
}

/// So many of the last lines that a candidate printed are told, and so many characters of each.
const LINES: usize = 5;
const CHARACTERS: usize = 200;

impl Candidate {
    /// The last lines that a candidate has printed that failed, but for its last words where the verdict has them.
    pub fn printed(&self) -> Vec<String> {
        if self.verdict.reason == Reason::Pass {
            return Vec::new();
        }
        let lines = self.said.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut lines: Vec<String> = lines.map(|l| line(l).chars().take(CHARACTERS).collect()).collect();
        lines.pop_if(|last| self.verdict.message.ends_with(&format!("its last words: {last}")));
        lines.split_off(lines.len().saturating_sub(LINES))
    }
}

/// The outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub reason: Reason,
    pub exit_code: u8,
    pub message: String,
    /// The command that does it again.
    pub reproduce: Option<String>,
}

/// One correctness case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    pub case: String,
    pub seq: usize,
    pub official: bool,
    pub pass: bool,
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// What plain fp32 arithmetic makes of the same data, where the case is under a contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32: Option<Errors>,
    /// And what operands rounded to TF32 make of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<Errors>,
    pub message: Option<String>,
}

/// One trap for cheats, sprung or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trap {
    pub name: String,
    pub pass: bool,
    pub detail: String,
}

/// One measured time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Speed {
    pub seq: usize,
    /// `hot` or `cold` (caches flushed before every call).
    pub cache: String,
    /// `device` (events) or `wall` (from the call to everything done).
    pub clock: String,
    /// `per-call` (every call checked, inputs never seen before) `back-to-back` (a run of calls
    /// over its count) or `one-by-one` (each waited for).
    pub method: String,
    /// `fresh` (rewritten before every call) or `fixed`.
    pub weights: String,
    /// This number stands for (seq, cache, clock) in tables and records.
    pub headline: bool,
    /// Times in us.
    #[serde(flatten)]
    pub summary: Summary,
    pub tflops: f64,
    /// The floor's share of the median, where the machine's rates are known.
    pub of_floor: Option<f64>,
    /// Which rule ended the sampling.
    pub ended_by: String,
    /// Samples thrown away because the clock was throttled, or the host late.
    pub discarded: usize,
    pub samples: Vec<f64>,
    /// SM clock of each sample in MHz, where it could be read.
    pub clocks: Vec<Option<f64>>,
    /// Which of several processes of the candidate each sample is from, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<usize>,
}

impl Verdict {
    /// Nothing is wrong.
    pub fn passed() -> Self {
        Self { reason: Reason::Pass, exit_code: Reason::Pass.code(), message: "passed".into(), reproduce: None }
    }
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Self {
        let reason = failure.outcome();
        Self { reason, exit_code: reason.code(), message: failure.message, reproduce: None }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.reason, self.exit_code, self.message)
    }
}

impl Report {
    /// Why the first candidate that failed did.
    pub fn failed(&self) -> Option<Failure> {
        let c = self.candidates.iter().find(|c| c.verdict.reason != Reason::Pass)?;
        Some(Failure::new(c.verdict.reason, c.verdict.message.clone()).during(&c.name))
    }

    /// How it ended, in words.
    pub fn ending(&self) -> String {
        self.outcome.as_ref().map_or_else(|| "the run has not come to its end".into(), ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_never_a_passing_verdict() {
        let verdict = Verdict::from(Failure::new(Reason::Pass, "everything passed"));
        assert_eq!((verdict.reason, verdict.exit_code), (Reason::Selftest, 1));
        assert_eq!(Verdict::from(Failure::new(Reason::Crash, "")).exit_code, 11);
    }
}
