//! The report as one HTML page that needs nothing else: no script, no font, no network.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;

use super::junit::escape;
use super::svg::{Axis, Mark, Series, chart};
use super::{Candidate, CaseResult, Report, Speed, terminal};
use crate::contract::Precision;
use crate::floor::{self, Rates};
use crate::reason::{Failure, Reason};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1340px;margin:2em auto;padding:0 1em;color:#222}\
main{display:flex;flex-wrap:wrap;gap:1em}figure{margin:0;width:640px}figcaption{font-weight:600}\
svg text{font:11px system-ui,sans-serif;fill:#333}.grid{stroke:#e4e4e4}.axis{stroke:#555;fill:none}\
pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:12px}.pass{color:#06703c}.fail{color:#b00020}";

/// Times of others, as the peers script writes them.
#[derive(Default, Deserialize)]
pub struct Peers {
    rows: Vec<Peer>,
}

#[derive(Deserialize)]
struct Peer {
    seq: usize,
    name: String,
    hot_us: Option<f64>,
}

impl Peers {
    /// Reads the file, where there is one.
    pub fn read(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::default()) };
        let failed = |e: String| Failure::new(Reason::Usage, format!("--peers {}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
    }
}

/// The whole page.
pub fn render(report: &Report, rates: Option<&Rates>, peers: &Peers) -> String {
    let machine = report.machine.gpu.as_ref().unwrap_or(&report.machine.cpu);
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(out, "<title>solve() graded on {}</title><style>{STYLE}</style></head><body>", escape(machine));
    let _ = write!(out, "<h1>solve() graded on {}</h1>", escape(machine));
    let _ = write!(out, "<p>{}, suite {}, seed {}</p>", report.date, escape(&report.suite), report.seed);
    let class = |passed: bool| if passed { "pass" } else { "fail" };
    let passed = report.outcome.as_ref().is_some_and(|outcome| outcome.exit_code == 0);
    let _ = write!(out, "<p class=\"{}\">Outcome of the run: {}</p>", class(passed), escape(&report.ending()));
    for c in &report.candidates {
        let (class, verdict) = (class(c.verdict.exit_code == 0), escape(&c.verdict.to_string()));
        let _ = write!(out, "<h2>{}</h2><p class=\"{class}\">{verdict}</p>", escape(&c.name));
    }
    for c in &report.comparisons {
        let _ = write!(out, "<p>{}</p>", escape(&c.sentence()));
    }
    out.push_str("<main>\n");
    out.push_str(&over_seq(report, rates, peers));
    if let Some(rates) = rates {
        out.push_str(&roofline(report, rates));
    }
    for c in &report.candidates {
        if !c.accuracy.is_empty() {
            out.push_str(&errors(c));
        }
        if let Some(s) = longest(c) {
            out.push_str(&histogram(c, s));
            out.push_str(&over_time(c, s));
        }
    }
    out.push_str("</main>\n");
    for c in &report.candidates {
        let _ = write!(out, "<pre>{}</pre>", escape(&terminal::candidate(c).join("\n")));
    }
    out.push_str("</body></html>\n");
    out
}

fn axis(title: &'static str, log: bool, zero: bool) -> Axis {
    Axis { title, log, zero }
}

fn line(name: &str, mark: Mark, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_string(), mark, points }
}

/// The time that stands for a length: hot on the device, or the wall where there is no other.
fn hot(c: &Candidate) -> Vec<&Speed> {
    let has_device = c.speed.iter().any(|s| s.clock == "device");
    let clock = if has_device { "device" } else { "wall" };
    c.speed.iter().filter(|s| s.headline && s.cache == "hot" && s.clock == clock).collect()
}

fn over_seq(report: &Report, rates: Option<&Rates>, peers: &Peers) -> String {
    let mut series = Vec::new();
    for c in &report.candidates {
        let points = hot(c).iter().map(|s| (s.seq as f64, s.summary.median)).collect();
        let precision = if c.precision == Precision::Fast { String::new() } else { format!(" {}", c.precision.name()) };
        series.push(line(&format!("{} {} {}{precision}", c.name, c.arch, c.api), Mark::Line, points));
    }
    if let Some(rates) = rates {
        let mut seqs: Vec<usize> = report.candidates.iter().flat_map(hot).map(|s| s.seq).collect();
        seqs.sort_unstable();
        seqs.dedup();
        series.push(line("floor", Mark::Dashed, seqs.iter().map(|&s| (s as f64, rates.floor_us(s))).collect()));
    }
    let mut names: Vec<&str> = peers.rows.iter().map(|p| p.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let rows = peers.rows.iter().filter(|p| p.name == name);
        series.push(line(name, Mark::Points, rows.filter_map(|p| Some((p.seq as f64, p.hot_us?))).collect()));
    }
    series.retain(|s| !s.points.is_empty());
    if series.is_empty() {
        return String::new();
    }
    chart("Time over seq_len, hot", &axis("seq_len", true, false), &axis("us per call", true, false), &series)
}

