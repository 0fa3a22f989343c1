//! The committed record of a run on one GPU: every architecture that it can run, both entry points, all lengths.

mod target;

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::contract::Errors;
use crate::machine::Machine;
use crate::protocol::Loaded;
use crate::reason::{Failure, Reason};
use crate::report::{Candidate, Report};
pub use target::Target;

/// Lengths of a record.
pub const SEQS: [usize; 9] = [1, 16, 64, 128, 256, 512, 1024, 2048, 4096];

/// Version of the file. 1 had no precision but fast, and no other arithmetic beside it; 2 no correctness cases of handles.
const SCHEMA: u32 = 3;

/// The file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    pub gpu: String,
    pub driver: String,
    pub date: String,
    pub build_id: String,
    /// None where they were not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_tests: Option<Tests>,
    pub speed: Vec<Speed>,
    pub accuracy: Vec<Accuracy>,
}

/// How the GPU tests went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tests {
    pub passed: usize,
    pub failed: usize,
    /// Older records do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<usize>,
}

impl Display for Tests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        self.ignored.map_or(Ok(()), |ignored| write!(f, ", {ignored} ignored"))
    }
}

/// One time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    pub seq: usize,
    pub arch: String,
    pub precision: String,
    pub api: String,
    pub cache: String,
    pub clock: String,
    pub median_us: f64,
    pub p5_us: f64,
    pub p95_us: f64,
    pub n: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tflops: Option<f64>,
}

/// One correctness case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    pub case: String,
    pub seq: usize,
    pub arch: String,
    pub precision: String,
    #[serde(default = "solve")]
    pub api: String,
    pub worst_over_tol: f64,
    pub rel_l2_delta: f64,
    pub pass: bool,
    /// What plain fp32 arithmetic and TF32 operands make of the same data, on cases under a contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32: Option<Errors>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<Errors>,
}

/// What the cases of older records went through.
fn solve() -> String {
    "solve".into()
}

/// Three decimals are more than a clock knows.
fn round(v: f64) -> f64 {
    (v * 1e3).round() / 1e3
}

impl Record {
    /// The record of these grades of one library.
    pub fn of(report: &Report, gpu_tests: Option<Tests>) -> Result<Self, Failure> {
        let loaded = report.candidates.first().map(|c| c.loaded.clone()).unwrap_or_default();
        let (build_id, m) = (build_id(&loaded)?, &report.machine);
        Ok(Self {
            schema: SCHEMA,
            gpu: subject(m).to_string(),
            driver: m.driver.clone().unwrap_or_default(),
            date: report.date.clone(),
            build_id,
            gpu_tests,
            speed: report.candidates.iter().flat_map(speeds).collect(),
            accuracy: report.candidates.iter().flat_map(accuracies).collect(),
        })
    }

    /// The file that it belongs into.
    pub fn file(&self, folder: &Path) -> PathBuf {
        file(&self.gpu, folder)
    }

    /// The median of one measurement: arch, precision, api, cache and clock by their names.
    pub fn median(&self, seq: usize, [arch, precision, api, cache, clock]: [&str; 5]) -> Option<f64> {
        let names = |s: &Speed| [&s.arch, &s.precision, &s.api, &s.cache, &s.clock].map(String::clone);
        let here = |s: &&Speed| s.seq == seq && names(s) == [arch, precision, api, cache, clock];
        self.speed.iter().find(here).map(|s| s.median_us)
    }
}

/// What a record is of: the GPU, or the processor where there is none.
fn subject(machine: &Machine) -> &str {
    machine.gpu.as_ref().unwrap_or(&machine.cpu)
}

/// The file's name: the GPU's, in lower case and without the maker's.
/// What a file about this GPU is called.
pub fn file(gpu: &str, folder: &Path) -> PathBuf {
    let name = gpu.to_lowercase().replace("nvidia ", "");
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("{name}.json"))
}

fn build_id(loaded: &Loaded) -> Result<String, Failure> {
    let id = loaded.build_id.clone();
    id.ok_or_else(|| Failure::new(Reason::Usage, "the library has no build id (solve_build_id), which a record needs"))
}

fn speeds(c: &Candidate) -> Vec<Speed> {
    let row = |s: &crate::report::Speed| Speed {
        seq: s.seq,
        arch: c.arch.clone(),
        precision: c.precision.name().into(),
        api: c.api.clone(),
        cache: s.cache.clone(),
        clock: s.clock.clone(),
        median_us: round(s.summary.median),
        p5_us: round(s.summary.p5),
        p95_us: round(s.summary.p95),
        n: s.summary.n,
        tflops: s.tflops.map(round),
    };
    c.speed.iter().filter(|s| s.headline).map(row).collect()
}

