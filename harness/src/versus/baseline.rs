//! A run against an earlier one that was saved.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Comparison, unpaired};
use crate::reason::{Failure, Reason};
use crate::report::{Candidate, Report, Speed};
use crate::rng::Stream;
use crate::tree;

/// Where a baseline of this name is: a file as it is, a bare name below the build folder.
pub fn path(name: &str) -> PathBuf {
    let as_given = PathBuf::from(name);
    if name.contains('/') || name.ends_with(".json") {
        return as_given;
    }
    let folder = tree::root().map_or_else(|| PathBuf::from("."), |root| root.join("target/baselines"));
    folder.join(format!("{name}.json"))
}

/// Reads a report.
pub fn read(path: &Path) -> Result<Report, Failure> {
    let failed = |e: String| Failure::new(Reason::Usage, format!("{} is no report: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let report: Report = serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?;
    if report.schema != crate::report::SCHEMA {
        return Err(failed(format!("schema {}, this grader knows {}", report.schema, crate::report::SCHEMA)));
    }
    Ok(report)
}

/// What two reports measured alike, and in sentences what only one of them did.
#[derive(Default)]
pub struct Compared {
    pub comparisons: Vec<Comparison>,
    pub left_out: Vec<String>,
}

/// Compares what both reports measured on the same processor through the same entry point, with the same kernels and in the same precision: such candidates
/// in their order, times of the same kind. The times of one that failed say nothing.
pub fn compare(old: &Report, new: &Report) -> Compared {
    let mut compared = Compared::default();
    let mut before: Vec<&Candidate> = told(old).collect();
    for c in told(new) {
        let like = before.iter().position(|b| conditions(old, b) == conditions(new, c)).map(|at| before.remove(at));
        let why = failed(old, like, " in the baseline").or_else(|| failed(new, Some(c), ""));
        match (like, why) {
            (_, Some(why)) => compared.left_out.push(why),
            (Some(like), None) => of_candidates(like, c, &mut compared),
            (None, None) => compared.left_out.push(format!("{} has no times in the baseline", described(new, c))),
        }
    }
    for b in before {
        let only = || format!("{} has times in the baseline only", described(old, b));
        compared.left_out.push(failed(old, Some(b), " in the baseline").unwrap_or_else(only));
    }
    compared
}

/// Candidates that have times, or none because they failed.
fn told(report: &Report) -> impl Iterator<Item = &Candidate> {
    report.candidates.iter().filter(|c| c.verdict.reason != Reason::Pass || c.speed.iter().any(|s| s.headline))
}

/// What is said of a candidate whose times say nothing.
fn failed(report: &Report, c: Option<&Candidate>, when: &str) -> Option<String> {
    let c = c.filter(|c| c.verdict.reason != Reason::Pass)?;
    Some(format!("{} failed{when} ({})", described(report, c), c.verdict.reason))
}

/// Where these differ, times say nothing about the libraries.
fn conditions<'a>(report: &'a Report, c: &'a Candidate) -> [&'a str; 5] {
    let (machine, on_cpu) = (&report.machine, c.device == "cpu");
    let processor = machine.gpu.as_deref().filter(|_| !on_cpu).unwrap_or(&machine.cpu);
    [processor, &c.device, &c.api, &c.arch, c.precision.name()]
}

fn described(report: &Report, c: &Candidate) -> String {
    let conditions = conditions(report, c).into_iter().filter(|word| !word.is_empty());
    format!("{} ({})", c.name, conditions.collect::<Vec<_>>().join(", "))
}

fn of_candidates(old: &Candidate, new: &Candidate, compared: &mut Compared) {
    let kind = |s: &Speed| (s.seq, s.cache.clone(), s.clock.clone(), s.method.clone(), s.weights.clone());
    let mut unknown = BTreeSet::new();
    for s in new.speed.iter().filter(|s| s.headline) {
        let Some(before) = old.speed.iter().find(|o| kind(o) == kind(s)) else {
            unknown.insert(s.seq);
            continue;
        };
        let ratio = unpaired(&before.samples, &s.samples, Stream::new(s.seq as u64, 4));
        let what = format!("{}, {}, {}", s.cache, s.clock, s.method);
        let (a, b) = (format!("{} (baseline)", old.name), new.name.clone());
        compared.comparisons.push(Comparison::new(s.seq, &what, &a, &b, s.samples.len(), ratio));
    }
    if !unknown.is_empty() {
        let seqs: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        compared.left_out.push(format!("{} has times at seq {} that the baseline has not", new.name, seqs.join(", ")));
    }
}

/// Fails if anything is slower by surely more than so many percent, and where nothing was compared: then nobody can say.
pub fn judge(comparisons: &[Comparison], percent: Option<f64>) -> Result<(), Failure> {
    let Some(percent) = percent else { return Ok(()) };
    if comparisons.is_empty() {
        let message =
            format!("--fail-on-regression {percent} cannot be answered: the two runs have no timing in common");
        return Err(Failure::new(Reason::Usage, message));
    }
    let is_told = |c: &&Comparison| [c.ratio, c.low, c.high].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
    if let Some(untold) = comparisons.iter().find(|c| !is_told(c)) {
        let Comparison { a, b, seq, what, .. } = untold;
        let message = format!(
            "--fail-on-regression {percent} cannot be answered: of {a} and {b} at seq {seq} ({what}) there are no samples, or \
             samples of no time"
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    let slower: Vec<_> = comparisons.iter().filter(|c| c.low > 1.0 + percent / 100.0).collect();
    let Some(worst) = slower.iter().max_by(|a, b| a.low.total_cmp(&b.low)) else { return Ok(()) };
    let message = format!(
        "{} of {} times are surely more than {percent} % longer than before, most of all: {}",
        slower.len(),
        comparisons.len(),
        worst.sentence()
    );
    Err(Failure::new(Reason::Regression, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of candidates by their names, APIs and precisions, on this GPU.
    fn report(gpu: &str, device: &str, candidates: &[(&str, &str, &str)]) -> Report {
        let speed = serde_json::json!([{
            "seq": 16, "cache": "hot", "clock": "wall", "method": "per-call", "weights": "fresh", "headline": true,
            "median": 1.0, "p5": 1.0, "p95": 1.0, "low": 1.0, "high": 1.0, "n": 2, "tflops": 1.0, "of_floor": null,
            "ended_by": "", "discarded": 0, "samples": [1.0, 1.0], "clocks": []
        }]);
        let candidate = |(name, api, precision): &(&str, &str, &str)| {
            serde_json::json!({
                "name": name, "path": "", "sha256": "", "device": device, "api": api, "arch": "sm80",
                "precision": precision, "crossing": "",
                "loaded": {"version": null, "build_id": null, "prepared": false, "load_ms": 0.0},
                "first_call_ms": null, "verdict": {"reason": "pass", "exit_code": 0, "message": "", "reproduce": null},
                "accuracy": [], "precision_class": null, "repeatable": null, "traps": [], "speed": speed, "notes": [],
                "said": ""
            })
        };
        let candidates: Vec<_> = candidates.iter().map(candidate).collect();
        let report = serde_json::json!({
            "schema": 1, "harness": "", "date": "", "seed": "", "suite": "", "candidates": candidates,
            "machine": {"cpu": "C", "cores": 1, "kernel": "", "gpu": gpu}
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn only_like_is_compared_with_like() {
        let old = report("A", "cuda", &[("a", "solve", "fast"), ("a", "prepared", "fast"), ("a", "solve", "exact")]);
        let new = report("A", "cuda", &[("b", "solve", "exact"), ("b", "solve", "fast"), ("c", "solve", "fast")]);
        let compared = compare(&old, &new);
        let pairs: Vec<_> = compared.comparisons.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
        assert_eq!(pairs, [("a (baseline)", "b"), ("a (baseline)", "b")]);
        let left_out = [
            "c (A, cuda, solve, sm80, fast) has no times in the baseline",
            "a (A, cuda, prepared, sm80, fast) has times in the baseline only",
        ];
        assert_eq!(compared.left_out, left_out);
    }

    #[test]
    fn what_failed_is_compared_with_nothing() {
        let names = |names: [&'static str; 3]| report("A", "cuda", &names.map(|name| (name, "solve", "fast")));
        let (mut old, mut new) = (names(["a", "b", "c"]), names(["d", "e", "f"]));
        let wrong = || crate::report::Verdict::from(Failure::new(Reason::WrongAnswer, "wrong"));
        old.candidates[0].verdict = wrong();
        // It failed before it was timed.
        new.candidates[1].verdict = wrong();
        new.candidates[1].speed.clear();
        let compared = compare(&old, &new);
        let pairs: Vec<_> = compared.comparisons.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
        assert_eq!(pairs, [("c (baseline)", "f")]);
        let left_out = [
            "a (A, cuda, solve, sm80, fast) failed in the baseline (wrong-answer)",
            "e (A, cuda, solve, sm80, fast) failed (wrong-answer)",
        ];
        assert_eq!(compared.left_out, left_out);
    }

    /// NaN is above no limit.
    #[test]
    fn samples_that_say_nothing_are_no_pass() {
        let good = report("A", "cuda", &[("a", "solve", "fast"), ("a", "prepared", "fast")]);
        let with = |samples: &[f64]| {
            let mut report = good.clone();
            report.candidates[1].speed[0].samples = samples.to_vec();
            report
        };
        let judged = |old: &Report, new: &Report| judge(&compare(old, new).comparisons, Some(5.0));
        assert!(judged(&good, &good).is_ok());
        for unfit in [with(&[]), with(&[0.0, 0.0]), with(&[0.0, 1.0])] {
            for (old, new) in [(&good, &unfit), (&unfit, &good), (&unfit, &unfit)] {
                let failure = judged(old, new).unwrap_err();
                assert_eq!(failure.reason, Reason::Usage);
                assert!(failure.message.contains("of a (baseline) and a at seq 16"), "{}", failure.message);
            }
        }
    }

    #[test]
    fn another_gpu_matters_where_it_was_used() {
        let of = |gpu, device| report(gpu, device, &[("a", "solve", "fast")]);
        let compared = compare(&of("A", "cuda"), &of("B", "cuda"));
        assert!(compared.comparisons.is_empty() && compared.left_out.len() == 2);
        let compared = compare(&of("A", "cpu"), &of("B", "cpu"));
        assert!(compared.comparisons.len() == 1 && compared.left_out.is_empty());
        assert!(compare(&of("A", "cpu"), &of("A", "cuda")).comparisons.is_empty());
    }

    /// Whatever else is in the baseline before them.
    #[test]
    fn times_of_one_kind_are_compared() {
        let new = report("A", "cuda", &[("a", "solve", "fast")]);
        let others: [fn(&mut Speed); 5] = [
            |s| s.seq = 17,
            |s| s.cache = "cold".into(),
            |s| s.clock = "device".into(),
            |s| s.method = "back-to-back".into(),
            |s| s.weights = "fixed".into(),
        ];
        for (k, other) in others.into_iter().enumerate() {
            let mut old = new.clone();
            let mut speed = old.candidates[0].speed[0].clone();
            other(&mut speed);
            speed.samples = vec![9.0, 9.0];
            old.candidates[0].speed.insert(0, speed);
            let compared = compare(&old, &new);
            assert!(compared.comparisons.len() == 1 && compared.comparisons[0].ratio == 1.0, "kind {k}");
        }
    }

    #[test]
    fn only_what_is_surely_slower_by_more_is_a_regression() {
        let judged = |interval, percent| {
            let comparison = Comparison::new(16, "", "a", "b", 2, interval);
            judge(&[comparison], Some(percent)).err().map(|failure| failure.reason)
        };
        assert_eq!(judged((1.2, 1.06, 1.4), 5.0), Some(Reason::Regression));
        assert_eq!([judged((1.2, 1.04, 1.4), 5.0), judged((0.8, 0.7, 0.9), 5.0)], [None; 2]);
    }

    #[test]
    fn a_bare_name_is_below_the_build_folder_and_a_report_of_another_schema_is_refused() {
        assert!(path("kept").ends_with("target/baselines/kept.json"), "{:?}", path("kept"));
        assert_eq!(["kept.json", "a/kept"].map(path), ["kept.json", "a/kept"].map(PathBuf::from));
        let file = std::env::temp_dir().join(format!("solve-harness-test-schema-{}.json", std::process::id()));
        let report = Report { schema: 2, ..report("A", "cuda", &[]) };
        std::fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
        let refused = read(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(refused.message.ends_with("is no report: schema 2, this grader knows 1"), "{refused}");
    }
}
