//! The cases as JUnit XML, which build servers show.

use std::fmt::Write;

use super::{Candidate, Report};

/// Text inside XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for candidate in &report.candidates {
        suite(&mut out, candidate);
    }
    // A comparison that broke off, or a regression, is no candidate's own.
    let passed = report.outcome.as_ref().is_some_and(|outcome| outcome.exit_code == 0);
    write_suite(&mut out, "the whole run", &[("outcome".into(), (!passed).then(|| report.ending()))]);
    out.push_str("</testsuites>\n");
    out
}

fn suite(out: &mut String, c: &Candidate) {
    let mut cases: Vec<(String, Option<String>)> = Vec::new();
    cases.extend(c.accuracy.iter().map(|r| (r.case.clone(), r.message.clone())));
    cases.extend(c.traps.iter().map(|t| (format!("trap: {}", t.name), (!t.pass).then(|| t.detail.clone()))));
    let verdict = format!("{}: {}", c.verdict.reason, c.verdict.message);
    cases.push(("verdict".into(), (c.verdict.exit_code != 0).then_some(verdict)));
    write_suite(out, &c.name, &cases);
}

/// Cases by their names, with what is wrong where something is.
fn write_suite(out: &mut String, name: &str, cases: &[(String, Option<String>)]) {
    let failures = cases.iter().filter(|case| case.1.is_some()).count();
    let name = escape(name);
    let _ = writeln!(out, "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\">", cases.len());
    for (case, failure) in cases {
        let case = escape(case);
        match failure {
            None => {
                let _ = writeln!(out, "    <testcase classname=\"{name}\" name=\"{case}\"/>");
            }
            Some(message) => {
                let message = escape(message);
                let _ = writeln!(
                    out,
                    "    <testcase classname=\"{name}\" name=\"{case}\"><failure message=\"{message}\"/></testcase>"
                );
            }
        }
    }
    out.push_str("  </testsuite>\n");
}