fn accuracies(c: &Candidate) -> Vec<Accuracy> {
    let row = |r: &crate::report::CaseResult| Accuracy {
        case: r.case.clone(),
        seq: r.seq,
        arch: c.arch.clone(),
        precision: c.precision.name().into(),
        api: c.api.clone(),
        worst_over_tol: r.accuracy.worst_over_tol,
        rel_l2_delta: r.accuracy.rel_l2_delta,
        pass: r.pass,
        fp32: r.fp32,
        tf32: r.tf32,
    };
    c.accuracy.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format is a promise to whoever reads the file.
    #[test]
    fn the_format_has_exactly_these_fields() {
        let speed = Speed {
            seq: 1024,
            arch: "sm80".into(),
            precision: "fast".into(),
            api: "solve".into(),
            cache: "hot".into(),
            clock: "device".into(),
            median_us: 100.5,
            p5_us: 100.0,
            p95_us: 101.0,
            n: 15,
            tflops: Some(176.0),
        };
        let accuracy = Accuracy {
            case: "official:1".into(),
            seq: 1,
            arch: "sm80".into(),
            precision: "fast".into(),
            api: "solve".into(),
            worst_over_tol: 0.5,
            rel_l2_delta: 4e-4,
            pass: true,
            fp32: None,
            tf32: Some(Errors { worst_over_tol: 0.625, rel_l2_delta: 5e-4, max_abs: 0.25, not_finite: 0 }),
        };
        let record = Record {
            schema: SCHEMA,
            gpu: "NVIDIA H200".into(),
            driver: "580".into(),
            date: "2026-01-01T00:00:00Z".into(),
            build_id: "ab".into(),
            gpu_tests: Some(Tests { passed: 3, failed: 0, ignored: Some(1) }),
            speed: vec![speed],
            accuracy: vec![accuracy],
        };
        let text = r#"{"schema":3,"gpu":"NVIDIA H200","driver":"580","date":"2026-01-01T00:00:00Z","build_id":"ab",
            "gpu_tests":{"passed":3,"failed":0,"ignored":1},
            "speed":[{"seq":1024,"arch":"sm80","precision":"fast","api":"solve","cache":"hot","clock":"device",
                      "median_us":100.5,"p5_us":100.0,"p95_us":101.0,"n":15,"tflops":176.0}],
            "accuracy":[{"case":"official:1","seq":1,"arch":"sm80","precision":"fast","api":"solve","worst_over_tol":0.5,
                         "rel_l2_delta":0.0004,"pass":true,
                         "tf32":{"worst_over_tol":0.625,"rel_l2_delta":0.0005,"max_abs":0.25,"not_finite":0}}]}"#;
        let mut expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Record>(text).unwrap().gpu_tests, record.gpu_tests);
        // Older records do not say how many were ignored, and stay as they are.
        expected["gpu_tests"].as_object_mut().unwrap().remove("ignored");
        let older: Record = serde_json::from_value(expected.clone()).unwrap();
        assert_eq!(older.gpu_tests, Some(Tests { passed: 3, failed: 0, ignored: None }));
        assert_eq!(serde_json::to_value(&older).unwrap(), expected);
        // Tests that were not run have neither passed nor failed.
        expected.as_object_mut().unwrap().remove("gpu_tests");
        let untested = Record { gpu_tests: None, ..record.clone() };
        assert_eq!(serde_json::to_value(&untested).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Record>(expected).unwrap().gpu_tests, None);
        assert_eq!(record.file(Path::new("r")), Path::new("r/h200.json"));
        assert_eq!(record.median(1024, ["sm80", "fast", "solve", "hot", "device"]), Some(100.5));
    }

    #[test]
    fn a_record_has_what_the_report_has_for_tables() {
        let tests = Tests { passed: 3, failed: 1, ignored: Some(0) };
        let record = Record::of(&crate::report::tests::sample(), Some(tests)).unwrap();
        assert_eq!([&record.gpu, &record.driver, &record.build_id], ["NVIDIA G", "580 (CUDA 13.0)", "ab"]);
        assert_eq!((record.gpu_tests, record.speed.len(), record.accuracy.len()), (Some(tests), 1, 1));
        let Speed { median_us, p5_us, p95_us, n, .. } = record.speed[0];
        assert_eq!((median_us, p5_us, p95_us, n), (2.5, 1.25, 3.75, 7));
        assert_eq!(record.median(16, ["sm80", "exact", "solve", "hot", "device"]), Some(2.5));
        let Accuracy { pass, worst_over_tol, fp32, tf32, .. } = &record.accuracy[0];
        assert!(!pass && *worst_over_tol == 4.0 && fp32.is_some() && tf32.is_none());
    }
}
