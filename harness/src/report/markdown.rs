//! The report for a pull request or a wiki.

use std::fmt::Write;

use super::{Candidate, Report};
use crate::plain::line;

/// Words of others in a line of the report, shown as they are: none is a mark, a link, or a tag, which could hide the rest of the page.
fn shown(words: &str) -> String {
    let mark = |c: char| "\\`*_[]<>&|~#".contains(c);
    line(words).chars().flat_map(|c| mark(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let machine = report.machine.gpu.as_ref().unwrap_or(&report.machine.cpu);
    let _ = writeln!(out, "# Grades of {}\n\n{machine}, suite {}, seed {}\n", report.date, report.suite, report.seed);
    let _ = writeln!(out, "Outcome of the run: {}\n", shown(&report.ending()));
    for c in &report.candidates {
        let passed = c.accuracy.iter().filter(|r| r.pass).count();
        let _ = writeln!(out, "## {}\n", shown(&c.name));
        let _ = writeln!(
            out,
            "**{}** (exit code {}): {}\n",
            c.verdict.reason,
            c.verdict.exit_code,
            shown(&c.verdict.message)
        );
        printed(&mut out, c);
        if !c.accuracy.is_empty() {
            let _ = writeln!(out, "{passed} of {} cases right.", c.accuracy.len());
        }
        if let Some(precision) = &c.precision_class {
            let _ = writeln!(out, "It {precision}.");
        }
        contract(&mut out, c);
        if !c.speed.is_empty() {
            let _ = writeln!(out, "\n| seq | cache | clock | method | weights | median us | p5 | p95 | n | TFLOP/s |");
            let _ = writeln!(out, "|---:|---|---|---|---|---:|---:|---:|---:|---:|");
        }
        for s in &c.speed {
            let m = &s.summary;
            let tflops = s.tflops.map_or("-".into(), |f| format!("{f:.2}"));
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {tflops} |",
                s.seq, s.cache, s.clock, s.method, s.weights, m.median, m.p5, m.p95, m.n
            );
        }
        out.push('\n');
    }
    for comparison in &report.comparisons {
        let _ = writeln!(out, "- {}", shown(&comparison.sentence()));
    }
    out
}

/// Indented, so that it is shown as it is.
fn printed(out: &mut String, c: &Candidate) {
    let lines = c.printed();
    if !lines.is_empty() {
        let _ = writeln!(out, "It printed:\n\n    {}\n", lines.join("\n    "));
    }
}

/// The cases that were held to a precision's promise, beside what other arithmetic makes of them.
fn contract(out: &mut String, c: &Candidate) {
    let cases = || c.accuracy.iter().filter_map(|r| Some((r, r.fp32.as_ref()?, r.tf32.as_ref()?)));
    if cases().next().is_none() {
        return;
    }
    let name = c.precision.name();
    let _ = writeln!(
        out,
        "\n| case | {name}: worst/tol | relative L2 | fp32: worst/tol | relative L2 | TF32: worst/tol | relative L2 | |"
    );
    let _ = writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---|");
    for (r, fp32, tf32) in cases() {
        let _ = writeln!(
            out,
            "| {} | {:.3} | {:.1e} | {:.3} | {:.1e} | {:.3} | {:.1e} | {} |",
            r.case,
            r.accuracy.worst_over_tol,
            r.accuracy.rel_l2_delta,
            fp32.worst_over_tol,
            fp32.rel_l2_delta,
            tf32.worst_over_tol,
            tf32.rel_l2_delta,
            if r.pass { "" } else { "FAIL" }
        );
    }
}
