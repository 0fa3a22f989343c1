//! Why a grade failed, and the exit code that says so. Codes are stable: append, never renumber.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The outcome of a grade in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Pass,
    Selftest,
    Usage,
    Load,
    Crash,
    WrongAnswer,
    NotFiniteOrUnwritten,
    OutOfBounds,
    InputModified,
    Caching,
    DeferredWork,
    TimingInconsistent,
    Timeout,
    CudaError,
    Regression,
    TooNoisy,
    Environment,
}

/// Every reason with its exit code, its name in reports and what it means.
pub const TABLE: [(Reason, u8, &str, &str); 17] = [
    (Reason::Pass, 0, "pass", "everything passed"),
    (Reason::Selftest, 1, "selftest", "the grader itself failed: a cheat got through, or an honest candidate did not"),
    (Reason::Usage, 2, "usage", "the command line makes no sense"),
    (Reason::Load, 10, "load", "no library, no solve symbol, wrong architecture, or a .cu file that does not compile"),
    (Reason::Crash, 11, "crash", "the candidate's process died, left, or broke the reply channel"),
    (Reason::WrongAnswer, 12, "wrong-answer", "an output is outside the tolerance"),
    (Reason::NotFiniteOrUnwritten, 13, "not-finite-or-unwritten", "an output is NaN, infinite, or was never written"),
    (
        Reason::OutOfBounds,
        14,
        "out-of-bounds",
        "memory beside one of the three buffers was written, or read where there may be none",
    ),
    (Reason::InputModified, 15, "input-modified", "x or weights were changed"),
    (Reason::Caching, 16, "caching", "an answer came from an earlier call or from remembered weights"),
    (Reason::DeferredWork, 17, "deferred-work", "work was still running when the call was over"),
    (
        Reason::TimingInconsistent,
        18,
        "timing-inconsistent",
        "impossible time, clocks disagree, or cache lines left pinned",
    ),
    (Reason::Timeout, 19, "timeout", "a call did not return"),
    (Reason::CudaError, 20, "cuda-error", "the CUDA driver reported an error"),
    (
        Reason::Regression,
        21,
        "regression",
        "slower than the baseline by more than was allowed, or a README that does not show its record",
    ),
    (Reason::TooNoisy, 22, "too-noisy", "the machine is too unsteady for a number"),
    (Reason::Environment, 23, "environment", "no GPU where one was asked for, its memory is taken, or no build"),
];

impl Reason {
    fn row(self) -> &'static (Reason, u8, &'static str, &'static str) {
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// The process's exit code.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        self.row().2
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed step: the reason and one sentence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub reason: Reason,
    /// What happened, in one sentence.
    pub message: String,
}

impl Failure {
    /// A failure for `reason`, told by `message`.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// What the process exits with for it. A failure for the reason that there is none is the grader's own, and never a success.
    pub fn outcome(&self) -> Reason {
        if self.reason == Reason::Pass { Reason::Selftest } else { self.reason }
    }

    /// Puts the circumstances before the sentence.
    pub fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.reason, self.reason.code(), self.message)
    }
}

impl std::error::Error for Failure {}

/// The table of exit codes as text, for `--help`.
pub fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (_, code, name, meaning) in TABLE {
        text.push_str(&format!("  {code:>2}  {name:<24} {meaning}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README's table is this one.
    #[test]
    fn the_readme_lists_every_code() {
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        for (_, code, name, meaning) in TABLE {
            let row = format!("| {code} | `{name}` | {meaning} |");
            assert!(readme.contains(&row), "the README lacks: {row}");
        }
    }

    #[test]
    fn no_failure_ends_in_success() {
        for (reason, code, ..) in TABLE {
            let outcome = Failure::new(reason, "").outcome();
            assert!(outcome.code() != 0 && (code == 0 || outcome == reason), "{reason}");
        }
    }

    #[test]
    fn codes_and_names_are_unique_and_serde_agrees() {
        for (i, a) in TABLE.iter().enumerate() {
            assert_eq!(serde_json::to_value(a.0).unwrap(), a.2);
            assert_eq!(a.0.row().0, a.0);
            assert!(TABLE[i + 1..].iter().all(|b| a.1 != b.1 && a.2 != b.2));
        }
    }
}
