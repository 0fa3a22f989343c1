//! The report as text for people.

use super::{Candidate, Speed};
use crate::contract::{Errors, Precision};
use crate::machine::Machine;

/// The first lines: what is graded, where, and whether there is a GPU that it could be.
pub fn header(machine: &Machine, gpu_here: bool) -> Vec<String> {
    let mut lines = Vec::new();
    match &machine.gpu {
        Some(gpu) => {
            let get = |v: &Option<usize>| v.unwrap_or(0);
            lines.push(format!(
                "GPU      {gpu}, {} SMs, {} MiB L2, up to {:.0} MHz, compute {}",
                get(&machine.sms),
                get(&machine.l2_mib),
                machine.max_clock_mhz.unwrap_or(0.0),
                machine.compute_capability.as_deref().unwrap_or("?"),
            ));
            lines.push(format!("driver   {}", machine.driver.as_deref().unwrap_or("?")));
        }
        None if !gpu_here => lines.push("No NVIDIA GPU on this machine: graded on the CPU, on host pointers.".into()),
        None => lines.push("Graded on the CPU, on host pointers, as asked.".into()),
    }
    lines.push(format!("CPU      {}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel));
    lines.push(format!("harness  {}", env!("CARGO_PKG_VERSION")));
    lines
}

/// A candidate's grade.
pub fn candidate(c: &Candidate) -> Vec<String> {
    let what = [&c.path, &c.api, &c.arch].map(String::as_str);
    let what: Vec<&str> = what.into_iter().filter(|word| !word.is_empty()).collect();
    let mut lines = vec![String::new(), format!("{}  ({})", c.name, what.join(", "))];
    if let Some(version) = &c.loaded.version {
        lines.push(format!("  version {version}"));
    }
    if let Some(id) = &c.loaded.build_id {
        lines.push(format!("  build {id}"));
    }
    if c.precision != Precision::Fast {
        lines.push(format!("  asked for {}, and held to what that promises", c.precision.name()));
    }
    if !c.crossing.is_empty() {
        lines.push(format!("  buffers cross by {}", c.crossing));
    }
    correctness(c, &mut lines);
    if !c.traps.is_empty() {
        let sprung: Vec<&str> = c.traps.iter().filter(|t| !t.pass).map(|t| t.name.as_str()).collect();
        let text = if sprung.is_empty() { "none sprung".into() } else { format!("SPRUNG: {}", sprung.join(", ")) };
        lines.push(format!("  traps       {} set, {text}", c.traps.len()));
    }
    speed(&c.speed, &mut lines);
    lines.extend(c.notes.iter().map(|note| format!("  {note}")));
    lines.push(String::new());
    let word = if c.verdict.exit_code == 0 { "PASS" } else { "FAIL" };
    lines.push(format!("  {word}  {} (exit code {})", c.verdict.reason, c.verdict.exit_code));
    if c.verdict.exit_code != 0 {
        lines.push(format!("  {}", c.verdict.message));
    }
    lines.extend(c.printed().iter().map(|line| format!("  it printed: {line}")));
    lines.extend(c.verdict.reproduce.iter().map(|r| format!("  reproduce: {r}")));
    lines
}

fn correctness(c: &Candidate, lines: &mut Vec<String>) {
    if c.accuracy.is_empty() {
        return;
    }
    lines.push(String::new());
    let beside = c.accuracy.iter().any(|r| r.fp32.is_some());
    let more = if beside { "   fp32: worst, L2       TF32: worst, L2" } else { "" };
    lines.push(format!(
        "  {:<20} {:>10} {:>10} {:>12} {:>10}{more}",
        "case", "worst/tol", "of limit", "rel L2 delta", "checked"
    ));
    for r in &c.accuracy {
        let a = &r.accuracy;
        if a.compared == 0 {
            lines.push(format!("  {:<20} {:>10}  FAIL", r.case, "-"));
            lines.extend(r.message.iter().map(|m| format!("    {m}")));
            continue;
        }
        let mark = if r.pass { "" } else { "  FAIL" };
        lines.push(format!(
            "  {:<20} {:>10} {:>10} {:>12.2e} {:>10}{}{}{mark}",
            r.case,
            short(a.worst_over_tol),
            short(a.worst_over_limit),
            a.rel_l2_delta,
            a.compared,
            others(r.fp32.as_ref()),
            others(r.tf32.as_ref())
        ));
        lines.extend(r.message.iter().map(|m| format!("    {m}")));
    }
    let passed = c.accuracy.iter().filter(|r| r.pass).count();
    lines.push(format!("  correctness {passed} of {} cases right", c.accuracy.len()));
    lines.extend(c.precision_class.iter().map(|p| format!("  precision   {p}")));
    lines.extend(c.repeatable.map(|same| {
        format!("  repeatable  {}", if same { "yes, bit for bit" } else { "no: the same call gives other bits" })
    }));
    lines.extend(c.first_call_ms.map(|ms| format!("  first call  {ms:.0} ms")));
}

/// What another arithmetic makes of a case.
fn others(errors: Option<&Errors>) -> String {
    errors.map_or(String::new(), |e| format!(" {:>11} {:>9.2e}", short(e.worst_over_tol), e.rel_l2_delta))
}

/// Three decimals, or powers of ten.
fn short(v: f64) -> String {
    if v < 1e5 { format!("{v:.3}") } else { format!("{v:.0e}") }
}

fn speed(speed: &[Speed], lines: &mut Vec<String>) {
    if speed.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(format!(
        "  {:>6} {:<4} {:<6} {:<12} {:<5} {:>10} {:>10} {:>10} {:>5} {:>8} {:>6}  ended by",
        "seq", "", "clock", "method", "", "median us", "p5", "p95", "n", "TFLOP/s", "floor"
    ));
    for s in speed {
        let floor = s.of_floor.map_or("-".into(), |f| format!("{:.0} %", 100.0 * f));
        let tflops = s.tflops.map_or("-".into(), |f| format!("{f:.2}"));
        let m = &s.summary;
        lines.push(format!(
            "  {:>6} {:<4} {:<6} {:<12} {:<5} {:>10.2} {:>10.2} {:>10.2} {:>5} {tflops:>8} {:>6}  {}",
            s.seq, s.cache, s.clock, s.method, s.weights, m.median, m.p5, m.p95, m.n, floor, s.ended_by
        ));
    }
}
