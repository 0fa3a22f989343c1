//! What the end-to-end tests share: the grader's executable, and candidates built from the red team's sources.

#![allow(dead_code, reason = "each test uses its part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of this test's own, empty.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Says what this test leaves out, past the test runner's capture, so that `tests/run` counts it.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nskipped: {why}");
}

/// The grader with these arguments.
pub fn harness(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.output().expect("the grader starts")
}

/// Its exit code and everything it printed. Where it found the machine too busy for a verdict (22), it is asked again.
pub fn graded(arguments: &[&str]) -> (i32, String) {
    let once = || {
        let output = harness(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text)
    };
    (0..5).map(|_| once()).find(|(code, _)| *code != 22).unwrap_or_else(once)
}

/// Builds one host candidate of the red team.
pub fn candidate(name: &str, folder: &Path) -> String {
    let red = Path::new(env!("CARGO_MANIFEST_DIR")).join("redteam");
    let library = folder.join(format!("{name}.so"));
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(cc);
    command.args(["-O3", "-march=native", "-shared", "-fPIC", "-pthread"]).arg("-I").arg(red.join("common"));
    command.arg(red.join(format!("host/{name}.c"))).arg(red.join("common/honest.c"));
    command.arg("-o").arg(&library).arg("-lm");
    assert!(command.status().expect("a C compiler").success());
    library.to_str().expect("a path in UTF-8").to_string()
}

/// Builds a library from C.
pub fn compiled(name: &str, source: &str, folder: &Path) -> String {
    let (file, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&file, source).expect("a file for the test");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file);
    assert!(cc.status().expect("a C compiler").success());
    library.to_str().expect("a path in UTF-8").to_string()
}

/// A program that is a line or two of shell.
pub fn script(path: &Path, text: &str) {
    let mut writer =
        installer(Path::new("/dev/stdin"), path).stdin(Stdio::piped()).spawn().expect("install, of coreutils");
    let mut stdin = writer.stdin.take().expect("a pipe");
    write!(stdin, "#!/bin/sh\n{text}\n").expect("a program for the test");
    drop(stdin);
    assert!(writer.wait().expect("install ends").success(), "{}", path.display());
}

/// A program of the tree, copied.
pub fn program(of_tree: &Path, path: &Path) {
    assert!(installer(of_tree, path).status().expect("install, of coreutils").success(), "{}", path.display());
}

/// Programs are written by another process: were they open for writing here, what another test's thread forks meanwhile would hold them open until it
/// execs, and a file that is open for writing does not run ("Text file busy").
fn installer(from: &Path, to: &Path) -> Command {
    let mut install = Command::new("install");
    install.args(["-D", "-m", "755"]).arg(from).arg(to);
    install
}
