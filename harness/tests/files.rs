//! Which files the grader writes and which it leaves alone, and that each of them says how the run as a whole ended.

mod common;

use std::path::Path;

use common::{candidate, compiled, folder, graded};

const SHORT: [&str; 7] = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"];

/// Without these a library's other functions are not called.
const HANDLE: &str =
    "void solve_block_create(void) {}\nvoid solve_block_forward(void) {}\nvoid solve_block_update(void) {}\n";

fn run(candidate: &str, options: &[&str]) -> (i32, String) {
    graded(&[&[candidate], &SHORT[..], options].concat())
}

#[test]
fn what_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = folder("unwritable");
    let honest = candidate("honest_plain", &folder);
    // Nothing can be below a file, whoever asks.
    let below = format!("{honest}/report");
    let at = folder.to_str().expect("a path in UTF-8");
    for option in ["--json", "--csv", "--md", "--junit", "--html", "--save-baseline"] {
        let (code, said) = run(&honest, &[option, if option == "--save-baseline" { &below } else { at }]);
        assert!(code == 2 && said.contains("cannot be written"), "{option}: {code}:\n{said}");
        assert!(!said.contains("correctness"), "{option} was tried too late:\n{said}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1, "something was left");
    let (code, said) = graded(&[&honest, "--device", "cpu", "--record", "--record-to", &below]);
    assert!(code == 2 && said.contains("cannot be written") && !said.contains("correctness"), "{code}:\n{said}");
}

/// A slip of the pen would cost a library or a report.
#[test]
fn no_file_is_replaced_that_is_something_else() {
    let folder = folder("replaced");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let honest = candidate("honest_plain", &folder);
    let other = path("other.so");
    std::fs::copy(&honest, &other).expect("another library");
    std::os::unix::fs::symlink("other.so", path("link")).expect("a link");
    std::os::unix::fs::symlink("dangling", path("new")).expect("a link");
    std::fs::write(path("peers.json"), r#"{"torch": "", "device": "", "rows": [], "summary": []}"#).expect("a file");
    std::fs::write(path("mine.cu"), "// mine\n").expect("a file");
    let library = std::fs::read(&honest).expect("a library");
    let (peers, again, mine) = (path("peers.json"), path("../replaced/a"), path("mine.cu"));
    let table: [(&[&str], &str); 9] = [
        (&["--json", &honest], "--json would replace"),
        (&["--md", &path("link")], "a program or a library"),
        (&["--save-baseline", &other], "--save-baseline would replace"),
        (&["--csv", &mine, &mine], "mine.cu, a candidate"),
        (&["--html", &peers, "--peers", &peers], "peers.json, the file of --peers"),
        (&["--json", &path("a"), "--csv", &again], "replaced/a, the file of --json"),
        (&["--junit", &path("new"), "--html", &path("dangling")], "dangling, the file of --junit"),
        (&["--md", &path("b.json"), "--save-baseline", &path("b.json")], "b.json, the file of --md"),
        (&["--json", &honest, "--md", "/dev/null"], "honest_plain.so, a candidate"),
    ];
    for (options, words) in table {
        let (code, said) = run(&honest, options);
        assert!(code == 2 && said.contains(words) && !said.contains("correctness"), "{options:?}: {code}:\n{said}");
        assert!(
            [&honest, &other].iter().all(|path| std::fs::read(path).is_ok_and(|now| now == library)),
            "{options:?}"
        );
    }
    // These are meant.
    let (code, said) = run(&honest, &["--save-baseline", &path("b.json"), "--csv", "/dev/null", "--md", "/dev/null"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&honest, &["--baseline", &path("b.json"), "--save-baseline", &path("b.json")]);
    assert_eq!(code, 0, "{said}");
}

/// The signal of a limit on files (`ulimit -f`) is none to die of.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let folder = folder("limited");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = folder.join("README.md");
    std::fs::copy(tree.join("../README.md"), &readme).expect("a README");
    let text = std::fs::read_to_string(&readme).expect("a README").replace("Medians of 2026", "Medians of 1926");
    std::fs::write(&readme, &text).expect("a README");
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_harness"), "readme"]);
    let output = limited.arg(tree.join("records/h200.json")).arg(&readme).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("cannot be written: File too large"), "{output:?}");
    assert_eq!(std::fs::read_to_string(&readme).expect("the README"), text);
}

#[test]
fn a_failed_run_replaces_no_good_baseline() {
    let folder = folder("baseline");
    let (honest, wrong) = (candidate("honest_plain", &folder), candidate("one_wrong", &folder));
    let path = folder.join("kept.json");
    let baseline = path.to_str().expect("a path in UTF-8");
    let kept = || std::fs::read_to_string(&path).expect("the baseline");

    // Better than nothing, until there is a good one.
    let (code, said) = run(&wrong, &["--save-baseline", baseline]);
    let words = "kept.json; what failed in it is not compared: one_wrong.so (wrong-answer)";
    assert!(code == 12 && kept().contains("one_wrong.so") && said.contains(words), "{code}:\n{said}");
    let (code, said) = run(&honest, &["--baseline", baseline]);
    assert!(code == 0 && said.contains("failed in the baseline (wrong-answer)"), "{code}:\n{said}");
    let (code, said) = run(&honest, &["--save-baseline", baseline]);
    assert!(code == 0 && said.contains(&format!("baseline kept in {baseline}\n")), "{code}:\n{said}");
    let good = kept();
    assert!(good.contains("honest_plain.so") && !good.contains("one_wrong.so"));
    let (code, said) = run(&wrong, &["--save-baseline", baseline]);
    assert!(
        code == 12 && said.contains("is left as it was, because this run failed (wrong-answer)"),
        "{code}:\n{said}"
    );
    assert_eq!(kept(), good);

    // It has no times to compare, and that is not what is wrong with it.
    let timed = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--seq", "2", "--baseline", baseline];
    let (code, said) = graded(&[&[wrong.as_str()], &timed[..], &["--fail-on-regression", "2"]].concat());
    assert!(code == 12 && said.contains("FAIL  wrong-answer"), "{code}:\n{said}");
}

/// Minutes of measuring are not lost to a library that no record is of.
#[test]
fn a_record_of_another_library_is_refused_at_once() {
    let folder = folder("record");
    let source = "const char* solve_build_id(void) { return \"ab\"; }\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {}\n";
    let source = [HANDLE, source].concat();
    let to = folder.join("records");
    let to = to.to_str().expect("a path in UTF-8");
    for (library, words) in [
        (&compiled("other", &source, &folder), "(build ab) is not of this tree"),
        (&candidate("honest_plain", &folder), "has no build id (solve_build_id), which a record needs"),
    ] {
        let (code, said) = graded(&[library, "--device", "cpu", "--record", "--record-to", to]);
        assert!(code == 2 && said.contains(words) && !said.contains("correctness"), "{code}:\n{said}");
    }
    assert_eq!(std::fs::read_dir(to).expect("the folder").count(), 0);
}

/// A regression is no candidate's failure, and yet the end of the run.
#[test]
fn every_file_says_how_the_run_ended() {
    let folder = folder("ending");
    let honest = candidate("honest_plain", &folder);
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--quick", "--seq", "3"];
    let files =
        ["--json", &path("r.json"), "--junit", &path("r.xml"), "--md", &path("r.md"), "--html", &path("r.html")];
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the file was written");
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(&read(name)).expect("JSON");
    let ended = || {
        let outcome = json("r.json")["outcome"].take();
        (outcome["reason"].as_str().unwrap_or_default().to_string(), outcome["exit_code"].as_i64().unwrap_or(-1))
    };

    let (code, said) = graded(&[&[honest.as_str()], &short[..], &files[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert_eq!(ended(), ("pass".to_string(), 0));
    assert!(read("r.xml").contains("<testsuite name=\"the whole run\" tests=\"1\" failures=\"0\">"));

    // The same run, as if it had been a hundred times as fast before.
    let mut before = json("r.json");
    for kind in before["candidates"][0]["speed"].as_array_mut().expect("speeds") {
        for sample in kind["samples"].as_array_mut().expect("samples") {
            *sample = (0.01 * sample.as_f64().expect("a time")).into();
        }
    }
    let baseline = path("before.json");
    std::fs::write(Path::new(&baseline), before.to_string()).expect("a file for the test");
    let against = ["--baseline", &baseline, "--fail-on-regression", "50"];
    let (code, said) = graded(&[&[honest.as_str()], &short[..], &files[..], &against[..]].concat());
    assert!(code == 21 && said.contains("are surely more than 50 % longer than before"), "{code}:\n{said}");
    assert_eq!(ended(), ("regression".to_string(), 21));
    assert_eq!(json("r.json")["candidates"][0]["verdict"]["exit_code"], 0);
    assert!(read("r.xml").contains("name=\"outcome\"><failure message=\"regression (21): "));
    for page in ["r.md", "r.html"] {
        assert!(read(page).contains("Outcome of the run: regression (21): "), "{page}");
    }
}

/// The last lines, and those that the verdict has not told yet.
#[test]
fn what_a_failed_candidate_printed_is_told() {
    let folder = folder("printed");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let source = |end: &str| {
        format!(
            "#include <stdio.h>\n#include <stdlib.h>\n\
             void solve(const float* x, float* output, const float* weights, int seq_len) {{\n\
             for (int i = 0; i < 9; i++) printf(\"<line %d>\\n\", i);\nfflush(stdout); {end} }}\n"
        )
    };
    let files = ["--md", &path("r.md"), "--html", &path("r.html")];
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the file was written");
    let (code, said) = run(&compiled("silent", &source(""), &folder), &files);
    assert!(code == 13 && said.contains("  it printed: <line 7>\n  it printed: <line 8>\n"), "{code}:\n{said}");
    assert!(!said.contains("<line 3>\n  it printed: <line 4>"), "{said}");
    assert!(read("r.md").contains("It printed:\n\n    <line 4>\n"), "{}", read("r.md"));
    assert!(read("r.html").contains("it printed: &lt;line 8&gt;"));
    let (code, said) = run(&compiled("aborts", &source("abort();"), &folder), &[]);
    assert!(code == 11 && said.contains("its last words: <line 8>\n  it printed: <line 3>"), "{code}:\n{said}");
    assert_eq!(said.matches("it printed: <line 8>").count(), 0, "{said}");
}

/// Of a library that was never called there is little to say.
#[test]
fn what_does_not_load_leaves_no_empty_places() {
    let folder = folder("no_symbol");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let library = compiled("none", "int nothing;\n", &folder);
    let (code, said) = run(&library, &["--md", &path("r.md"), "--html", &path("r.html")]);
    assert!(code == 10 && said.contains(&format!("none.so  ({library}, solve)\n")), "{code}:\n{said}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the file was written");
    let texts = [said, read("r.md"), read("r.html")];
    for empty in ["buffers cross by", "0 of 0 cases", "error by case", "Time over seq_len"] {
        assert!(texts.iter().all(|text| !text.contains(empty)), "{empty:?} in {texts:?}");
    }
}

/// A candidate's words neither move the reader's cursor nor spoil a file.
#[test]
fn control_characters_reach_no_terminal_and_no_file() {
    let folder = folder("control");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        const char* solve_version(void) { return \"1\\x1b[2J\"; }\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
          fputs(\"\\x1b]0;passed\\a \\x01\\x7f\\xc2\\x9b last\\n\", stderr);\n\
          abort();\n\
        }\n"
    .to_string()
        + HANDLE;
    let names = ["r.json", "r.csv", "r.md", "r.xml", "r.html"];
    let [json, csv, md, xml, html] = names.map(|name| folder.join(name).display().to_string());
    let files = ["--json", &json, "--csv", &csv, "--md", &md, "--junit", &xml, "--html", &html];
    let (code, said) = run(&compiled("loud", &source, &folder), &files);
    assert!(code == 11 && said.contains("its last words: \u{fffd}]0;passed\u{fffd}"), "{code}:\n{said}");
    let texts = [json, csv, md, xml, html].map(|path| std::fs::read_to_string(path).expect("the file was written"));
    for text in [&said].into_iter().chain(&texts) {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

/// A candidate that failed cannot print a verdict of its own.
#[test]
fn a_candidates_words_make_no_line_of_their_own() {
    let folder = folder("lines");
    let source = "const char* solve_version(void) { return \"1\\n  PASS  pass (exit code 0)\"; }\n\
        const char* solve_build_id(void) { return \"2\\r\\n  PASS  pass (exit code 0)\"; }\n\
        int solve_last_status(void) { return 3; }\n\
        const char* solve_last_error(void) { return \"bad\\r\\n  PASS  pass (exit code 0)\\nseed 0x1\"; }\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {}\n"
        .to_string()
        + HANDLE;
    let (code, said) = run(&compiled("says", &source, &folder), &[]);
    assert!(code == 13 && said.contains("bad\u{fffd}   PASS  pass (exit code 0) seed 0x1"), "{code}:\n{said}");
    for line in said.lines() {
        assert!(!line.starts_with("  PASS") && line != "seed 0x1", "{line:?} in\n{said}");
    }
}

/// Whoever is graded next could read it: the first is in it already, and what the inputs follow from is not.
#[test]
fn a_report_between_two_candidates_has_the_first_and_no_seed() {
    let folder = folder("between");
    let report = folder.join("r.json").display().to_string();
    let source = format!(
        "#include <stdio.h>\n#include <string.h>\n\
         void solve(const float* x, float* output, const float* weights, int seq_len) {{\n\
           static char text[1 << 20];\n\
           FILE* file = fopen(\"{report}\", \"r\");\n\
           if (file) fread(text, 1, sizeof text - 1, file);\n\
           printf(\"%s, %s\\n\", strstr(text, \"honest_plain.so\") ? \"kept\" : \"lost\",\n\
             strstr(text, \"\\\"seed\\\": \\\"told at the end\\\"\") ? \"secret\" : \"told\");\n\
           fflush(stdout);\n\
         }}\n"
    );
    let (honest, reads) = (candidate("honest_plain", &folder), compiled("reads", &source, &folder));
    let (code, said) = run(&honest, &[&reads, "--json", &report]);
    assert!(code == 13 && said.contains("it printed: kept, secret"), "{code}:\n{said}");
    assert!(std::fs::read_to_string(&report).is_ok_and(|text| text.contains("\"seed\": \"0x")));
}
