//! What `run-all` of a bundle makes of its parts, with programs that only say what they were called with.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{folder, program, script};

/// A bundle of programs that find nothing wrong.
fn bundle(name: &str) -> PathBuf {
    let root = folder(name);
    program(&Path::new(env!("CARGO_MANIFEST_DIR")).join("run-all"), &root.join("run-all"));
    for driver in ["c/linked", "c/loaded"] {
        script(&root.join(driver), "");
    }
    script(&root.join("harness"), "echo PASS: $*");
    script(&root.join("tests/gpu"), "echo 'test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured'");
    root
}

/// Its exit code and what it said.
fn run_all(root: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(root.join("run-all"));
    command.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()));
    let output = command.env("OUT", root.join("out")).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

#[test]
fn gpu_tests_that_break_off_have_failed() {
    let root = bundle("bundle");
    for (tests, told, counted, code) in [
        (
            "echo 'test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'",
            "5,0,1",
            "5 passed, 0 failed, 1 ignored",
            0,
        ),
        (
            "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out'; exit 101",
            "3,2,0",
            "3 passed, 2 failed, 0 ignored",
            1,
        ),
        ("echo 'test first ... ok'; kill -s SEGV $$", "0,1", "0 passed, 1 failed", 1),
        ("echo 'test first ... ok'; exit 124", "0,1", "0 passed, 1 failed", 1),
    ] {
        script(&root.join("tests/gpu"), tests);
        let output = Command::new(root.join("run-all")).arg(root.join("out")).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("--gpu-tests {told} ")), "{tests}:\n{said}");
        assert_eq!(said.lines().last(), Some(&*format!("GPU tests: {counted}")), "{tests}:\n{said}");
        assert_eq!(output.status.code(), Some(code), "{tests}:\n{said}");
    }
}

/// In a bundle there is no tree to know it from.
#[test]
fn a_build_id_is_that_of_the_bundle() {
    let root = folder("build_id");
    program(Path::new(env!("CARGO_BIN_EXE_harness")), &root.join("harness"));
    std::fs::write(root.join("BUILD_ID"), "ab\n").expect("a file for the test");
    let output = Command::new(root.join("harness")).arg("build-id").output().expect("the grader starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ab\n");
}

#[test]
fn a_part_that_fails_fails_the_whole() {
    for (program, part) in [("c/linked", "c-linked"), ("c/loaded", "c-loaded"), ("harness", "record")] {
        let root = bundle("part");
        script(&root.join(program), "exit 3");
        let (code, said) = run_all(&root, &[]);
        assert!(code == Some(1) && said.contains(&format!("FAILED  {part} (")), "{program}: {code:?}:\n{said}");
    }
}

#[test]
fn a_quick_run_writes_no_record_and_an_unknown_one_does_nothing() {
    let root = bundle("quick");
    let (code, said) = run_all(&root, &["--quik"]);
    assert!(code == Some(2) && said.contains("run-all [--quick | --sanitize]"), "{code:?}:\n{said}");
    assert!(!root.join("out").exists());
    let (code, said) = run_all(&root, &["--quick"]);
    let log = std::fs::read_to_string(root.join("out/grade.log")).unwrap_or_default();
    assert!(code == Some(0) && log.starts_with("PASS: --quick --suite official --seq 1,1024 --json "), "{said}{log}");
    assert!(!root.join("out/record.log").exists());
}

/// Nor is a tool that says nothing one that found nothing.
#[test]
fn only_what_a_sanitizer_says_is_clean_is() {
    let root = bundle("sanitize");
    for (tool, clean) in [
        ("echo '========= ERROR SUMMARY: 0 errors'", true),
        ("echo '========= ERROR SUMMARY: 2 errors'", false),
        ("echo '========= ERROR SUMMARY: 0 errors'; exit 1", false),
        ("", false),
    ] {
        script(&root.join("bin/compute-sanitizer"), tool);
        let (code, said) = run_all(&root, &["--sanitize"]);
        assert!(code == Some(i32::from(!clean)) && said.contains("FAILED  ") != clean, "{tool}: {code:?}:\n{said}");
    }
}
