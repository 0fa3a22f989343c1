//! The table of errors: the inputs of the hard suite, each precision, and what TF32 operands and fp32 make of the same data.

use std::fmt::Write;

use crate::cases;
use crate::contract::Errors;
use crate::record::{Accuracy, Record};

/// Precisions in the order of the columns.
const PRECISIONS: [&str; 3] = ["fast", "auto", "exact"];

/// Largest error over the tolerance and relative L2 error; of several lengths the worst of each.
#[derive(Clone, Copy)]
struct Worst(f64, f64);

impl Worst {
    fn of(errors: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        errors.map(|(worst, l2)| Self(worst, l2)).reduce(|a, b| Self(a.0.max(b.0), a.1.max(b.1)))
    }

    fn cell(worst: Option<Self>) -> String {
        worst.map_or("-".into(), |Self(worst, l2)| {
            format!("{}, {}", short(worst), if l2 < 0.1 { format!("{l2:.0e}") } else { format!("{l2:.1}") })
        })
    }
}

/// Three digits.
fn short(v: f64) -> String {
    match v {
        v if v < 0.0095 => format!("{v:.3}"),
        v if v < 9.95 => format!("{v:.2}"),
        v if v < 1e5 => format!("{v:.0}"),
        v => format!("{v:.0e}"),
    }
}

/// The table of the GPU's own architecture, and a line for each one on its promises.
pub fn table(record: &Record) -> String {
    let Some(own) = record.accuracy.first().map(|a| a.arch.as_str()) else { return String::new() };
    let mut out =
        String::from("| input | fast | auto | exact | TF32 operands | fp32 |\n|---|---:|---:|---:|---:|---:|\n");
    row(&mut out, record, own, &["official", "official-zero"], "the challenge's");
    for (name, words) in cases::hard_names() {
        row(&mut out, record, own, &[name], words);
    }
    let kept: Vec<String> = kept(record);
    if !kept.is_empty() {
        let _ = writeln!(out, "\nPromises kept in the record's cases:\n\n{}", kept.join("\n"));
    }
    out
}

fn row(out: &mut String, record: &Record, arch: &str, names: &[&str], words: &str) {
    let here = || {
        let of_names = |a: &&Accuracy| a.arch == arch && a.case.split(':').next().is_some_and(|n| names.contains(&n));
        record.accuracy.iter().filter(of_names)
    };
    let own = |precision: &str| {
        let of = here().filter(|a| a.precision == precision).map(|a| (a.worst_over_tol, a.rel_l2_delta));
        Worst::cell(Worst::of(of))
    };
    let other = |of: fn(&Accuracy) -> Option<Errors>| {
        Worst::cell(Worst::of(here().filter_map(of).map(|e| (e.worst_over_tol, e.rel_l2_delta))))
    };
    let [fast, auto, exact] = PRECISIONS.map(own);
    let (tf32, fp32) = (other(|a| a.tf32), other(|a| a.fp32));
    let cells = [fast, auto, exact, tf32, fp32];
    if cells.iter().any(|c| c != "-") {
        let _ = writeln!(out, "| {words} | {} |", cells.join(" | "));
    }
}

/// A line for each architecture: on how many cases each precision kept its promise, and to how many it was held.
fn kept(record: &Record) -> Vec<String> {
    let mut archs: Vec<&str> = record.accuracy.iter().map(|a| a.arch.as_str()).collect();
    archs.dedup();
    let mut seen = Vec::new();
    archs.retain(|arch| {
        !seen.contains(arch) && {
            seen.push(*arch);
            true
        }
    });
    let mut kept = Vec::new();
    for arch in archs {
        let mut of_arch = Vec::new();
        let solve = PRECISIONS.map(|precision| (precision, "solve", ""));
        for (precision, api, words) in
            [&solve[..1], &[("fast", "prepared", " with a prepared handle")], &solve[1..]].concat()
        {
            let held = |a: &&Accuracy| a.arch == arch && a.precision == precision && a.api == api && a.fp32.is_some();
            let (all, pass) =
                record.accuracy.iter().filter(held).fold((0, 0), |n, a| (n.0 + 1, n.1 + usize::from(a.pass)));
            if all > 0 {
                of_arch.push(format!("{precision}{words} {pass} of {all}"));
            }
        }
        if !of_arch.is_empty() {
            kept.push(format!("- {arch}: {}", of_arch.join(", ")));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuracy(case: &str, precision: &str, worst: f64, fp32: Option<f64>) -> Accuracy {
        let errors = |worst| Errors { worst_over_tol: worst, rel_l2_delta: 1e-6, max_abs: 0.0, not_finite: 0 };
        Accuracy {
            case: case.into(),
            seq: 1,
            arch: "sm90a".into(),
            precision: precision.into(),
            api: "solve".into(),
            worst_over_tol: worst,
            rel_l2_delta: 4.2e-4,
            pass: true,
            fp32: fp32.map(errors),
            tf32: fp32.map(|w| errors(100.0 * w)),
        }
    }

    fn record(accuracy: Vec<Accuracy>) -> Record {
        Record {
            schema: 3,
            gpu: "NVIDIA H200".into(),
            driver: String::new(),
            date: String::new(),
            build_id: String::new(),
            gpu_tests: None,
            speed: Vec::new(),
            accuracy,
        }
    }

    #[test]
    fn each_input_has_a_row_with_the_worst_of_its_lengths() {
        let text = table(&record(vec![
            accuracy("official:4", "fast", 0.61, None),
            accuracy("official-zero:4", "fast", 0.82, None),
            accuracy("qk-x4:64", "fast", 1.4, Some(0.002)),
            accuracy("qk-x4:600", "fast", 1.8, Some(0.001)),
            accuracy("qk-x4:600", "exact", 0.0021, Some(0.001)),
        ]));
        assert!(text.contains("| the challenge's | 0.82, 4e-4 | - | - | - | - |"), "{text}");
        assert!(text.contains("times as large | 1.80, 4e-4 | - | 0.002, 4e-4 | 0.20, 1e-6 | 0.002, 1e-6 |"), "{text}");
        assert!(text.contains("\n- sm90a: fast 2 of 2, exact 1 of 1\n"), "{text}");
    }

    /// A record from before the hard suite shows what it has.
    #[test]
    fn an_early_record_has_a_table_too() {
        let text =
            table(&record(vec![accuracy("qk-x4:130", "fast", 1.8, None), accuracy("v-x4:2", "fast", 1.4, None)]));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(table(&record(Vec::new())), "");
    }
}
