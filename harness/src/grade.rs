//! One candidate's grade, from loading it to its verdict.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::arena::Lay;
use crate::arithmetic;
use crate::bank::Bank;
use crate::binary::{self, Library};
use crate::cases::{self, Case, Suite};
use crate::check::{self, Accuracy};
use crate::child::HANDLE;
use crate::content::Content;
use crate::contract::{Beside, Limits, Precision};
use crate::floor::Rates;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::report::{Candidate, CaseResult, Verdict};
use crate::rig::{Done, Manner, Rig, Setup};
use crate::rng::Stream;
use crate::stats::Budget;
use crate::timing;
use crate::traps;
use crate::ui::Ui;

/// How buffers lie in turns of three cases, in which the weights can stay or be rewritten in place.
const LAYS: [Lay; 4] = [Lay::Device, Lay::Malloc, Lay::First, Lay::Last];

/// What is to be done with a candidate.
#[derive(Clone, Debug)]
pub struct Plan {
    pub device: Device,
    pub api: Api,
    /// `SOLVE_ARCH` for the candidate's process.
    pub arch: Option<String>,
    pub suite: Suite,
    /// Asked of the candidate, and what it is held to.
    pub precision: Option<Precision>,
    /// Lengths to time.
    pub seqs: Vec<usize>,
    /// Correctness cases up to this length.
    pub max_case: usize,
    pub fresh: bool,
    pub fixed: bool,
    pub cold: bool,
    /// Time single calls and those that are waited for too, not only runs.
    pub singles: bool,
    pub traps: bool,
    /// Processes that share the runs of calls.
    pub processes: usize,
    pub budget: Budget,
    /// Calls are made for so long before anything is timed.
    pub warm: Duration,
    pub timeout: Duration,
    /// Stop at the first failure.
    pub fail_fast: bool,
    pub copies: bool,
    pub seed: u64,
    /// Rates of the GPU, if it is to be used.
    pub rates: Option<Rates>,
    pub max_clock_mhz: Option<f64>,
    /// Compute capability of the GPU, if it is to be used.
    pub capability: Option<(i32, i32)>,
}

impl Plan {
    /// The longest sequence of all phases.
    fn max_seq(&self) -> usize {
        let case = self.cases().iter().map(|c| c.seq).max().unwrap_or(1);
        self.seqs.iter().copied().max().unwrap_or(1).max(case).max(traps::SEQ)
    }

    /// What has to be right.
    fn cases(&self) -> Vec<Case> {
        let mut cases = cases::suite(self.suite, self.max_case, &self.seqs, self.seed);
        cases.retain(|case| case.tried(self.precision));
        cases
    }

    /// The contract that this case is under: the one asked for, or that of fast on hard cases. Asking for fast changes
    /// nothing elsewhere.
    fn contract(&self, case: &Case) -> Option<Precision> {
        let asked = self.precision.unwrap_or_default();
        (case.suite == Suite::Hard || asked != Precision::Fast).then_some(asked)
    }

    /// How a candidate's process is started.
    pub fn setup(&self) -> Setup {
        let mut env = Vec::new();
        if self.device == Device::Cpu {
            env.push(("SOLVE_DEVICE".into(), "cpu".into()));
        }
        env.extend(self.arch.iter().map(|arch| ("SOLVE_ARCH".into(), arch.clone())));
        env.extend(self.precision.map(|precision| ("SOLVE_PRECISION".into(), precision.name().into())));
        Setup {
            device: self.device,
            api: self.api,
            env,
            max_seq: self.max_seq(),
            timeout: self.timeout,
            copies: self.copies,
        }
    }
}

/// A grade in the making.
pub struct Grade<'a> {
    pub plan: &'a Plan,
    pub bank: &'a mut Bank,
    pub ui: &'a mut Ui,
    pub report: Candidate,
    pub stream: Stream,
    lib: &'a Library,
}

