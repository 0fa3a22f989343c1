//! What libsolve.so shows to the dynamic linker: exactly the functions of the header, no library but libc's and libgcc_s, and it is never unloaded. Looks at
//! the library of the tests' own profile and at the one that is shipped.

use std::ffi::CStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

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

/// Each with the bytes that it must have less of.
static LIBRARIES: LazyLock<Vec<(PathBuf, u64)>> = LazyLock::new(|| {
    let program = env::current_exe().expect("this program has a path");
    // Cargo leaves one beside the test programs. An unoptimised build carries debug information.
    let own = (program.with_file_name("libsolve.so"), if cfg!(debug_assertions) { 200 << 20 } else { 20 << 20 });
    let builds = program.ancestors().nth(3).expect("target/<profile>/deps/<program>");
    let shipped = builds.join("release/libsolve.so");
    match why_not(&shipped) {
        None => vec![own, (shipped, 20 << 20)],
        Some(why) => {
            // Past the test runner's capture, so that `tests/run` counts it.
            let _ = writeln!(std::io::stderr(), "\nskipped: {}: {why}", shipped.display());
            vec![own]
        }
    }
});

/// Why a release build cannot be looked at. One of other sources is no news about these.
fn why_not(shipped: &Path) -> Option<&'static str> {
    let Ok(bytes) = fs::read(shipped) else { return Some("not built (cargo build --release)") };
    // SAFETY: a string that lives as long as the program.
    let id = unsafe { CStr::from_ptr(solve::ffi::solve_build_id()) };
    (!has(&bytes, id.to_bytes())).then_some("built of other sources (cargo build --release)")
}

fn has(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

fn run(tool: &str, arguments: &[&str], library: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|error| panic!("{tool} (of binutils): {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exactly_the_functions_of_the_header_are_exported() {
    for (library, _) in &*LIBRARIES {
        let text = run("nm", &["-D", "--defined-only", "--format=just-symbols"], library);
        let mut exported: Vec<&str> = text.split_whitespace().collect();
        let mut wanted = FUNCTIONS.to_vec();
        exported.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(exported, wanted, "{}", library.display());
    }
}

#[test]
fn the_dynamic_section_is_as_promised() {
    for (library, _) in &*LIBRARIES {
        let (text, library) = (run("readelf", &["--dynamic", "--wide"], library), library.display());
        let bracketed = |line: &str| line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
        let needed: Vec<String> = text.lines().filter(|line| line.contains("(NEEDED)")).map(bracketed).collect();
        let allowed = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
        for other in &needed {
            assert!(allowed.contains(&other.as_str()), "{library} needs {other}");
        }
        let soname = text.lines().find(|line| line.contains("(SONAME)")).map(bracketed);
        assert_eq!(soname.as_deref(), Some("libsolve.so"), "{library}");
        assert!(text.contains("NODELETE"), "{library}: a Rust library with thread-locals must stay mapped");
    }
}

#[test]
fn the_library_is_small() {
    for (library, limit) in &*LIBRARIES {
        let size = library.metadata().expect("the library is beside its tests").len();
        assert!(size < *limit, "{} has {size} bytes", library.display());
    }
}

/// What a product costs is known without asking the system for its caches, which it may describe in ways that no crate expects, nor a program for them.
#[test]
fn the_system_is_not_asked_for_its_caches() {
    for (library, _) in &*LIBRARIES {
        let bytes = fs::read(library).expect("the library is beside its tests");
        for words in [&b"lscpu"[..], b"/sys/devices/system/cpu"] {
            assert!(!has(&bytes, words), "{} has {:?}", library.display(), String::from_utf8_lossy(words));
        }
    }
}
