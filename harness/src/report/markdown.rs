//! The report for a pull request or a wiki.

use std::fmt::Write;

use super::Report;

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let machine = report.machine.gpu.as_ref().unwrap_or(&report.machine.cpu);
    let _ = writeln!(out, "# Grades of {}\n\n{machine}, suite {}, seed {}\n", report.date, report.suite, report.seed);
    for c in &report.candidates {
        let passed = c.accuracy.iter().filter(|r| r.pass).count();
        let _ = writeln!(out, "## {}\n", c.name);
        let _ = writeln!(out, "**{}** (exit code {}): {}\n", c.verdict.reason, c.verdict.exit_code, c.verdict.message);
        let _ = writeln!(out, "{passed} of {} cases right.", c.accuracy.len());
        if let Some(precision) = &c.precision_class {
            let _ = writeln!(out, "It {precision}.");
        }
        if !c.speed.is_empty() {
            let _ = writeln!(out, "\n| seq | cache | clock | method | weights | median us | p5 | p95 | n | TFLOP/s |");
            let _ = writeln!(out, "|---:|---|---|---|---|---:|---:|---:|---:|---:|");
        }
        for s in &c.speed {
            let m = &s.summary;
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {:.2} |",
                s.seq, s.cache, s.clock, s.method, s.weights, m.median, m.p5, m.p95, m.n, s.tflops
            );
        }
        out.push('\n');
    }
    for comparison in &report.comparisons {
        let _ = writeln!(out, "- {}", comparison.sentence());
    }
    out
}