/// Grades one library. Failures of any kind are in the candidate's verdict.
pub fn grade(lib: &Library, name: &str, plan: &Plan, bank: &mut Bank, ui: &mut Ui) -> Candidate {
    let report = blank(lib, name, plan);
    let stream = Stream::new(plan.seed, 2);
    bank.precision = plan.precision;
    let mut grade = Grade { plan, bank, ui, report, stream, lib };
    let outcome = grade.run();
    let mut report = grade.report;
    if let Err(failure) = outcome {
        report.verdict = failure.into();
    }
    report
}

/// What is said of a library with some functions of a handle but not all: whoever exports these means to have them graded.
fn part_of_a_handle(lacks: &[String]) -> Option<String> {
    let part = (1..HANDLE.len()).contains(&lacks.len());
    part.then(|| format!("it exports a part of a handle only, without {}: --api prepared refuses it", lacks.join(", ")))
}

/// The grade of a candidate that never got as far as being called.
pub fn failed(lib: &Path, name: &str, plan: &Plan, failure: Failure) -> Candidate {
    Candidate { verdict: failure.into(), ..blank(&Library::of(lib), name, plan) }
}

fn blank(lib: &Library, name: &str, plan: &Plan) -> Candidate {
    Candidate {
        name: name.to_string(),
        path: lib.path.display().to_string(),
        sha256: lib.sha256.clone(),
        device: format!("{:?}", plan.device).to_lowercase(),
        api: plan.api.name().into(),
        arch: String::new(),
        precision: plan.precision.unwrap_or_default(),
        crossing: String::new(),
        loaded: Default::default(),
        first_call_ms: None,
        verdict: Verdict::passed(),
        accuracy: Vec::new(),
        precision_class: None,
        repeatable: None,
        traps: Vec::new(),
        speed: Vec::new(),
        notes: Vec::new(),
        said: String::new(),
    }
}

