//! The files that the grader writes, and the HTML page in a real browser.

mod common;

use std::path::Path;
use std::process::Command;

use common::{candidate, folder, graded, skipped};

#[test]
fn every_file_is_written_and_the_page_shows_in_a_browser() {
    let folder = folder("page");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let honest = candidate("honest_plain", &folder);
    let wrong = candidate("one_wrong", &folder);
    let (json, html) = (path("r.json"), path("r.html"));
    let (code, said) = graded(&[
        &honest,
        &wrong,
        "--device",
        "cpu",
        "--suite",
        "official",
        "--max-case",
        "16",
        "--quick",
        "--seq",
        "4,16",
        "--json",
        &json,
        "--csv",
        &path("r.csv"),
        "--md",
        &path("r.md"),
        "--junit",
        &path("r.xml"),
        "--html",
        &html,
        "--save-baseline",
        &path("base.json"),
    ]);
    assert_eq!(code, 12, "{said}");
    assert!(said.contains("reproduce: harness/run"), "{said}");

    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the file was written");
    let report: serde_json::Value = serde_json::from_str(&read("r.json")).expect("JSON");
    assert_eq!(report["schema"], 1);
    assert_eq!(report["candidates"][0]["verdict"]["reason"], "pass");
    assert_eq!(report["candidates"][1]["verdict"]["reason"], "wrong-answer");
    assert!(report["candidates"][0]["speed"][0]["samples"].as_array().is_some_and(|s| s.len() >= 3));
    assert!(read("r.csv").lines().count() > 3 && read("r.csv").starts_with("candidate,device,"));
    assert!(read("r.md").contains("**wrong-answer**"));
    assert!(read("r.xml").contains("<failure message="));

    // A run against itself is no regression; the same report twice compares.
    let (code, said) = graded(&["compare", &json, &path("base.json"), "--fail-on-regression", "50"]);
    assert!(code == 0 && said.contains("honest_plain.so"), "{said}");
    slower_is_a_regression(&report, &folder);
    nothing_compared_is_no_pass(&honest, &json);
    let speed = report["candidates"][0]["speed"].as_array().expect("speeds");
    for kind in speed {
        let of = |name: &str| kind[name].as_f64().expect("a number");
        let operations = of("seq") * (2.0 * 7_077_888.0 + 4.0 * 768.0 * of("seq"));
        assert!((of("tflops") * of("median") * 1e6 / operations - 1.0).abs() < 1e-9, "{kind}");
    }
    let drawn = speed.iter().find(|kind| kind["seq"] == 16).expect("single calls at seq 16");
    in_browser(Path::new(&html), drawn["samples"].as_array().map_or(usize::MAX, Vec::len));
}

/// The same report with all times doubled, against the one before; of a steady machine, whatever this one is.
fn slower_is_a_regression(report: &serde_json::Value, folder: &Path) {
    let [steady, slower] = [("steady.json", 1.0), ("slower.json", 2.0)].map(|(name, times)| {
        let mut changed = report.clone();
        for kind in changed["candidates"][0]["speed"].as_array_mut().expect("speeds") {
            for (i, sample) in kind["samples"].as_array_mut().expect("samples").iter_mut().enumerate() {
                *sample = (times * (1000.0 + i as f64)).into();
            }
        }
        let path = folder.join(name).display().to_string();
        std::fs::write(&path, changed.to_string()).expect("a file for the test");
        path
    });
    let (code, said) = graded(&["compare", &steady, &slower, "--fail-on-regression", "50"]);
    assert!(code == 21 && said.contains("SLOWER"), "{code}: {said}");
    let (code, said) = graded(&["compare", &slower, &steady, "--fail-on-regression", "50"]);
    assert!(code == 0 && said.contains("FASTER"), "{code}: {said}");
}

/// The line that is printed, given to a shell: the same candidate fails in the same words.
#[test]
fn what_is_told_to_reproduce_a_failure_does() {
    let folder = folder("it's reproduced");
    let wrong = candidate("one_wrong", &folder);
    // Quiet: how far a run has got depends on its time.
    let options = "--device cpu --suite full --max-case 3 --timeout 9 --weights fixed --quick --no-timing --copies --processes 2 --quiet";
    let (code, said) = graded(&[&[wrong.as_str()], &options.split(' ').collect::<Vec<_>>()[..]].concat());
    let (_, line) = said.split_once("  reproduce: harness/run ").expect("a line to reproduce it");
    let line = line.lines().next().expect("a command");
    assert!(code == 12 && line.contains(options) && line.contains(" --seed 0x"), "{code}:\n{said}");
    let again = format!("{} {line}", env!("CARGO_BIN_EXE_harness"));
    let output = Command::new("sh").args(["-c", &again]).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = |said: &str| said.split_once("  FAIL  wrong-answer").map(|(_, rest)| rest.to_string());
    assert_eq!((output.status.code(), verdict(&told)), (Some(12), verdict(&said)), "{again}");
}

/// Lengths that the baseline does not have, and a limit that is no number.
fn nothing_compared_is_no_pass(honest: &str, json: &str) {
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--quick", "--seq", "3"];
    let against = ["--baseline", json, "--fail-on-regression", "1"];
    let (code, said) = graded(&[&[honest], &short[..], &against[..]].concat());
    assert!(code == 2 && said.contains("no timing in common"), "{code}: {said}");
    let (code, said) = graded(&["compare", json, json, "--fail-on-regression", "nan"]);
    assert!(code == 2 && said.contains("no percentage"), "{code}: {said}");
}

fn in_browser(html: &Path, samples: usize) {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let page = format!("file://{}", html.display());
    let open = |name: &&str| {
        let mut command = Command::new(name);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--dump-dom", &page]).output().ok().filter(|o| o.status.success())
    };
    let Some(output) = names.iter().find_map(open) else {
        skipped("no Chromium on this machine to show the page in");
        return;
    };
    let dom = String::from_utf8_lossy(&output.stdout);
    for part in
        ["solve() graded on", "Time over seq_len, hot", "error by case", "single calls at seq 16", "samples in order"]
    {
        assert!(dom.contains(part), "the page lacks {part:?}");
    }
    let count = |what: &str| dom.matches(what).count();
    assert!(count("<svg") >= 4 && count("<svg") == count("</svg>"));
    assert!(count("<circle") >= samples, "{samples} samples, {} drawn", count("<circle"));
    for unwanted in ["<script", "http-equiv", " src=", "NaN"] {
        assert!(!dom.contains(unwanted), "the page holds {unwanted:?}");
    }
}