fn roofline(report: &Report, rates: &Rates) -> String {
    let intensity = |seq| floor::flops(seq) / floor::bytes(seq);
    let mut series = Vec::new();
    for c in &report.candidates {
        series.push(line(
            &c.name,
            Mark::Points,
            hot(c).iter().filter_map(|s| Some((intensity(s.seq), s.tflops?))).collect(),
        ));
    }
    let seqs = [1, 4, 16, 64, 256, 1024, 4096];
    let roof = |&seq: &usize| (intensity(seq), (rates.bytes * intensity(seq)).min(rates.flops) / 1e12);
    series.push(line("roof", Mark::Dashed, seqs.iter().map(roof).collect()));
    chart("Roofline", &axis("operations per byte", true, false), &axis("TFLOP/s", true, false), &series)
}

fn errors(c: &Candidate) -> String {
    let values = c.accuracy.iter().enumerate().map(|(i, r)| (i as f64, r.accuracy.worst_over_limit.clamp(1e-6, 100.0)));
    let limit = vec![(0.0, 1.0), (c.accuracy.len().max(1) as f64 - 1.0, 1.0)];
    let mut series =
        vec![line("worst error / limit", Mark::Bars, values.collect()), line("limit", Mark::Dashed, limit)];
    for (k, name) in ["fp32 / tolerance", "TF32 / tolerance"].into_iter().enumerate() {
        let of = |r: &CaseResult| [&r.fp32, &r.tf32][k].as_ref().map(|e| e.worst_over_tol.clamp(1e-6, 100.0));
        let known = c.accuracy.iter().enumerate().filter_map(|(i, r)| Some((i as f64, of(r)?)));
        let known: Vec<(f64, f64)> = known.collect();
        if !known.is_empty() {
            series.push(line(name, Mark::Points, known));
        }
    }
    let title = format!("{}: error by case, in the order of the table below", c.name);
    chart(&title, &axis("case", false, false), &axis("worst / limit", true, false), &series)
}

/// The samples shown: single calls at the longest length.
fn longest(c: &Candidate) -> Option<&Speed> {
    let single = c.speed.iter().filter(|s| s.method == "per-call" && s.cache == "hot" && s.weights == "fresh");
    single.max_by_key(|s| (s.seq, s.clock == "device"))
}

fn histogram(c: &Candidate, s: &Speed) -> String {
    const BINS: usize = 40;
    let (low, high) = (s.summary.p5 * 0.97, s.summary.p95 * 1.03);
    let width = (high - low) / BINS as f64;
    let mut counts = vec![0usize; BINS];
    for v in s.samples.iter().filter(|v| (low..high).contains(*v)) {
        counts[(((v - low) / width) as usize).min(BINS - 1)] += 1;
    }
    let points = counts.iter().enumerate().map(|(i, &n)| (low + (i as f64 + 0.5) * width, n as f64)).collect();
    let title = format!("{}: single calls at seq {}, {}", c.name, s.seq, s.clock);
    chart(&title, &axis("us", false, false), &axis("calls", false, true), &[line("calls", Mark::Bars, points)])
}

fn over_time(c: &Candidate, s: &Speed) -> String {
    let numbered = |values: Vec<f64>| values.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect();
    let relative: Vec<f64> = s.samples.iter().map(|v| v / s.summary.median).collect();
    let mut series = vec![line("time / median", Mark::Points, numbered(relative))];
    let clocks: Vec<f64> = s.clocks.iter().flatten().copied().collect();
    if let Some(max) = clocks.iter().copied().reduce(f64::max) {
        series.push(line("SM clock / max", Mark::Line, numbered(clocks.iter().map(|v| v / max).collect())));
    }
    let title = format!("{}: samples in order at seq {}", c.name, s.seq);
    chart(&title, &axis("sample", false, false), &axis("relative", false, false), &series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn times_of_others_are_drawn_beside() {
        let rows =
            r#"{"rows": [{"seq": 16, "name": "torch", "hot_us": 40.0}, {"seq": 64, "name": "none", "hot_us": null}]}"#;
        let peers: Peers = serde_json::from_str(rows).unwrap();
        let chart = over_seq(&sample(), None, &peers);
        assert!(chart.contains(">torch</text>") && chart.contains("sm80 solve exact</text>"), "{chart}");
        assert!(!chart.contains(">none<") && chart.matches("<circle").count() == 2, "{chart}");
    }
}