impl Grade<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let cases = self.plan.cases();
        let trapped = self.plan.traps;
        self.ui.expect(1 + cases.len() + timing::steps(self.plan) + if trapped { traps::STEPS } else { 0 });
        self.ui.step("loading");
        binary::check(&self.lib.path, self.plan.capability)?;
        let mut rig = Rig::start(self.lib, &self.plan.setup(), self.stream)?;
        self.report.crossing = rig.crossing.into();
        self.report.loaded = rig.loaded.clone();
        self.report.notes.extend(part_of_a_handle(&rig.loaded.lacks));
        self.report.notes.extend(cases::left_out(self.plan.suite, self.plan.max_case));
        self.report.arch = self.arch();
        let outcome = self.phases(&mut rig, &cases);
        self.report.said = rig.said();
        outcome
    }

    /// Another process of the candidate.
    pub fn another(&self, number: u64) -> Result<Rig, Failure> {
        Rig::start(self.lib, &self.plan.setup(), self.stream.child(90).child(number))
    }

    fn phases(&mut self, rig: &mut Rig, cases: &[Case]) -> Result<(), Failure> {
        let correct = self.correctness(rig, cases);
        self.report.precision_class = arithmetic::class(self.bank, &self.report.accuracy);
        correct?;
        if self.plan.traps {
            traps::spring(self, rig)?;
        }
        timing::measure(self, rig)
    }

    /// All cases of the suite. Wrong answers are collected; anything worse ends it.
    fn correctness(&mut self, rig: &mut Rig, cases: &[Case]) -> Result<(), Failure> {
        let mut first = None;
        for (i, case) in cases.iter().enumerate() {
            self.ui.step(&case.name);
            let lay = LAYS[i / 3 % LAYS.len()];
            let Err(failure) = self.one_case(rig, case, i % 3 == 0, lay) else { continue };
            let failure = failure.during(&case.name);
            let goes_on = matches!(failure.reason, Reason::WrongAnswer | Reason::NotFiniteOrUnwritten);
            first.get_or_insert(failure);
            if self.plan.fail_fast || !goes_on {
                break;
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// A case under its contract, and what other arithmetic makes of it.
    fn under_contract(&mut self, case: &Case) -> (Arc<Content>, Option<Beside>) {
        let content = self.bank.case(case);
        let Some(precision) = self.plan.contract(case) else { return (content, None) };
        let beside = self.bank.beside(case, &content);
        let exact = self.bank.exact(&self.key(case));
        let limits = Limits::of(precision, &beside, case.suite == Suite::Official, exact);
        (Arc::new(Content { limits, ..Content::clone(&content) }), Some(beside))
    }

    fn key(&self, case: &Case) -> String {
        let Case { suite, name, .. } = case;
        format!("{} {} {} {suite:?} {name}", self.report.sha256, self.report.arch, self.report.api)
    }

    fn one_case(&mut self, rig: &mut Rig, case: &Case, twice: bool, lay: Lay) -> Result<(), Failure> {
        let (content, beside) = self.under_contract(case);
        let content = &*content;
        let mut outcome = self.checked(rig, content, &Manner { settle: twice, lay, ..Manner::CAREFUL });
        if twice && let Ok(first) = outcome {
            outcome = self.again(rig, content, first, lay);
        }
        let (accuracy, failure) = match outcome {
            Ok(done) => (done.accuracy, None),
            Err(Wrong { accuracy, failure }) => (accuracy, Some(failure)),
        };
        if self.plan.precision == Some(Precision::Exact) {
            self.bank.saw_exact(self.key(case), accuracy.worst_over_tol);
        }
        self.report.accuracy.push(CaseResult {
            case: case.name.clone(),
            seq: case.seq,
            official: case.suite == Suite::Official,
            pass: failure.is_none(),
            accuracy,
            fp32: beside.map(|b| b.fp32),
            tf32: beside.map(|b| b.tf32),
            message: failure.as_ref().map(ToString::to_string),
        });
        failure.map_or(Ok(()), Err)
    }

    /// The same call once more, which must be as right as the first. Returns the first.
    fn again(&mut self, rig: &mut Rig, content: &Content, first: Done, lay: Lay) -> Result<Done, Wrong> {
        let again = self
            .checked(rig, content, &Manner { lay, ..Manner::CAREFUL })
            .map_err(|wrong| wrong.during("the same call again"))?;
        let same = again.output.iter().zip(&first.output).all(|(a, b)| a.to_bits() == b.to_bits());
        *self.report.repeatable.get_or_insert(true) &= same;
        Ok(first)
    }

    /// A call whose answer must be right. A wrong one is tried again in a process of its own: if it is right
    /// there, the candidate remembers something.
    pub fn checked(&mut self, rig: &mut Rig, content: &Content, manner: &Manner) -> Result<Done, Wrong> {
        let done = rig.call(content, manner).map_err(Wrong::without_numbers)?;
        self.report.first_call_ms.get_or_insert(done.us() / 1e3);
        match content.judge(&done.accuracy) {
            Ok(()) => Ok(done),
            Err(failure) => Err(Wrong { failure: self.alone(content, failure, manner.lay), accuracy: done.accuracy }),
        }
    }

    /// As [`Grade::checked`] for a call that was made elsewhere.
    pub fn diagnose(&self, content: &Content, failure: Failure) -> Failure {
        self.alone(content, failure, Lay::Device)
    }

    /// What a process of its own makes of a call that failed, on buffers that lie so.
    fn alone(&self, content: &Content, failure: Failure, lay: Lay) -> Failure {
        let Ok(mut rig) = Rig::start(self.lib, &self.plan.setup(), self.stream.child(99)) else { return failure };
        let Ok(done) = rig.call(content, &Manner { lay, ..Manner::CAREFUL }) else { return failure };
        if content.judge(&done.accuracy).is_err() {
            return failure;
        }
        let message = format!(
            "right as the first call of a process, wrong after other calls ({}): something is remembered between \
             calls, or not every call does the work",
            failure.message
        );
        Failure::new(Reason::Caching, message)
    }

    /// The architecture whose kernels run: the one asked for, or the best that the library names and the GPU runs.
    fn arch(&self) -> String {
        if self.plan.device == Device::Cpu {
            return "cpu".into();
        }
        if let Some(arch) = &self.plan.arch {
            return arch.clone();
        }
        let version = self.report.loaded.version.as_deref().unwrap_or_default();
        let mut built = version.split_whitespace().filter(|word| runs_on(word, self.plan.capability));
        built.next_back().unwrap_or("native").to_string()
    }
}

/// Whether this is an architecture, such as `sm80`, whose code the GPU runs: later GPUs run it too, but not that of one with an `a`.
fn runs_on(arch: &str, capability: Option<(i32, i32)>) -> bool {
    let Some(number) = arch.strip_prefix("sm") else { return false };
    let (of_one, number) = (number.ends_with('a'), number.trim_end_matches('a').parse::<i32>());
    let (Ok(number), Some((major, minor))) = (number, capability) else { return false };
    if of_one { number == 10 * major + minor } else { number <= 10 * major + minor }
}

/// A call that went wrong, with the comparison where it got that far.
pub struct Wrong {
    pub failure: Failure,
    pub accuracy: Accuracy,
}

impl Wrong {
    fn without_numbers(failure: Failure) -> Self {
        let accuracy = Accuracy {
            worst_over_tol: check::HOPELESS,
            worst_over_limit: check::HOPELESS,
            rel_l2_delta: check::HOPELESS,
            ..Default::default()
        };
        Self { failure, accuracy }
    }

    fn during(self, what: &str) -> Self {
        Self { failure: self.failure.during(what), ..self }
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        wrong.failure
    }
}

/// Is this accuracy good enough?
pub fn judge(accuracy: &Accuracy) -> Result<(), Failure> {
    if accuracy.over == 0 && accuracy.worst_over_limit <= 1.0 {
        return Ok(());
    }
    let at = accuracy.worst.first().map_or(String::new(), |w| {
        format!(", worst at row {} column {}: {}, expected {:.6}", w.row, w.column, w.got, w.expected)
    });
    let message = format!(
        "{} of {} outputs are wrong, by up to {:.3} times the limit{at}",
        accuracy.over, accuracy.compared, accuracy.worst_over_limit
    );
    Err(Failure::new(Reason::WrongAnswer, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::D;

    fn verdict_on(change: impl Fn(&mut Vec<f32>)) -> Result<(), Failure> {
        let x = vec![0.25f32; 2 * D];
        let expected: Vec<f64> = (0..2 * D).map(|i| 1.0 + i as f64 * 1e-3).collect();
        let mut output: Vec<f32> = expected.iter().map(|&v| v as f32).collect();
        change(&mut output);
        judge(&check::compare(&output, &expected, &x, &[0, 1], 0.0))
    }

    #[test]
    fn the_architecture_is_the_best_that_the_gpu_runs() {
        let best = |capability| {
            let built = ["0.1.0", "cuda", "13.0", "sm75", "sm80", "sm90a"];
            built.into_iter().rfind(|word| runs_on(word, Some(capability)))
        };
        let wanted = [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0)].map(best);
        assert_eq!(wanted, [None, Some("sm75"), Some("sm80"), Some("sm80"), Some("sm90a"), Some("sm80")]);
    }

    #[test]
    fn only_the_right_answer_passes() {
        assert!(verdict_on(|_| {}).is_ok());
        for bad in [f32::NAN, f32::INFINITY, 0.0] {
            let failure = verdict_on(|output| output[D + 5] = bad).unwrap_err();
            assert_eq!(failure.reason, Reason::WrongAnswer);
            assert!(failure.message.contains("1 of 1536 outputs are wrong"), "{failure}");
            assert!(failure.message.contains("row 1 column 5"), "{failure}");
        }
    }
}
