//! A run against an earlier one that was saved.

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

/// Compares what both reports measured: candidates in their order, times of the same kind.
pub fn compare(old: &Report, new: &Report) -> Vec<Comparison> {
    let pairs = old.candidates.iter().zip(&new.candidates);
    pairs.flat_map(|(old, new)| of_candidates(old, new)).collect()
}

fn of_candidates(old: &Candidate, new: &Candidate) -> Vec<Comparison> {
    let kind = |s: &Speed| (s.seq, s.cache.clone(), s.clock.clone(), s.method.clone(), s.weights.clone());
    let mut comparisons = Vec::new();
    for s in new.speed.iter().filter(|s| s.headline) {
        let Some(before) = old.speed.iter().find(|o| kind(o) == kind(s)) else { continue };
        let ratio = unpaired(&before.samples, &s.samples, Stream::new(s.seq as u64, 4));
        let what = format!("{}, {}, {}", s.cache, s.clock, s.method);
        let (a, b) = (format!("{} (baseline)", old.name), new.name.clone());
        comparisons.push(Comparison::new(s.seq, &what, &a, &b, s.samples.len(), ratio));
    }
    comparisons
}

/// Fails if anything is slower by surely more than so many percent, and where nothing was compared: then nobody can say.
pub fn judge(comparisons: &[Comparison], percent: Option<f64>) -> Result<(), Failure> {
    let Some(percent) = percent else { return Ok(()) };
    if comparisons.is_empty() {
        let message =
            format!("--fail-on-regression {percent} cannot be answered: the two runs have no timing in common");
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
