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
use crate::session::THROWN;
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
        let lines = self.said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(THROWN));
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
    /// `hot` or `cold` (caches flushed before every call; on a CPU by a sweep over 128 MiB in the candidate's process, which leaves a part of what larger
    /// caches hold, and which a candidate could undo).
    pub cache: String,
    /// `device` (events), `wall` (from the call to everything done), `host` (until the call returns) or `moved` (the same, where x and output lie
    /// elsewhere than in the call before).
    pub clock: String,
    /// `per-call` (every call checked, inputs never seen before) `back-to-back` (a run of calls
    /// over its count), `one-by-one` (each waited for) or `unwaited` (none).
    pub method: String,
    /// `fresh` (rewritten before every call) or `fixed`.
    pub weights: String,
    /// This number stands for (seq, cache, clock) in tables and records.
    pub headline: bool,
    /// Times in us.
    #[serde(flatten)]
    pub summary: Summary,
    /// Of the operations that the length asks for; no measure of the host's time.
    pub tflops: Option<f64>,
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
pub mod tests {
    use super::*;

    /// A report of one candidate with one case and two kinds of times, of which the first is for tables.
    pub fn sample() -> Report {
        let speed = |method: &str, headline| {
            serde_json::json!({
                "seq": 16, "cache": "hot", "clock": "device", "method": method, "weights": "fixed", "headline": headline,
                "median": 2.5, "p5": 1.25, "p95": 3.75, "low": 2.25, "high": 2.75, "n": 7, "tflops": 1.5, "of_floor": 0.5,
                "ended_by": "precision", "discarded": 0, "samples": [2.5], "clocks": [null]
            })
        };
        let case = serde_json::json!({
            "case": "qk-x4:64", "seq": 64, "official": false, "pass": false, "worst_over_tol": 4.0, "worst_over_limit": 2.0,
            "rel_l2_delta": 5e-4, "gain": 0.0, "max_abs": 0.004, "over": 1, "not_finite": 0, "compared": 49_152, "worst": [],
            "fp32": {"worst_over_tol": 0.25, "rel_l2_delta": 1e-6, "max_abs": 0.25, "not_finite": 0},
            "message": "1 is < \"2\""
        });
        let candidate = serde_json::json!({
            "name": "a \"b\".so", "path": "", "sha256": "", "device": "cuda", "api": "solve", "arch": "sm80",
            "precision": "exact", "crossing": "",
            "loaded": {"version": null, "build_id": "ab", "prepared": false, "load_ms": 0.0}, "first_call_ms": null,
            "verdict": {"reason": "wrong-answer", "exit_code": 12, "message": "wrong", "reproduce": null},
            "accuracy": [case], "precision_class": null, "repeatable": null, "traps": [],
            "speed": [speed("back-to-back", true), speed("per-call", false)], "notes": [], "said": ""
        });
        let report = serde_json::json!({
            "schema": SCHEMA, "harness": "", "date": "2026-01-01T00:00:00Z", "seed": "", "suite": "", "candidates": [candidate],
            "machine": {"cpu": "C", "cores": 1, "kernel": "", "gpu": "NVIDIA G", "driver": "580 (CUDA 13.0)"}
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn every_table_has_its_numbers_in_their_columns() {
        let report = sample();
        let csv = csv::render(&report);
        let row = "\"a \"\"b\"\".so\",cuda,solve,sm80,exact,16,hot,device,back-to-back,fixed,2.500,1.250,3.750,2.250,2.750,7,1.500,0.5000";
        assert!(csv.lines().nth(1) == Some(row), "{csv}");
        let markdown = markdown::render(&report);
        assert!(
            markdown.contains("| 16 | hot | device | back-to-back | fixed | 2.50 | 1.25 | 3.75 | 7 | 1.50 |"),
            "{markdown}"
        );
        let terminal = terminal::candidate(&report.candidates[0]).join("\n");
        let words: Vec<&str> = terminal.split_whitespace().collect();
        let row = "16 hot device back-to-back fixed 2.50 1.25 3.75 7 1.50 50 % precision";
        assert!(words.join(" ").contains(row), "{terminal}");
    }

    #[test]
    fn the_hosts_time_is_no_rate_of_work() {
        let mut report = sample();
        report.candidates[0].speed.truncate(1);
        let host = &mut report.candidates[0].speed[0];
        (host.clock, host.tflops, host.of_floor) = ("host".into(), None, None);
        let csv = csv::render(&report);
        assert!(csv.lines().nth(1).is_some_and(|row| row.contains(",host,") && row.ends_with(",7,,")), "{csv}");
        let markdown = markdown::render(&report);
        assert!(markdown.contains("| 2.50 | 1.25 | 3.75 | 7 | - |"), "{markdown}");
        let terminal = terminal::candidate(&report.candidates[0]).join("\n");
        let words: Vec<&str> = terminal.split_whitespace().collect();
        assert!(words.join(" ").contains("2.50 1.25 3.75 7 - - precision"), "{terminal}");
        let record = crate::record::Record::of(&report, None).expect("a record");
        let row = serde_json::to_value(&record.speed[0]).expect("JSON");
        assert!(row.get("tflops").is_none() && row["clock"] == "host", "{row}");
    }

    #[test]
    fn failures_are_counted_and_words_stay_inside_their_quotes() {
        let xml = junit::render(&sample());
        assert!(xml.contains("<testsuite name=\"a &quot;b&quot;.so\" tests=\"2\" failures=\"2\">"), "{xml}");
        assert!(xml.contains("<failure message=\"1 is &lt; &quot;2&quot;\"/>"), "{xml}");
    }

    #[test]
    fn a_failure_is_never_a_passing_verdict() {
        let verdict = Verdict::from(Failure::new(Reason::Pass, "everything passed"));
        assert_eq!((verdict.reason, verdict.exit_code), (Reason::Selftest, 1));
        assert_eq!(Verdict::from(Failure::new(Reason::Crash, "")).exit_code, 11);
    }
}
