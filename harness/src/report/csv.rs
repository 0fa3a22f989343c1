//! All times as one table, a row each.

use std::fmt::Write;

use super::Report;

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut out = String::from(
        "candidate,device,api,arch,precision,seq,cache,clock,method,weights,median_us,p5_us,p95_us,low_us,high_us,n,tflops,of_floor\n",
    );
    for c in &report.candidates {
        for s in &c.speed {
            let m = &s.summary;
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{},{:.3},{:.3},{:.3},{:.3},{:.3},{},{},{}",
                field(&c.name),
                c.device,
                c.api,
                c.arch,
                c.precision.name(),
                s.seq,
                s.cache,
                s.clock,
                s.method,
                s.weights,
                m.median,
                m.p5,
                m.p95,
                m.low,
                m.high,
                m.n,
                s.tflops.map(|f| format!("{f:.3}")).unwrap_or_default(),
                s.of_floor.map(|f| format!("{f:.4}")).unwrap_or_default()
            );
        }
    }
    out
}

/// Quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn awkward_names_are_quoted() {
        assert_eq!(super::field("a,\"b"), "\"a,\"\"b\"");
        assert_eq!(super::field("plain.so"), "plain.so");
    }
}
