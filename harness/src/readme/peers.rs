//! PyTorch beside the library: what `harness/peers/peers.py --json` has measured, as the README tells it.

use std::fmt::Write;

use serde::Deserialize;

use crate::check::{ATOL, RTOL};

/// The file.
#[derive(Debug, Deserialize)]
pub struct Peers {
    pub device: String,
    torch: String,
    build_id: String,
    date: String,
    rows: Vec<Row>,
}

/// One contestant at one length.
#[derive(Debug, Deserialize)]
struct Row {
    seq: usize,
    name: String,
    kind: Kind,
    hot_us: f64,
    /// Its result is within the challenge's tolerance.
    passes: bool,
}

/// Whose weights: the caller's fp32 ones in each call, or what has been made of them before.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Stateless,
    Prepared,
}

/// The length of the headline.
const HEADLINE: usize = 1024;

impl Peers {
    fn seqs(&self) -> Vec<usize> {
        let mut seqs: Vec<usize> = self.rows.iter().map(|row| row.seq).collect();
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }

    fn ours(&self, seq: usize, kind: Kind) -> Option<f64> {
        let name = if kind == Kind::Stateless { "libsolve solve()" } else { "libsolve handle" };
        self.rows.iter().find(|row| row.seq == seq && row.name == name).map(|row| row.hot_us)
    }

    /// The fastest that passes; whoever has prepared weights may be served by who needs none, too.
    fn best(&self, seq: usize, kind: Kind, how: &str) -> Option<f64> {
        let peers = self.rows.iter().filter(|row| row.seq == seq && row.passes && row.name.starts_with(how));
        peers.filter(|row| kind == Kind::Prepared || row.kind == kind).map(|row| row.hot_us).reduce(f64::min)
    }

    /// How many times our time the better of both kinds of PyTorch takes.
    fn ratio(&self, seq: usize, kind: Kind) -> Option<f64> {
        let peers = ["eager", "compiled"].into_iter().filter_map(|how| self.best(seq, kind, how));
        Some(peers.reduce(f64::min)? / self.ours(seq, kind)?)
    }

    /// A sentence for the first screen. Of the ratio two decimals: with one it could be above the range that the README has of it. What torch.compile makes of
    /// weights that were cast before scatters by a fifth from run to run, so nothing is said of it.
    pub fn headline(&self) -> String {
        let [solve, handle] = [Kind::Stateless, Kind::Prepared].map(|kind| self.ours(HEADLINE, kind));
        let (Some(solve), Some(handle), Some(ratio)) = (solve, handle, self.ratio(HEADLINE, Kind::Stateless)) else {
            return String::new();
        };
        format!(
            "**{HEADLINE} tokens on an {}: {solve:.1} us** from the caller's fp32 weights, {ratio:.2} times as fast as the fastest that\n\
             PyTorch {}, `torch.compile` included, does within the challenge's tolerance ({ATOL:e} + {RTOL:e} |reference|); \
             {handle:.1} us from prepared weights.\n",
            self.device,
            self.version()
        )
    }

    /// Both kinds of weights, us.
    pub fn table(&self) -> String {
        let seqs = self.seqs();
        let mut out = String::new();
        let header: Vec<String> = seqs.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "| {}, us per call, by seq_len | {} |", self.device, header.join(" | "));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(seqs.len()));
        let mut line = |name: &str, value: &dyn Fn(usize) -> Option<f64>| {
            let cells: Vec<String> =
                seqs.iter().map(|&seq| value(seq).map_or("-".into(), |v| format!("{v:.1}"))).collect();
            let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
        };
        for (kind, name, cast) in
            [(Kind::Stateless, "`solve`", "in each call"), (Kind::Prepared, "prepared handle", "beforehand")]
        {
            line(name, &|seq| self.ours(seq, kind));
            line(&format!("PyTorch, weights cast {cast}"), &|seq| self.best(seq, kind, "eager"));
            line("the same, compiled", &|seq| self.best(seq, kind, "compiled"));
            line("times as fast as the better one", &|seq| self.ratio(seq, kind));
        }
        let day = self.date.split('T').next().unwrap_or_default();
        let build = self.build_id.get(..12).unwrap_or(&self.build_id);
        let _ = writeln!(out, "\nMedians of {day}, PyTorch {}, build `{build}`.", self.version());
        out
    }

    /// Without what it was built for (2.11.0+cu130).
    fn version(&self) -> &str {
        self.torch.split('+').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> Peers {
        let row = |seq, name: &str, kind, hot_us, passes| Row { seq, name: name.into(), kind, hot_us, passes };
        let rows = vec![
            row(1024, "libsolve solve()", Kind::Stateless, 40.0, true),
            row(1024, "libsolve solve(), exact", Kind::Stateless, 100.0, true),
            row(1024, "libsolve handle", Kind::Prepared, 30.0, true),
            row(1024, "eager fp32", Kind::Stateless, 200.0, true),
            row(1024, "eager TF32", Kind::Stateless, 50.0, false),
            row(1024, "eager fp16, cast per call", Kind::Stateless, 120.0, true),
            row(1024, "eager fp16, prepared", Kind::Prepared, 90.0, true),
            row(1024, "compiled fp16, cast per call", Kind::Stateless, 100.0, true),
            row(1024, "compiled fp16, prepared", Kind::Prepared, 110.0, true),
            row(1, "libsolve solve()", Kind::Stateless, 10.0, true),
            row(1, "libsolve handle", Kind::Prepared, 5.0, true),
            row(1, "eager fp32", Kind::Stateless, 20.0, true),
            row(1, "eager fp16, prepared", Kind::Prepared, 30.0, true),
        ];
        let [device, torch, build_id, date] =
            ["NVIDIA X", "2.11.0+cu130", "0123456789abcdef", "2026-01-02T03:04:05Z"].map(String::from);
        Peers { device, torch, build_id, date, rows }
    }

    /// What fails the tolerance counts for nothing, a stateless peer may serve prepared weights, and a prepared one no others.
    #[test]
    fn the_fastest_that_passes_is_compared() {
        let table = peers().table();
        let expected = "\
| NVIDIA X, us per call, by seq_len | 1 | 1024 |
|---|---:|---:|
| `solve` | 10.0 | 40.0 |
| PyTorch, weights cast in each call | 20.0 | 120.0 |
| the same, compiled | - | 100.0 |
| times as fast as the better one | 2.0 | 2.5 |
| prepared handle | 5.0 | 30.0 |
| PyTorch, weights cast beforehand | 20.0 | 90.0 |
| the same, compiled | - | 100.0 |
| times as fast as the better one | 4.0 | 3.0 |

Medians of 2026-01-02, PyTorch 2.11.0, build `0123456789ab`.
";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_headline_is_of_one_length() {
        let headline = peers().headline();
        assert!(headline.starts_with("**1024 tokens on an NVIDIA X: 40.0 us** "), "{headline}");
        assert!(headline.contains("weights, 2.50 times as fast") && headline.contains("; 30.0 us from"), "{headline}");
        assert!(headline.contains(" tolerance (1e-3 + 1e-3 |reference|); "), "{headline}");
    }
}
