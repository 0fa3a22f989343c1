//! What libsolve.so shows to the dynamic linker: exactly the functions of the header, no library but libc's, and it is never unloaded.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// In the order of the header.
const FUNCTIONS: [&str; 10] = [
    "solve",
    "solve_last_status",
    "solve_last_error",
    "solve_status_string",
    "solve_version",
    "solve_build_id",
    "solve_block_create",
    "solve_block_forward",
    "solve_block_update",
    "solve_block_destroy",
];

/// Cargo leaves it beside the test programs.
fn library() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    program.with_file_name("libsolve.so")
}

fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).arg(library()).output();
    let output = output.unwrap_or_else(|error| panic!("{tool} (of binutils): {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exactly_the_functions_of_the_header_are_exported() {
    let text = run("nm", &["-D", "--defined-only", "--format=just-symbols"]);
    let mut exported: Vec<&str> = text.split_whitespace().collect();
    let mut wanted = FUNCTIONS.to_vec();
    exported.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(exported, wanted);
}

#[test]
fn the_dynamic_section_is_as_promised() {
    let text = run("readelf", &["--dynamic", "--wide"]);
    let bracketed = |line: &str| line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
    let needed: Vec<String> = text.lines().filter(|line| line.contains("(NEEDED)")).map(bracketed).collect();
    let allowed = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    for library in &needed {
        assert!(allowed.contains(&library.as_str()), "libsolve.so needs {library}");
    }
    let soname = text.lines().find(|line| line.contains("(SONAME)")).map(bracketed);
    assert_eq!(soname.as_deref(), Some("libsolve.so"));
    assert!(text.contains("NODELETE"), "a Rust library with thread-locals must stay mapped");
}

#[test]
fn the_library_is_small() {
    let size = library().metadata().expect("the library is beside its tests").len();
    // An unoptimised build carries debug information.
    let limit = if cfg!(debug_assertions) { 200 << 20 } else { 20 << 20 };
    assert!(size < limit, "libsolve.so has {size} bytes");
}

/// What a product costs is known without asking the system for its caches, which it may describe in ways that no crate expects, nor a program for them.
#[test]
fn the_system_is_not_asked_for_its_caches() {
    let bytes = std::fs::read(library()).expect("the library is beside its tests");
    for words in [&b"lscpu"[..], b"/sys/devices/system/cpu"] {
        let found = bytes.windows(words.len()).any(|window| window == words);
        assert!(!found, "libsolve.so has {:?}", String::from_utf8_lossy(words));
    }
}
