//! The README's tables of times and of errors, written from the records so that they cannot disagree.

mod numbers;
mod peers;

use std::fmt::Write;
use std::path::Path;

use crate::reason::{Failure, Reason};
use crate::record::{self, Accuracy, Record, SEQS};
use crate::report::json;
use peers::Peers;

/// A table and whether the README must have a place for it.
struct Part {
    what: &'static str,
    text: String,
    required: bool,
}

/// Architectures in the order of the table.
const ARCHS: [&str; 4] = ["sm90a", "sm80", "sm75", "cpu"];

/// Writes the tables into the README, or with `check` only compares.
pub fn update(record: &Path, readme: &Path, check: bool) -> Result<Reason, Failure> {
    let (name, parts) = parts(record)?;
    let text = std::fs::read_to_string(readme)
        .map_err(|e| Failure::new(Reason::Usage, format!("{} cannot be read: {e}", readme.display())))?;
    let mut new = text.clone();
    for Part { what, text, required } in parts {
        let [begin, end] = ["begin", "end"].map(|which| format!("<!-- {name} {what}:{which} -->"));
        if !required && !new.contains(&begin) && !new.contains(&end) {
            continue;
        }
        new = insert(&new, (&begin, &end), &text).ok_or_else(|| {
            Failure::new(Reason::Usage, format!("{} has no lines {begin} and {end}", readme.display()))
        })?;
    }
    if new == text {
        return Ok(Reason::Pass);
    }
    if check {
        let message =
            format!("{} does not agree with {}: run harness/run readme {1} {0}", readme.display(), record.display());
        return Err(Failure::new(Reason::Regression, message));
    }
    json::write_text(readme, &new)?;
    Ok(Reason::Pass)
}

/// The name by which the README's lines call this file, and what stands between them.
fn parts(path: &Path) -> Result<(String, Vec<Part>), Failure> {
    let part = |what, text, required| Part { what, text, required };
    let no_record = |e: String| Failure::new(Reason::Usage, format!("{} is no record: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| no_record(e.to_string()))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| no_record(e.to_string()))?;
    if value.get("torch").is_some() {
        let from: Peers = serde_json::from_value(value).map_err(|e| no_record(e.to_string()))?;
        let name = format!("peers/{}", record::file(&from.device, Path::new("")).display());
        return Ok((name, vec![part("headline", from.headline(), false), part("times", from.table(), true)]));
    }
    let from: Record = serde_json::from_value(value).map_err(|e| no_record(e.to_string()))?;
    let name = from.file(Path::new("")).display().to_string();
    // Every record has its times in the README; one of them its errors, too.
    Ok((name, vec![part("times", table(&from), true), part("errors", numbers::table(&from), false)]))
}

fn insert(text: &str, (begin, end): (&str, &str), table: &str) -> Option<String> {
    let begin = text.find(begin)? + begin.len();
    let end = begin + text[begin..].find(end)?;
    Some(format!("{}\n{table}{}", &text[..begin], &text[end..]))
}

/// The table.
fn table(record: &Record) -> String {
    let mut out = String::new();
    let seqs: Vec<usize> = SEQS.into_iter().filter(|&seq| record.speed.iter().any(|s| s.seq == seq)).collect();
    let header: Vec<String> = seqs.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "| {}, us per call, by seq_len | {} |", record.gpu, header.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(seqs.len()));
    for arch in ARCHS {
        for (precision, api, cache, clock, words) in [
            ("fast", "solve", "hot", "device", "back to back"),
            ("fast", "solve", "cold", "device", "L2 flushed"),
            ("fast", "solve", "hot", "wall", "call to finished"),
            ("fast", "solve", "hot", "host", "host"),
            ("fast", "solve", "hot", "moved", "host, other `x` and `output`"),
            ("fast", "prepared", "hot", "device", "back to back"),
            ("auto", "solve", "hot", "device", "auto, back to back"),
            ("exact", "solve", "hot", "device", "exact, back to back"),
        ] {
            let cell = |&seq: &usize| {
                let median = record.median(seq, [arch, precision, api, cache, clock]);
                median.map_or("-".into(), |us| if us < 1000.0 { format!("{us:.1}") } else { format!("{us:.0}") })
            };
            let cells: Vec<String> = seqs.iter().map(cell).collect();
            if cells.iter().any(|c| c != "-") {
                let name = if api == "solve" { "`solve`" } else { "prepared handle" };
                let _ = writeln!(out, "| {arch} {name}, {words} | {} |", cells.join(" | "));
            }
        }
    }
    let worst = |arch: &str| {
        let fast = |a: &&Accuracy| a.arch == arch && a.precision == "fast";
        let of_arch = record.accuracy.iter().filter(fast).filter(|a| a.case.starts_with("official"));
        of_arch.map(|a| a.worst_over_tol).fold(f64::NAN, f64::max)
    };
    let margins = ARCHS.iter().map(|arch| (arch, worst(arch))).filter(|m| m.1.is_finite());
    let margins: Vec<String> = margins.map(|(arch, worst)| format!("{arch} {worst:.2}")).collect();
    let day = record.date.split('T').next().unwrap_or_default();
    let tests = record.gpu_tests.map_or("not run".into(), |tests| tests.to_string());
    let _ = writeln!(
        out,
        "\nMedians of {day}, driver {}, build `{}`.\nLargest error over the tolerance in the challenge's own cases, under `fast`: {}. GPU tests: {tests}.",
        record.driver,
        record.build_id.get(..12).unwrap_or(&record.build_id),
        margins.join(", ")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_what_is_between_the_markers_and_only_that() {
        let text = "above\n<!-- a -->\nold\n<!-- b -->\nbelow\n";
        let lines = ("<!-- a -->", "<!-- b -->");
        let new = insert(text, lines, "new\n").unwrap();
        assert_eq!(new, "above\n<!-- a -->\nnew\n<!-- b -->\nbelow\n");
        assert_eq!(insert(&new, lines, "new\n").unwrap(), new);
        assert!(insert("nothing", lines, "new").is_none());
    }

    /// As far as the record knows.
    #[test]
    fn the_table_says_how_many_tests_were_ignored() {
        for (ignored, shown) in [("", "3 passed, 1 failed."), (r#","ignored":2"#, "3 passed, 1 failed, 2 ignored.")] {
            let text = format!(
                r#"{{"schema":3,"gpu":"G","driver":"","date":"","build_id":"",
                "gpu_tests":{{"passed":3,"failed":1{ignored}}},"speed":[],"accuracy":[]}}"#
            );
            let table = table(&serde_json::from_str(&text).unwrap());
            assert!(table.ends_with(&format!(" GPU tests: {shown}\n")), "{table}");
        }
    }

    /// The committed README shows the committed records.
    #[test]
    fn readme_and_records_agree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let readme = root.join("../README.md");
        for folder in ["records", "records/peers"] {
            let entries = std::fs::read_dir(root.join(folder)).expect("records in the tree");
            let files: Vec<_> =
                entries.map(|entry| entry.expect("a file").path()).filter(|path| path.is_file()).collect();
            assert!(!files.is_empty(), "{folder}");
            for record in files {
                update(&record, &readme, true).unwrap();
            }
        }
        let text = std::fs::read_to_string(&readme).unwrap();
        for part in [" errors:begin -->", " headline:begin -->"] {
            assert!(text.contains(part), "no record's {part}");
        }
    }

    /// A record without a place, and lines of which one is missing, are errors that leave the README as it is.
    #[test]
    fn missing_lines_are_errors() {
        let folder = std::env::temp_dir().join(format!("libsolve-readme-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let readme = folder.join("README.md");
        let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("records/h200.json");
        let times = "<!-- h200.json times:begin -->\n<!-- h200.json times:end -->\n";
        let half = format!("{times}<!-- h200.json errors:begin -->\n");
        for (text, missing) in [("nothing\n", "times:begin"), (half.as_str(), "errors:end")] {
            std::fs::write(&readme, text).unwrap();
            let error = update(&record, &readme, false).unwrap_err().to_string();
            assert!(error.contains(&format!("<!-- h200.json {missing} -->")), "{error}");
            assert_eq!(std::fs::read_to_string(&readme).unwrap(), text);
        }
        std::fs::write(&readme, times).unwrap();
        update(&record, &readme, false).unwrap();
        let shown = std::fs::read_to_string(&readme).unwrap();
        assert!(shown.contains("| NVIDIA H200, us per call"));
        // What differs is told and left by whoever only looks.
        update(&record, &readme, true).unwrap();
        let old = shown.replace("Medians of 2026", "Medians of 1926");
        std::fs::write(&readme, &old).unwrap();
        assert_eq!(update(&record, &readme, true).unwrap_err().reason, Reason::Regression);
        assert_eq!(std::fs::read_to_string(&readme).unwrap(), old);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
